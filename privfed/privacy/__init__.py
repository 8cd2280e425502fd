"""The privacy layer: a plan, the guards that run it, the ledger that charges it, the guarantee it earns."""

from privfed.privacy.budget import (
    LaplaceBudget,
    LaplaceSolution,
    laplace_budget,
    plan_for_target,
    solve_laplace,
)
from privfed.privacy.client_guard import ClientGuard
from privfed.privacy.errors import AccountingError, LedgerError, PlanError, PrivacyError, configure, explain
from privfed.privacy.forecast import Forecast, forecast
from privfed.privacy.guarantee import Guarantee
from privfed.privacy.ledger import Entry, Ledger
from privfed.privacy.plan import (
    Clip,
    ClipOnly,
    LocalLaplace,
    Noise,
    Nothing,
    PrivacyPlan,
    UnclippedNoise,
)
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson
from privfed.privacy.server_guard import ServerGuard

__all__ = [
    "AccountingError",
    "All",
    "ClientGuard",
    "Clip",
    "ClipOnly",
    "Entry",
    "Epoch",
    "Fixed",
    "Forecast",
    "Guarantee",
    "LaplaceBudget",
    "LaplaceSolution",
    "Ledger",
    "LedgerError",
    "LocalLaplace",
    "Noise",
    "Nothing",
    "PlanError",
    "Poisson",
    "PrivacyError",
    "PrivacyPlan",
    "ServerGuard",
    "UnclippedNoise",
    "configure",
    "explain",
    "forecast",
    "laplace_budget",
    "plan_for_target",
    "solve_laplace",
]
