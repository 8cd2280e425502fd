"""The privacy layer: a plan, the guards that run it, the ledger that charges it, the guarantee it earns."""

from privfed.privacy.budget import (
    LaplaceBudget,
    LaplaceSolution,
    laplace_budget,
    solve_laplace,
)
from privfed.privacy.errors import AccountingError, LedgerError, PlanError, PrivacyError, configure, explain
from privfed.privacy.events import SchemaSummary
from privfed.privacy.forecast import Forecast, forecast
from privfed.privacy.gaussian_budget import GaussianBudget, GaussianSolution, gaussian_budget, solve_gaussian
from privfed.privacy.guarantee import Guarantee
from privfed.privacy.ledger import Entry, Ledger
from privfed.privacy.mechanisms.base import Clip, ClipOnly, LocalLaplace, Noise, UnclippedNoise, Unprotected
from privfed.privacy.mechanisms.gaussian import AdaptiveClip, CentralGaussian, LocalGaussian
from privfed.privacy.mechanisms.interaction_dpsgd import InteractionDPSGD
from privfed.privacy.mechanisms.secure import DistributedGaussian, SecureSum, SharedSum
from privfed.privacy.padding import FakeItems, FullSupport, NoPadding, Padding, RandomisedResponse, SupportClaim
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson
from privfed.privacy.target import plan_for_target

__all__ = [
    "AccountingError",
    "AdaptiveClip",
    "All",
    "CentralGaussian",
    "Clip",
    "ClipOnly",
    "DistributedGaussian",
    "Entry",
    "Epoch",
    "FakeItems",
    "Fixed",
    "Forecast",
    "FullSupport",
    "GaussianBudget",
    "GaussianSolution",
    "Guarantee",
    "InteractionDPSGD",
    "LaplaceBudget",
    "LaplaceSolution",
    "Ledger",
    "LedgerError",
    "LocalGaussian",
    "LocalLaplace",
    "NoPadding",
    "Noise",
    "Padding",
    "PlanError",
    "Poisson",
    "PrivacyError",
    "PrivacyPlan",
    "RandomisedResponse",
    "SchemaSummary",
    "SecureSum",
    "SharedSum",
    "SupportClaim",
    "UnclippedNoise",
    "Unprotected",
    "configure",
    "explain",
    "forecast",
    "gaussian_budget",
    "laplace_budget",
    "plan_for_target",
    "solve_gaussian",
    "solve_laplace",
]
