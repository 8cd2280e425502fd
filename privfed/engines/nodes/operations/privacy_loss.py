"""What a ledger's entries cost so far, computed only when somebody looks: an accountant may take seconds."""

import math
from collections.abc import Callable

from privfed.privacy import AccountingError, Ledger
from privfed.privacy.guarantee import guarantee_for


def loss_so_far(ledger: Ledger) -> Callable[[], float]:
    """Epsilon of the worst-off user by the entries that there are now, as a function that any thread may call.

    Its result is infinite where nothing is guaranteed, and not a number where no accountant covers the run.
    """
    # The composition is a small frozen value, so the ledger may grow while its epsilon is computed.
    plan, composition, population = ledger.plan, ledger.composition(), ledger.population

    def epsilon() -> float:
        try:
            return guarantee_for(plan, composition, population).epsilon
        except AccountingError:
            return math.nan

    return epsilon
