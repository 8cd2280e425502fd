"""From a `DpEvent` tree to epsilon: which accountant reports, and which others check it.

| shape of the event | reported | checked by |
|---|---|---|
| Laplace, any counts | PLD, or basic composition if smaller | RDP from above, one release from below |
| Laplace with epsilon0 above 50 | basic composition | nothing: it is a plain sum |
| Gaussian without sampling | PLD | the exact closed form from both sides, RDP from above |
| Gaussian, some of it Poisson-sampled | PLD | Opacus PRV from both sides, RDP from above |
| unsampled Laplace next to Gaussian, sampled or not | PLD | RDP from above, one release from below |
| shares of integer noise in secure sums | nearness to a Gaussian, or RDP | PLD of continuous noise, from below |
| epsilon above 10,000 by RDP | RDP, or basic composition if smaller | nothing: so long a grid does not fit the memory |
| Laplace where PLD gives out | RDP, or basic composition if smaller | the other of the two, one release from below |
| any other noise where PLD gives out | RDP | nothing |
| the same where RDP gives out too | closed forms, added up | nothing |
| anything non-private | epsilon = inf | nothing |
| anything else | refused | |

An accountant *gives out* where its arithmetic overflows, or ends in infinity or in no number. It then says nothing, so
it neither stops the report nor checks it: the next sound bound of the table is reported under its own name, and a
release is refused only where none is finite. PLD does where e^-epsilon underflows: for totals of 710 to 745 it is
infinite (Laplace with epsilon0 = 18, 40 uploads, delta = 1e-8), and above it is a quantile of the loss, which bounds
epsilon but may lie above the other bounds; PRV is not asked there. The closed forms are finite short of overflow: all
Gaussian noise together is one Gaussian mechanism with a known delta(epsilon), which sampling can only lower, and pure
epsilons add to it.

PLD is the privacy loss distribution accountant of dp-accounting: numerical, tight and rounded towards too
large an epsilon. The checks are PLD <= PRV <= PLD + 0.02 and one release <= PLD <= RDP, up to the rounding of
the grid; a failed one raises `AccountingError`. Opacus' `gdp` accountant (a central-limit approximation) is
never used, because it can report less than the truth. Where delta alone excuses everything, PRV's epsilon is below 0,
which is read as 0.

Laplace events are composed under ADD_OR_REMOVE_ONE with parameter scale / (2C). That is no contradiction with
the replace-one neighbours of the local plans: what the accountant needs is the pair Lap(0, p) against Lap(1,
p), and two uploads clipped to L1 norm C are at distance 2C at most, so in units of 2C they are that pair.
Splitting the distance over several coordinates is never worse than one coordinate, which the tests check.
"""

import logging
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.epsilon import MIN_DELTA
from privfed.privacy.errors import AccountingError
from privfed.privacy.loss_distributions import MANY_RELEASES, composed, gaussian_losses
from secure_agg.noise import NoiseEvent
from secure_agg.noise.gaussian_limit import epsilon_near_gaussian
from secure_agg.noise.rdp import ORDERS, epsilon_from_rdp

if TYPE_CHECKING:
    from dp_accounting import DpEvent

PLD, PRV, RDP, BASIC = "PLD", "PRV", "RDP", "basic composition"
CLOSED_FORM, CLOSED_FORMS = "closed form", "closed forms, added up"
CONTINUOUS = "PLD of continuous noise"
NEAR_GAUSSIAN = "nearness to a Gaussian"

# What accountants raise where their arithmetic ends.
_GAVE_OUT = (ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError)
# Epsilon of one Laplace release above which its loss distribution is not built.
_MAX_LAPLACE = 50.0
# Epsilon above which the grid of a loss distribution does not fit the memory.
_VACUOUS = 1e4
# e^-708 is about the smallest normal float64.
_UNDERFLOWS = 700.0
# By how much of the total PLD of unsampled Gaussians may lie above its exact value; its grid costs far less.
_SLACK = 1e-4
# Grid steps in the root mean square loss of unsampled Gaussian releases.
_STEPS_PER_LOSS = 1000.0
# Points that the loss of a single release may take on the grid, without sampling and with; no distribution of twice as
# many is built.
_GRID_POINTS, _SAMPLED_POINTS = 2e7, 2e5
# Grid steps in the root mean square loss of many thousands of releases together.
_STEPS_PER_RUN = 2e4
# Half-width of PRV's interval for epsilon; its upper end may lie the whole width, `_PRV_WINDOW`, above PLD.
_PRV_ERROR = 0.01
_PRV_WINDOW = 0.02
# Grid points beyond which PRV is left out: its convolution takes memory in proportion.
_PRV_POINTS = 5e6
# Fine where the best order usually lies, and whole above, where a sampled Gaussian's divergence is a finite sum.
_SAMPLED_ORDERS = (*np.arange(2.0, 12.0, 0.1).tolist(), *range(12, 65), 80, 96, 128, 192, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class AccountedEpsilon:
    """Epsilon with how it was computed.

    Attributes:
        epsilon: at the delta that was asked; inf where nothing bounds it.
        accountant: which accountant reports it.
        accountant_version: package and version.
        cross_check: epsilon by the other accountants that apply.
        basic_epsilon: sum of the pure epsilons (delta = 0), where every release has one.
    """

    epsilon: float
    accountant: str
    accountant_version: str
    cross_check: tuple[tuple[str, float], ...] = ()
    basic_epsilon: float | None = None


UNBOUNDED = AccountedEpsilon(math.inf, "none", "none")
"""What a release without a bound adds up to, whatever else there is."""


@cache
def shares_event() -> Any:
    """The event of one secure sum with shares of integer noise: a `DpEvent` that holds a `secure_agg` `NoiseEvent`.

    dp-accounting has no event for the Skellam law; the class is made at first use because its base is.
    """

    @dataclass(frozen=True)
    class NoiseSharesDpEvent(dp_accounting().DpEvent):  # type: ignore[misc]
        """`noise` is the sum's record; it must not depend on who took part."""

        noise: NoiseEvent

    return NoiseSharesDpEvent


@cache
def dp_accounting() -> Any:
    """The `dp_accounting` module, imported at first use: it takes one second, mostly for scipy.signal."""
    return import_module("dp_accounting")


def account(event: "DpEvent", delta: float) -> AccountedEpsilon:
    """Epsilon of `event` at `delta`.

    Args:
        event: tree of dp-accounting events under one neighbour relation (see the module's table).
        delta: failure probability, in [1e-10, 1).

    Raises:
        AccountingError: no accountant covers the event, all of them gave out, or two of them disagree.
    """
    if not MIN_DELTA <= delta < 1.0:
        raise AccountingError(f"delta = {delta!r} is not allowed: it must be in [{MIN_DELTA:g}, 1)")
    leaves: Counter[Any] = Counter()
    _flatten(event, 1, leaves)
    dp = dp_accounting()
    if any(isinstance(leaf, dp.NonPrivateDpEvent) for leaf in leaves):
        return UNBOUNDED
    # In one order, so that equal events in any order meet the same entry of the cache.
    return _account(tuple(sorted(leaves.items(), key=repr)), delta)


def _flatten(event: "DpEvent", count: int, leaves: "Counter[DpEvent]") -> None:
    """Count the leaves of a tree; a zero noise becomes a non-private leaf, a certain draw its inner event."""
    dp = dp_accounting()
    if count == 0 or isinstance(event, dp.NoOpDpEvent):
        return
    if isinstance(event, dp.ComposedDpEvent):
        for inner in event.events:
            _flatten(inner, count, leaves)
    elif isinstance(event, dp.SelfComposedDpEvent):
        # Counts multiply down the tree instead of repeating the leaf.
        _flatten(event.event, count * event.count, leaves)
    elif isinstance(event, dp.PoissonSampledDpEvent) and event.sampling_probability == 1:
        _flatten(event.event, count, leaves)
    else:
        inner = event.event if isinstance(event, dp.PoissonSampledDpEvent) else event
        # `not ... > 0` takes in a multiplier that is no number.
        noiseless = not getattr(inner, "noise_multiplier", 1.0) > 0
        leaf = dp.NonPrivateDpEvent() if noiseless else event
        _refuse_unknown(leaf)
        leaves[leaf] += count


@lru_cache(maxsize=1024)
def _account(leaves: tuple[tuple[Any, int], ...], delta: float) -> AccountedEpsilon:
    if not leaves:
        return AccountedEpsilon(0.0, "none", "none")
    if any(isinstance(leaf, shares_event()) for leaf, _ in leaves):
        return _account_shares(leaves, delta)
    pure = _pure(leaves)
    basic = math.fsum(e * n for e, n in pure) if len(pure) == len(leaves) else None
    floor = max((_one_laplace(e, delta) for e, _ in pure), default=0.0)
    if max((e for e, _ in pure), default=0.0) > _MAX_LAPLACE:
        if basic is None:
            raise AccountingError(
                f"a Laplace release with epsilon0 above {_MAX_LAPLACE:g} next to Gaussian ones is not "
                "accounted: such a release protects nothing, leave it out or add noise"
            )
        return AccountedEpsilon(basic, BASIC, "closed form", (), basic)
    bounds = looser_bounds(leaves, delta)
    # Exactly one bound, whose value also says how long a grid PLD would need.
    (size,) = bounds.values()
    grid = _grid(leaves, size)
    pld = math.inf if size > _VACUOUS else pld_epsilon(leaves, delta, grid)
    if pld == math.inf or pld > max(_UNDERFLOWS, min(size, basic or size)):
        fallback = _loosely(bounds, basic, delta)
        at_most("one release alone", floor, fallback.accountant, fallback.epsilon, grid)
        return fallback
    # Each release's loss is rounded up by less than one grid step, and losses add up.
    rounding = grid * sum(count for _, count in leaves)
    for name, bound in bounds.items():
        at_most(PLD, pld, name, bound, max(grid, min(rounding, 1e-3 * bound)))
    at_most("one release alone", floor, PLD, pld, grid)
    if basic is not None:
        at_most(PLD, pld, BASIC, basic, rounding)
        if basic <= pld:
            return AccountedEpsilon(basic, BASIC, "closed form", ((PLD, pld), *bounds.items()), basic)
    exact = _one_gaussian(leaves, delta) if pld <= _UNDERFLOWS else None
    if exact is not None:
        at_most(PLD, pld, CLOSED_FORM, exact, _SLACK * max(exact, 1.0))
        at_most(CLOSED_FORM, exact, PLD, pld, 1e-6 * exact)
        bounds[CLOSED_FORM] = exact
    prv = math.inf if pure or exact is not None or pld > _UNDERFLOWS else _prv(leaves, size, delta)
    if prv != math.inf:
        at_most(PLD, pld, PRV, prv, grid)
        at_most(PRV, prv, PLD, pld, _PRV_WINDOW)
        bounds[PRV] = prv
    return AccountedEpsilon(pld, PLD, _reporter(PLD), tuple(bounds.items()), basic)


def _loosely(bounds: dict[str, float], basic: float | None, delta: float) -> AccountedEpsilon:
    """The smallest of the bounds besides PLD, checked by nothing but the others."""
    if basic is not None:
        bounds = bounds | {BASIC: basic}
    name = min(bounds, key=bounds.__getitem__)
    others = tuple((other, bound) for other, bound in bounds.items() if other != name)
    return AccountedEpsilon(_finite(bounds[name], name, delta), name, _reporter(name), others, basic)


def looser_bounds(leaves: tuple[tuple[Any, int], ...], delta: float) -> dict[str, float]:
    """The bound that checks PLD and stands in for it, by name: RDP, or the closed forms where RDP gives out."""
    sampled = any(hasattr(leaf, "sampling_probability") for leaf, _ in leaves)
    rdp = rdp_epsilon(leaves, delta, sampled=sampled)
    if rdp != math.inf:
        return {RDP: rdp}
    gaussians = [(getattr(leaf, "event", leaf).noise_multiplier, n) for leaf, n in leaves if not _is_laplace(leaf)]
    pure = math.fsum(e * n for e, n in _pure(leaves))
    if not gaussians:
        return {BASIC: pure}
    return {CLOSED_FORMS: pure + gaussian_epsilon(_distance(gaussians), delta)}


def _one_gaussian(leaves: tuple[tuple[Any, int], ...], delta: float) -> float | None:
    """Epsilon of Gaussian releases of which none is sampled, exactly; None of others."""
    if not _unsampled_gaussians(leaves):
        return None
    return gaussian_epsilon(_distance([(leaf.noise_multiplier, n) for leaf, n in leaves]), delta)


def _unsampled_gaussians(leaves: tuple[tuple[Any, int], ...]) -> bool:
    """Whether all releases are Gaussian, and none is sampled."""
    return all(isinstance(leaf, dp_accounting().GaussianDpEvent) for leaf, _ in leaves)


def _distance(gaussians: list[tuple[float, int]]) -> float:
    """Distance of the unit Gaussians that releases, with noise so and so often, are together.

    n releases are one at distance sqrt(n) / noise, and distances add up in squares.
    """
    return math.hypot(*(math.sqrt(n) / noise for noise, n in gaussians))


def _reporter(accountant: str) -> str:
    return f"dp-accounting {version('dp-accounting')}" if accountant in (PLD, RDP) else "closed form"


def _pure(leaves: tuple[tuple[Any, int], ...]) -> list[tuple[float, int]]:
    """Epsilon of each Laplace release, with its count."""
    return [(1.0 / leaf.noise_multiplier, n) for leaf, n in leaves if _is_laplace(leaf)]


def _is_sampled(leaf: Any) -> bool:
    return isinstance(leaf, dp_accounting().PoissonSampledDpEvent)


def _is_laplace(leaf: Any) -> bool:
    return isinstance(leaf, dp_accounting().LaplaceDpEvent)


def _account_shares(leaves: tuple[tuple[Any, int], ...], delta: float) -> AccountedEpsilon:
    """By the divergence of the discrete law or its nearness to a Gaussian; continuous noise must not cost more."""
    dp = dp_accounting()
    if not all(isinstance(leaf, shares_event()) for leaf, _ in leaves):
        raise AccountingError(
            "shares of integer noise next to noise of another kind are not accounted: one plan per run"
        )
    curve = sum(count * leaf.noise.rdp() for leaf, count in leaves)
    rdp = _finite(epsilon_from_rdp(ORDERS, curve, delta), RDP, delta)
    # Squared distances in units of the noise add up, and so do squared distances from the Gaussian law.
    precision = math.fsum(count * leaf.noise.l2**2 / leaf.noise.total_variance for leaf, count in leaves)
    distance = math.hypot(*(leaf.noise.near_gaussian(count)[1] for leaf, count in leaves))
    near = epsilon_near_gaussian(math.sqrt(precision), distance, delta)
    epsilon, accountant = min((rdp, RDP), (near, NEAR_GAUSSIAN))
    others = ((RDP, rdp),) if accountant == NEAR_GAUSSIAN else ()
    reporter = f"secure_agg, {leaves[0][0].noise.law} by {accountant}"
    continuous = ((dp.GaussianDpEvent(precision**-0.5), 1),)
    grid = _grid(continuous, rdp)
    pld = pld_epsilon(continuous, delta, grid)
    if pld == math.inf:
        return AccountedEpsilon(epsilon, accountant, reporter, others)
    slack = _SLACK * max(epsilon, 1.0)
    at_most("PLD of continuous noise of this variance", pld, f"{accountant} of the discrete law", epsilon, slack)
    return AccountedEpsilon(epsilon, accountant, reporter, (*others, (CONTINUOUS, pld)))


def _refuse_unknown(leaf: Any) -> None:
    dp = dp_accounting()
    gaussian = isinstance(leaf, dp.PoissonSampledDpEvent) and isinstance(leaf.event, dp.GaussianDpEvent)
    known = dp.LaplaceDpEvent | dp.GaussianDpEvent | dp.NonPrivateDpEvent | shares_event()
    if not gaussian and not isinstance(leaf, known):
        raise AccountingError(
            f"no pair of accountants covers the event {leaf}: use Laplace noise, or Gaussian noise with or "
            "without Poisson sampling"
        )


def at_most(name: str, epsilon: float, bound_name: str, bound: float, slack: float) -> None:
    """Raise AccountingError when one accountant's epsilon exceeds another's bound by more than `slack`."""
    if not epsilon <= bound + slack:
        raise AccountingError(
            f"accountants disagree, so no epsilon is reported: {name} gives {epsilon:.6g}, which may not "
            f"exceed the {bound:.6g} of {bound_name} by more than {slack:.2g}"
        )


def _one_laplace(epsilon0: float, delta: float) -> float:
    """Epsilon at delta of one Laplace release, exactly: delta(e) = 1 - exp((e - epsilon0) / 2)."""
    return max(0.0, epsilon0 + 2.0 * math.log1p(-delta))


def _compose(accountant: Any, leaves: tuple[tuple[Any, int], ...], delta: float) -> float:
    """Epsilon by one dp-accounting accountant, inf where it gives out; e^x may overflow to inf on the way."""
    try:
        with np.errstate(all="ignore"):
            for leaf, count in leaves:
                accountant.compose(leaf, count)
            epsilon = float(accountant.get_epsilon(delta))
    except _GAVE_OUT:
        return math.inf
    return epsilon if epsilon >= 0 else math.inf


def _finite(epsilon: float, accountant: str, delta: float) -> float:
    if not math.isfinite(epsilon) or epsilon < 0:
        raise AccountingError(
            f"{accountant} gives epsilon = {epsilon} at delta = {delta:g} for a noisy release, so its "
            "numerics gave out: choose a larger delta"
        )
    return epsilon


def pld_epsilon(leaves: tuple[tuple[Any, int], ...], delta: float, grid: float) -> float:
    """Epsilon by privacy loss distributions on a grid of this spacing; inf where they give out or would take long."""
    if any(widest(leaf) / grid > 2 * (_SAMPLED_POINTS if _is_sampled(leaf) else _GRID_POINTS) for leaf, _ in leaves):
        return math.inf
    return _compose(_Losses(grid), leaves, delta)


class _Losses:
    """The interface of dp-accounting's `PLDAccountant`, with composition whose work is bounded."""

    def __init__(self, grid: float) -> None:
        self._grid = grid
        self._whole: Any = None

    def compose(self, leaf: Any, count: int) -> None:
        losses = self._losses(leaf, count)
        self._whole = losses if self._whole is None else self._whole.compose(losses)

    def get_epsilon(self, delta: float) -> float:
        return float(self._whole.get_epsilon_for_delta(delta))

    def _losses(self, leaf: Any, count: int) -> Any:
        dp = dp_accounting()
        known, points = dp.pld.privacy_loss_distribution, widest(leaf) / self._grid
        if _is_sampled(leaf):
            one = gaussian_losses(leaf.event.noise_multiplier, leaf.sampling_probability, self._grid)
            return composed(one, count, points)
        if _is_laplace(leaf):
            one = known.from_laplace_mechanism(leaf.noise_multiplier, value_discretization_interval=self._grid)
            return composed(one, count, points)
        together = leaf.noise_multiplier / math.sqrt(count)
        return known.from_gaussian_mechanism(together, value_discretization_interval=self._grid)


def rdp_epsilon(leaves: tuple[tuple[Any, int], ...], delta: float, *, sampled: bool) -> float:
    """RDP, inf where it gives out; for sampled Gaussians only orders from 2, as its series may diverge below."""
    rdp = dp_accounting().rdp
    accountant = rdp.RdpAccountant(orders=_SAMPLED_ORDERS) if sampled else rdp.RdpAccountant()
    # It logs every order whose series does not converge, and leaves that order out, which only loosens the bound.
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        return _compose(accountant, leaves, delta)
    finally:
        log.setLevel(level)


def _grid(leaves: tuple[tuple[Any, int], ...], size: float) -> float:
    """Spacing of the privacy loss grid.

    Rounding always errs towards too large an epsilon, so this decides about cost and tightness only: 1e-4 or
    1 / 200,000 of the total, but fine against the loss of a single release as far as the memory allows, and never
    coarser than 0.05. The loss of a Gaussian release without sampling is Gaussian, and a grid of step h adds at most
    h^2 / 4 to its variance, which is all that it costs: there the step is coarser, 1 / 1000 of the releases' root mean
    square loss.
    """
    noise = [getattr(leaf, "event", leaf).noise_multiplier for leaf, _ in leaves]
    single: float = min(
        getattr(leaf, "sampling_probability", 1.0) / z for (leaf, _), z in zip(leaves, noise, strict=True)
    )
    finest = max(widest(leaf) / (_SAMPLED_POINTS if _is_sampled(leaf) else _GRID_POINTS) for leaf, _ in leaves)
    step = max(min(max(1e-4, size / 2e5), max(single / 50.0, size / 2e6)), finest)
    releases = sum(n for _, n in leaves)
    if _unsampled_gaussians(leaves):
        together = _distance([(leaf.noise_multiplier, n) for leaf, n in leaves])
        step = max(step, together / math.sqrt(releases) / _STEPS_PER_LOSS)
    elif releases > MANY_RELEASES:
        together = math.hypot(*(math.sqrt(n) * _typical(leaf) for leaf, n in leaves))
    if releases > MANY_RELEASES:
        step = max(step, together / _STEPS_PER_RUN)
    return float(min(step, 0.05))


def widest(leaf: Any) -> float:
    """How far from 0 the loss of one release may be: of a Gaussian one, N(1 / (2 z^2), 1 / z^2), six deviations.

    Of a sampled one it grows like e^loss while the rate is tiny, so there all ten that dp-accounting keeps count.
    """
    noise: float = getattr(leaf, "event", leaf).noise_multiplier
    if _is_laplace(leaf):
        return 1.0 / noise
    if not _is_sampled(leaf):
        return (0.5 / noise + 6.0) / noise
    whole = (0.5 / noise + 10.0) / noise
    # log(1 - q + q e^whole), which e^whole does not overflow.
    return float(np.logaddexp(math.log1p(-leaf.sampling_probability), math.log(leaf.sampling_probability) + whole))


def _typical(leaf: Any) -> float:
    """About the root mean square loss of one release."""
    noise: float = getattr(leaf, "event", leaf).noise_multiplier
    rate: float = getattr(leaf, "sampling_probability", 1.0)
    return min(rate * math.sqrt(math.expm1(min(noise**-2, 700.0))), 1.0 / noise)


def _prv_points(leaves: tuple[tuple[Any, int], ...], size: float, delta: float) -> float:
    """About how many grid points Opacus PRV would need."""
    rounds = sum(count for _, count in leaves)
    return 4.0 * size * math.sqrt(rounds * math.log(12_000.0 / delta) / 2.0) / _PRV_ERROR


def _prv(leaves: tuple[tuple[Any, int], ...], size: float, delta: float) -> float:
    """Upper bound of Opacus' PRV accountant, inf where it gives out or its grid would exhaust memory.

    Imported at first use: Opacus loads torch, seconds together.
    """
    if _prv_points(leaves, size, delta) > _PRV_POINTS:
        return math.inf
    dp = dp_accounting()
    accountant = import_module("opacus.accountants").PRVAccountant()
    # PRV takes triples (noise multiplier, sampling rate, steps); rate 1 is no sampling.
    accountant.history = [
        (leaf.event.noise_multiplier, leaf.sampling_probability, count)
        if isinstance(leaf, dp.PoissonSampledDpEvent)
        else (leaf.noise_multiplier, 1.0, count)
        for leaf, count in leaves
    ]
    # Its densities take log(0) at the ends of their support, and the rough bound from which it sizes its grid
    # warns about its own looseness; neither touches the result.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta, eps_error=_PRV_ERROR))
        except _GAVE_OUT:
            return math.inf
    return math.inf if math.isnan(epsilon) else max(epsilon, 0.0)
