"""Checks of the ledger: every release has an entry with its participants and its noise.

The witness saw every query twice, where the server received its release and where clients trained for it. None of that
went through the ledger. Numbers are worked out again from the plan, by formulas that share no code with the ledger's.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from privfed.audit.checks.least_epsilon import OneRelease, least_epsilon
from privfed.audit.report.records import Check
from privfed.contracts import Schema, account_of, refreshes_of, share_of
from privfed.engines.witness import Exchange
from privfed.experiment import Experiment, RunResult
from privfed.privacy import PrivacyPlan
from privfed.privacy.events import Exact, Gaussian, Laplace, SampledGaussian, SharedAccount, Shares, Unbounded
from privfed.privacy.ledger import Entry
from privfed.privacy.sampling import Poisson

_RELATIVE = 1e-6
_SLACK, _SLACK_OF_SHARES = 1e-3, 0.03
"""By which a claim may lie below what releases cost at least; integer noise is Gaussian nearly."""


def check_transcript(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Releases of the whole run against the entries of its ledger and the rules of its plan."""
    if result.witness is None or not result.witness.exchanges:
        return
    plan, population = experiment.config.privacy, experiment.n_users
    released = [exchange for exchange in result.witness.exchanges if exchange.answered]
    first = released[0].cohort.round if released else 0
    entries = [entry for entry in result.entries if entry.round >= first]
    faults = [
        *_uncovered(released, entries),
        *(fault for exchange in released for fault in _rules(plan, exchange, population)),
        *_claimed(plan, result, released),
    ]
    yield Check(
        name="transcript against ledger",
        passed=not faults,
        detail=faults[0] + (f" (and {len(faults) - 1} further findings)" if len(faults) > 1 else "")
        if faults
        else f"{len(released)} releases stand in the ledger with their participants, blocks and noise, none was "
        f"revealed with too few clients, and no denominator shows who took part",
    )


def _named(exchange: Exchange) -> str:
    return f"round {exchange.cohort.round + 1}, query {exchange.index + 1} ({exchange.step!r})"


def _uncovered(released: Sequence[Exchange], entries: Sequence[Entry]) -> Iterator[str]:
    """Releases without an entry, and entries that say something else than what happened."""
    by_address = {(entry.cohort_id, entry.step, entry.index): entry for entry in entries}
    missing = [e for e in released if (e.cohort.id, e.step, e.index) not in by_address]
    if missing:
        yield (
            f"{_named(missing[0])}: a release left that the ledger has no entry for "
            f"({len(missing)} of {len(released)} releases are not recorded)"
        )
    for exchange in released:
        entry = by_address.get((exchange.cohort.id, exchange.step, exchange.index))
        if entry is None:
            continue
        members = entry.members()
        took_part = sorted(exchange.members.tolist())
        if members is not None and members.tolist() != took_part:
            recorded = f"the ledger has {len(members)} others or fewer"
            yield f"{_named(exchange)}: {len(took_part)} clients took part and {recorded}"
        yield from _mechanism(exchange, entry)


def _mechanism(exchange: Exchange, entry: Entry) -> Iterator[str]:
    """An entry whose blocks are not those of the query."""
    integers = tuple(name for name, block in exchange.schema.items() if block.kind == "integer")
    if integers and isinstance(entry.event, Gaussian | Laplace | SampledGaussian | Shares):
        yield f"{_named(exchange)}: the blocks {', '.join(integers)} left exactly, and the ledger records noise on them"
    if isinstance(entry.event, Exact) and entry.event.blocks != integers:
        yield f"{_named(exchange)}: the ledger names other exact blocks than those that were sent"
    if not math.isclose(entry.share, share_of(exchange.schema), rel_tol=_RELATIVE):
        used = share_of(exchange.schema)
        yield f"{_named(exchange)}: the ledger records a share of {entry.share:g} of the clip norm, {used:g} was used"
    refreshes = refreshes_of(exchange.schema)
    recorded = entry.event.queries if isinstance(entry.event, SharedAccount) else 1
    if recorded != refreshes and _has_real(exchange.schema) and not isinstance(entry.event, Exact | Unbounded):
        yield f"{_named(exchange)}: {refreshes} releases share its account, and the ledger records {recorded}"
    coordinates = sum(block.size for block in exchange.schema.values() if block.kind == "real")
    if isinstance(entry.event, Shares) and entry.event.coordinates != (coordinates or 1):
        yield f"{_named(exchange)}: the ledger records {entry.event.coordinates} numbers, {coordinates} were sent"


def _rules(plan: PrivacyPlan, exchange: Exchange, population: int) -> Iterator[str]:
    """A release that the plan does not allow as it was."""
    mechanism, members = plan.mechanism, exchange.members
    if len(set(members.tolist())) != len(members) or (
        len(members) and not 0 <= int(members.min()) <= int(members.max()) < population
    ):
        yield f"{_named(exchange)}: a client was queried twice, or one that does not exist"
    min_clients = min_members(plan)
    if len(members) < min_clients:
        yield f"{_named(exchange)}: a round of {len(members)} clients was completed, and the plan needs {min_clients}"
    if mechanism.release == "total" and exchange.pseudonyms is not None:
        yield f"{_named(exchange)}: single uploads were released under a plan that shows only their sum"
    if exchange.pseudonyms is not None and sorted(exchange.pseudonyms) != sorted(members.tolist()):
        yield f"{_named(exchange)}: {len(exchange.pseudonyms)} uploads were released, {len(members)} clients trained"
    hidden = mechanism.unbounded_reason is None or plan.sampling.kind == "poisson"
    divides = any(block.divides for block in exchange.schema.values())
    expected = plan.counted(population)
    if exchange.denominator is not None and hidden and not divides and exchange.denominator != expected:
        yield (
            f"{_named(exchange)}: means divide by {exchange.denominator:g}, which shows how many took part, and not by "
            f"the {expected:g} that are expected"
        )


def min_members(plan: PrivacyPlan) -> int:
    """Clients without which nothing may be revealed under a plan."""
    mechanism, shares = plan.mechanism, plan.mechanism.noise_shares
    if shares is not None:
        return max(3, shares.min_honest + shares.colluding)
    if mechanism.secret_sharing is not None:
        return mechanism.secret_sharing.min_cohort
    return 0 if mechanism.masking is None else 3


def _claimed(plan: PrivacyPlan, result: RunResult, released: Sequence[Exchange]) -> Iterator[str]:
    """Noise that the ledger records, against that of the plan; and an epsilon that is too small for one release."""
    yield from _stated(plan, result)
    for entry in result.entries:
        recorded, planned = _multiplier(entry), planned_multiplier(plan, entry.share)
        if recorded is not None and planned is not None and recorded > planned * (1 + _RELATIVE):
            yield (
                f"round {entry.round + 1}: the ledger records noise of {recorded:.6g} sensitivities, and clip and "
                f"noise of the plan give {planned:.6g}"
            )
            break
    epsilon = result.guarantee.epsilon
    rounds = len({exchange.cohort.round for exchange in released})
    if (
        math.isfinite(epsilon)
        and released
        and plan.sampling.kind == "all"
        and result.guarantee.rounds_counted != rounds
    ):
        yield f"{rounds} rounds released something and the guarantee counts {result.guarantee.rounds_counted}"
    yield from _composed(plan, result, released)
    lowest = _at_least(plan, released)
    slack = _SLACK if plan.mechanism.noise_shares is None else _SLACK_OF_SHARES
    if epsilon < lowest * (1 - slack):
        yield f"epsilon = {epsilon:.4g} is claimed, and what was released costs at least {lowest:.4g}"
    yield from _claimed_of_tiers(plan, result, released)
    integers = {name for e in released for name, block in e.schema.items() if block.kind == "integer"}
    if math.isfinite(epsilon) and integers:
        yield f"epsilon = {epsilon:.4g} is claimed, and the blocks {', '.join(sorted(integers))} left exactly"


def _stated(plan: PrivacyPlan, result: RunResult) -> Iterator[str]:
    """A guarantee that speaks of other worlds, or asks for less trust, than whoever adds the noise gives."""
    mechanism, guarantee = plan.mechanism, result.guarantee
    if not math.isfinite(guarantee.epsilon) or mechanism.unbounded_reason is not None:
        return
    if mechanism.noisy_steps is not None:
        wanted = ("local", "interaction", "add_or_remove_one", "noise is added inside local training")
    elif mechanism.noise_shares is not None:
        wanted = ("distributed", "user", "zero_out_one", "noise is added in shares, under masks")
    elif mechanism.server_noise_multiplier is not None:
        wanted = ("central", "user", "add_or_remove_one", "noise is added by the server")
    else:
        wanted = ("local", "user", "replace_one", "noise is added to every upload, in which all may differ")
    stated = (guarantee.trust, guarantee.unit, guarantee.neighbours)
    if stated != wanted[:3]:
        yield f"the guarantee says {', '.join(stated)}, and {wanted[3]}, which gives {', '.join(wanted[:3])}"
    if guarantee.delta != plan.delta:
        yield f"the guarantee names delta = {guarantee.delta:g}, and the plan has {plan.delta:g}"


def _claimed_of_tiers(plan: PrivacyPlan, result: RunResult, released: Sequence[Exchange]) -> Iterator[str]:
    """A tier whose epsilon is above what its people chose, or too small for what was released about them."""
    if plan.tiers is None:
        return
    for claim in result.guarantee.tiers:
        least = _at_least(plan, released, plan.tiers.weight(claim.name))
        claimed = f"tier {claim.name}: epsilon = {claim.epsilon:.4g} is claimed, and"
        if claim.epsilon > claim.chosen * (1 + _RELATIVE):
            yield f"{claimed} {claim.chosen:.4g} was chosen"
        if claim.epsilon < least * (1 - (_SLACK if plan.mechanism.noise_shares is None else _SLACK_OF_SHARES)):
            yield f"{claimed} what was released costs at least {least:.4g}"


def _composed(plan: PrivacyPlan, result: RunResult, released: Sequence[Exchange]) -> Iterator[str]:
    """A composition that has fewer releases than there were, or amplifies them by another rate than the plan's."""
    releases = result.composition.releases
    if not math.isfinite(result.guarantee.epsilon) or not releases:
        return
    rates = {release.rate for release in releases} - {None}
    rate = plan.sampling.rate if isinstance(plan.sampling, Poisson) and plan.mechanism.trust == "central" else None
    if rates - {rate}:
        lowest = min(r for r in rates if r is not None)
        yield f"epsilon is amplified by sampling at rate {lowest:g}, the plan has {rate}"
    queries = _counted(released)
    amplified = {exchange.cohort.id for exchange in queries}
    wanted = len(amplified) if rates else len(queries)
    counted = sum(release.count for release in releases)
    if counted < wanted and (rates or plan.sampling.kind == "all"):
        yield f"epsilon is composed of {counted} releases, and {wanted} left"


def _multiplier(entry: Entry) -> float | None:
    """Noise over sensitivity that an entry records."""
    if isinstance(entry.event, Laplace):
        return entry.event.scale_over_sensitivity
    return entry.event.noise_multiplier if isinstance(entry.event, Gaussian | SampledGaussian) else None


def planned_multiplier(plan: PrivacyPlan, share: float = 1.0) -> float | None:
    """Noise over sensitivity of one query by what acts under the plan; None where it is not one number."""
    mechanism = plan.mechanism
    if mechanism.noisy_steps is not None:
        return mechanism.noisy_steps.noise_multiplier
    # Shares of integer noise are accounted with what rounding adds, which no single number says.
    if mechanism.noise_shares is not None or mechanism.clip is None:
        return None
    # Any upload in the place of any other moves by two clip norms, an upload that is there or not by one.
    distance = (2 if mechanism.neighbours == "replace_one" else 1) * math.sqrt(share)
    if mechanism.noise is not None:
        return mechanism.noise.scale / mechanism.clip.norm / distance
    if mechanism.server_noise_multiplier is None:
        return None
    adaptive = mechanism.adaptive_clip
    # A user moves the centred count of an adaptive clip by 1/2.
    count = 0.0 if adaptive is None else (2 * adaptive.count_noise) ** -2
    return 1 / math.sqrt(distance**2 * mechanism.server_noise_multiplier**-2 + count)


def _at_least(plan: PrivacyPlan, released: Sequence[Exchange], weight: float = 1.0) -> float:
    """An epsilon that the releases cost in any case; 0 where no formula is at hand.

    Gaussian releases of one user compose to one whose squared multiplier is the harmonic sum (Dong, Roth and Su 2022),
    and its epsilon is exact (Balle and Wang 2018). Others are composed by `least_epsilon`. Where participation is seen,
    the user who took part most often counts. Somebody whose clipped uploads are multiplied by a weight has that share
    of mu.
    """
    mechanism, queries = plan.mechanism, _counted(released)
    law = "gaussian" if mechanism.unit == "interaction" or mechanism.noise_shares is not None else mechanism.noise_law
    if not queries or not weight or law is None or mechanism.unbounded_reason is not None:
        return 0.0
    if isinstance(plan.sampling, Poisson) and plan.sampling.rate < 1 and mechanism.trust == "central":
        cohorts = defaultdict[int, list[float]](list)
        for exchange in queries:
            cohorts[exchange.cohort.id].append((_multiplier_of(plan, exchange) or math.inf) / weight)
        fused = [
            1 / math.sqrt(sum(m**-2 for m in multipliers)) for multipliers in cohorts.values() if min(multipliers) < 1e9
        ]
        return least_epsilon(Counter(OneRelease("gaussian", m, plan.sampling.rate) for m in fused), plan.delta)
    often = np.bincount(np.concatenate([exchange.members.numpy() for exchange in queries]))
    worst = int(often.argmax()) if len(often) else 0
    mine = [_multiplier_of(plan, exchange) for exchange in queries if bool((exchange.members == worst).any())]
    multipliers = [m / weight for m in mine if m is not None]
    if mechanism.unit == "interaction" and mechanism.noisy_steps is not None:
        how = mechanism.noisy_steps
        one = OneRelease("gaussian", how.noise_multiplier, how.rate)
        return least_epsilon(Counter({one: how.steps * len(mine)}), plan.delta)
    if law == "laplace":
        return least_epsilon(Counter(OneRelease("laplace", m) for m in multipliers), plan.delta)
    mu = math.sqrt(sum(m**-2 for m in multipliers))
    # Noise without a clip is no multiple of a sensitivity, so nothing is known of what it costs.
    return _gaussian_epsilon(mu, plan.delta) if mu else 0.0


def _multiplier_of(plan: PrivacyPlan, exchange: Exchange) -> float | None:
    """Noise over sensitivity of one query, also where shares of integer noise come close to Gaussian noise."""
    share = share_of(exchange.schema)
    shares, setting = plan.mechanism.noise_shares, plan.mechanism.noise_setting
    if shares is not None and setting is not None:
        # As it was set: what follows from it is what is checked.
        return float(getattr(plan.mechanism, setting)) / math.sqrt(share)
    return planned_multiplier(plan, share)


def _counted(released: Sequence[Exchange]) -> list[Exchange]:
    """Queries of real blocks that cost anything: of those that share an account, the first."""
    counted: dict[object, Exchange] = {}
    for place, exchange in enumerate(released):
        refreshes = refreshes_of(exchange.schema)
        key = place if refreshes == 1 else (account_of(exchange.schema), refreshes, share_of(exchange.schema))
        if _has_real(exchange.schema):
            counted.setdefault(key, exchange)
    return list(counted.values())


def _gaussian_epsilon(mu: float, delta: float) -> float:
    def excess(epsilon: float) -> float:
        second = norm.logcdf(-epsilon / mu - mu / 2) + epsilon
        return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(second) - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * mu / 2 + 12 * mu + 1))


def _has_real(schema: Schema) -> bool:
    return any(block.kind == "real" for block in schema.values())
