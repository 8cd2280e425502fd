"""The privacy layer: a plan, the guards that run it, the ledger that charges it, the guarantee it earns."""

from typing import TYPE_CHECKING

from privfed.lazily import lazily
from privfed.privacy.budget import (
    LaplaceBudget,
    LaplaceSolution,
    laplace_budget,
    solve_laplace,
)
from privfed.privacy.cover import Cover, EveryRow, FakeItems, OwnRows, RandomisedResponse, SupportClaim
from privfed.privacy.errors import AccountingError, LedgerError, PlanError, PrivacyError, configure, explain
from privfed.privacy.forecast import Forecast, forecast
from privfed.privacy.gaussian import AdaptiveClip, CentralGaussian, LocalGaussian
from privfed.privacy.gaussian_budget import GaussianBudget, GaussianSolution, gaussian_budget, solve_gaussian
from privfed.privacy.guarantee import Guarantee
from privfed.privacy.interaction import InteractionDPSGD
from privfed.privacy.ledger import Entry, Ledger
from privfed.privacy.mechanisms import SchemaSummary
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.protections import Clip, ClipOnly, LocalLaplace, Noise, Nothing, UnclippedNoise
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson
from privfed.privacy.secure import DistributedGaussian, SecureSum, SharedSum
from privfed.privacy.target import plan_for_target

if TYPE_CHECKING:
    from privfed.privacy.client_guard import ClientGuard
    from privfed.privacy.covering import Covered, draw_cover
    from privfed.privacy.ring_code import RingCode
    from privfed.privacy.server_guard import ServerGuard

__all__ = [
    "AccountingError",
    "AdaptiveClip",
    "All",
    "CentralGaussian",
    "ClientGuard",
    "Clip",
    "ClipOnly",
    "Cover",
    "Covered",
    "DistributedGaussian",
    "Entry",
    "Epoch",
    "EveryRow",
    "FakeItems",
    "Fixed",
    "Forecast",
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
    "Noise",
    "Nothing",
    "OwnRows",
    "PlanError",
    "Poisson",
    "PrivacyError",
    "PrivacyPlan",
    "RandomisedResponse",
    "RingCode",
    "SchemaSummary",
    "SecureSum",
    "ServerGuard",
    "SharedSum",
    "SupportClaim",
    "UnclippedNoise",
    "configure",
    "draw_cover",
    "explain",
    "forecast",
    "gaussian_budget",
    "laplace_budget",
    "plan_for_target",
    "solve_gaussian",
    "solve_laplace",
]

__getattr__ = lazily(
    __name__,
    {
        "ClientGuard": "client_guard",
        "Covered": "covering",
        "draw_cover": "covering",
        "RingCode": "ring_code",
        "ServerGuard": "server_guard",
    },
)
