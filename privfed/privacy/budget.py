"""Before a run: what a per-upload epsilon adds up to, and which one a total allows.

Local Laplace noise composes over the uploads that one user makes. `laplace_budget` goes from epsilon0 per
upload to the total, `solve_laplace` back; both use the accountants that the ledger uses, so plan and claim
agree.
"""

import math

from pydantic import BaseModel, ConfigDict

from privfed.privacy.accounting import RDP, account
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.epsilon import MIN_DELTA, Epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Laplace

_TOLERANCE = 1e-4
_MOST_STEPS = 60


class LaplaceBudget(BaseModel):
    """What `participations` uploads at `epsilon0` each cost one user.

    Attributes:
        epsilon0: privacy loss of one upload.
        participations: uploads of one user.
        delta: probability with which `epsilon` may fail.
        epsilon: total at delta, by `accountant`.
        basic_epsilon: participations * epsilon0, which holds with delta = 0.
        rdp_epsilon: the looser RDP bound that checked it; None where it was not needed.
        accountant: how epsilon was computed.
        noise_scale_per_clip: Laplace scale of each coordinate over the L1 clip norm, 2 / epsilon0.
    """

    model_config = ConfigDict(frozen=True)
    epsilon0: float
    participations: int
    delta: float
    epsilon: Epsilon
    basic_epsilon: float
    rdp_epsilon: float | None
    accountant: str
    noise_scale_per_clip: float


class LaplaceSolution(BaseModel):
    """The epsilon0 per upload that keeps a total.

    Attributes:
        target: total epsilon that was asked for.
        budget: the largest epsilon0 whose total at delta stays at or below the target, with that total.
        basic_epsilon0: target / participations, which keeps the target even with delta = 0.
    """

    model_config = ConfigDict(frozen=True)
    target: float
    budget: LaplaceBudget
    basic_epsilon0: float


def laplace_budget(epsilon0: float, participations: int, delta: float) -> LaplaceBudget:
    """Total privacy loss of `participations` Laplace uploads at `epsilon0` each.

    Raises:
        PlanError: a value out of range.
        AccountingError: accountants disagree.
    """
    _check(participations, delta, epsilon0=epsilon0)
    event = Laplace(scale_over_sensitivity=1.0 / epsilon0)
    result = account(Composition((Releases(event, participations),)).event(), delta)
    return LaplaceBudget(
        epsilon0=epsilon0,
        participations=participations,
        delta=delta,
        epsilon=result.epsilon,
        basic_epsilon=epsilon0 * participations,
        rdp_epsilon=dict(result.cross_check).get(RDP),
        accountant=result.accountant,
        noise_scale_per_clip=2.0 / epsilon0,
    )


def solve_laplace(epsilon: float, participations: int, delta: float) -> LaplaceSolution:
    """The largest epsilon0, to four digits, whose `participations` uploads cost at most `epsilon`.

    Raises:
        PlanError: a value out of range.
        AccountingError: accountants disagree.
    """
    _check(participations, delta, epsilon=epsilon)
    basic = epsilon / participations
    return LaplaceSolution(
        target=epsilon,
        budget=laplace_budget(_round_down(_largest(epsilon, participations, delta)), participations, delta),
        basic_epsilon0=basic,
    )


def _largest(epsilon: float, participations: int, delta: float) -> float:
    """The largest epsilon0, up to a relative `_TOLERANCE`, whose total does not exceed `epsilon`.

    The total grows like a power of epsilon0 between basic and advanced composition, so each step probes where
    the power law through the two ends of the bracket meets the target, a little towards the farther end.
    """
    # The plain sum keeps the target; the small step down is room for the rounding of the accountant's grid.
    low = epsilon / participations * (1.0 - _TOLERANCE)
    # One release alone exceeds the target above this; see the closed form in `accounting`.
    cap = (epsilon - 2.0 * math.log1p(-delta)) * (1.0 + _TOLERANCE)
    at_low = laplace_budget(low, participations, delta).epsilon
    high, at_high = low, at_low
    while at_high <= epsilon and high < cap:
        low, at_low = high, at_high
        # The total grows at least in proportion, so this overshoots; where delta hides it, any stride does.
        stride = epsilon / at_low if at_low > 0 else 10.0
        high = min(high * stride * (1.0 + _TOLERANCE), cap)
        at_high = laplace_budget(high, participations, delta).epsilon
    for _ in range(_MOST_STEPS):
        if high <= low * (1.0 + _TOLERANCE):
            break
        reach = math.log(high / low)
        share = math.log(epsilon / at_low) / math.log(at_high / at_low) if at_low > 0 else 0.5
        nudge = _TOLERANCE / (3.0 * reach)
        share += nudge if share < 0.5 else -nudge
        probe = low * math.exp(reach * min(max(share, nudge), 1.0 - nudge))
        at_probe = laplace_budget(probe, participations, delta).epsilon
        if at_probe <= epsilon:
            low, at_low = probe, at_probe
        else:
            high, at_high = probe, at_probe
    return low


def _round_down(value: float, digits: int = 4) -> float:
    """The largest number of `digits` significant digits not above `value`."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.floor(value / unit) * unit:.{digits}g}")


def _check(participations: int, delta: float, **epsilons: float) -> None:
    for name, value in epsilons.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(f"{name} = {value!r} is not allowed: it must be a finite number above 0")
    if participations < 1:
        raise PlanError(f"participations = {participations!r} is not allowed: it must be at least 1")
    if not MIN_DELTA <= delta < 1:
        raise PlanError(f"delta = {delta!r} is not allowed: it must be in [{MIN_DELTA:g}, 1)")
