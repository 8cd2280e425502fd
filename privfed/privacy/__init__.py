"""The privacy layer: a plan, the ledger that records what it releases, the guarantee it earns and what it costs.

Mechanisms are in `privfed.privacy.mechanisms`, kinds of padding in `privfed.privacy.padding`; sampling rules, events
and accountants in the modules of their names.
"""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.privacy.budget import laplace_budget, solve_laplace
    from privfed.privacy.configuring import configure, explain
    from privfed.privacy.errors import AccountingError, LedgerError, PlanError, PrivacyError
    from privfed.privacy.events import SchemaSummary
    from privfed.privacy.forecast import Forecast, forecast
    from privfed.privacy.gaussian_budget import gaussian_budget, solve_gaussian
    from privfed.privacy.guarantee import Guarantee
    from privfed.privacy.ledger import Ledger
    from privfed.privacy.mechanisms.base import Mechanism
    from privfed.privacy.padding.base import Padding
    from privfed.privacy.plan import PrivacyPlan
    from privfed.privacy.target import plan_for_target

__all__ = [
    "AccountingError",
    "Forecast",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "Padding",
    "PlanError",
    "PrivacyError",
    "PrivacyPlan",
    "SchemaSummary",
    "configure",
    "explain",
    "forecast",
    "gaussian_budget",
    "laplace_budget",
    "plan_for_target",
    "solve_gaussian",
    "solve_laplace",
]

load_lazily(__name__)
