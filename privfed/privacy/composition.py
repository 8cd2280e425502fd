"""How recorded queries compose: from events per cohort to one `dp_accounting.DpEvent` tree.

The rules, each of which was once a silent wrong epsilon:

* The key is the cohort. Queries of one cohort see the same participants, so they compose INSIDE that cohort's
  sampling event: 32 Gaussian queries of sigma 2 under one Poisson cohort of rate 0.1 are one sampled Gaussian of
  sigma 2 / sqrt(32), not 32 independently sampled ones (10 rounds at delta 1e-5: epsilon 25.36, not 4.33).
* Only Gaussians fuse. Any other mix in one sampled cohort is composed unsampled, as if everybody took part.
* Where participants are visible (local trust, fixed sizes, epochs) there is no sampling event: each release
  counts in full for each user who took part, and the worst user is reported.
* Local steps that sample a user's interactions carry that sampling inside their event: that inclusion never leaves
  the device, so they amplify even where participation is visible.
* Releases under one account count once for each user, whichever of them it took part in: devices see to that.
* An exact or unbounded release makes the whole tree non-private. It is never a no-op.

The order of releases does not change the composition, so equal ones are counted and 10,000 rounds stay fast.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from privfed.privacy.accounting import dp_accounting, shares_event
from privfed.privacy.events import (
    Bounded,
    Empty,
    Event,
    Exact,
    Gaussian,
    Laplace,
    SampledGaussian,
    SharedAccount,
    Shares,
    Unbounded,
    fuse,
    reason_of,
)
from privfed.privacy.sampling import Poisson, Sampling, Trust

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True, slots=True)
class Releases:
    """`count` releases of one mechanism; `rate` is the Poisson rate they are amplified by, None for none."""

    event: Bounded
    count: int
    rate: float | None = None

    def __str__(self) -> str:
        if isinstance(self.event, SharedAccount):
            whole = Releases(self.event.whole, self.count)
            return f"{self.event.queries} releases of {self.event.name} under one account, together {whole}"
        fields = self.event.model_dump(exclude={"kind"})
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {value:.6g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
            for name, value in fields.items()
        )
        amplified = "" if self.rate is None else f"; amplified by Poisson sampling at rate {self.rate:g}"
        return f"{self.event.kind.replace('_', ' ')}: {numbers}{amplified}"


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything a run released about its worst-off user.

    Attributes:
        releases: bounded mechanisms with their counts.
        reasons: why epsilon is infinite; empty where it is finite.
        uploads: releases that the worst-off user took part in (all of them where participation is hidden).
        rounds: rounds that the worst-off user took part in.
        unamplified_cohorts: number of cohorts that would have been amplified had they held Gaussians only.
    """

    releases: tuple[Releases, ...] = ()
    reasons: tuple[str, ...] = ()
    uploads: int = 0
    rounds: int = 0
    unamplified_cohorts: int = 0

    def event(self) -> "DpEvent":
        """The `DpEvent` tree of this composition."""
        dp = dp_accounting()
        events = [_event(release) for release in self.releases]
        if self.reasons:
            events.append(dp.NonPrivateDpEvent())
        if not events:
            return dp.NoOpDpEvent()
        return events[0] if len(events) == 1 else dp.ComposedDpEvent(tuple(events))


@dataclass
class ParticipationCounts:
    """Counts events per user and per cohort as queries are recorded.

    Args:
        population: number of users.
    """

    population: int
    uploads: dict[Bounded, Int64[np.ndarray, " population"]] = field(default_factory=dict)
    cohorts: dict[int, list[Bounded]] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.participations: Int64[np.ndarray, " population"] = np.zeros(self.population, dtype=np.int64)
        self.rounds: Int64[np.ndarray, " population"] = np.zeros(self.population, dtype=np.int64)
        self._cohort_id: int | None = None
        self._seen = np.zeros(self.population, dtype=np.bool_)

    def add(self, cohort_id: int, event: Event, members: Int64[np.ndarray, " members"] | None) -> None:
        """Count one query.

        Args:
            cohort_id: its cohort.
            event: what it did.
            members: users who took part; None where participation is hidden, which counts everybody.
        """
        if isinstance(event, Empty):
            return
        took_part = slice(None) if members is None else members
        self.participations[took_part] += 1
        if cohort_id != self._cohort_id:
            self._cohort_id, self._seen = cohort_id, np.zeros(self.population, dtype=np.bool_)
        self.rounds[took_part] += ~self._seen[took_part]
        self._seen[took_part] = True
        if isinstance(event, Exact | Unbounded):
            self.reasons.setdefault(reason_of(event))
            return
        self.cohorts.setdefault(cohort_id, []).append(event)
        counts = self.uploads.setdefault(event, np.zeros(self.population, dtype=np.int64))
        counts[took_part] = 1 if isinstance(event, SharedAccount) else counts[took_part] + 1

    def composition(self, trust: Trust, sampling: Sampling) -> Composition:
        """Compose what was counted.

        With several bounded events and visible participants, each counts for the user it hit most: no
        user's epsilon is understated, and with one mechanism (every plan of this package) it is exact.
        """
        releases: tuple[Releases, ...]
        if isinstance(sampling, Poisson) and sampling.amplifies(trust):
            releases, unamplified = _sampled(self.cohorts, sampling.rate)
        else:
            releases = tuple(Releases(m, int(counts.max())) for m, counts in self.uploads.items() if counts.any())
            unamplified = 0
        return Composition(
            releases=releases,
            reasons=tuple(self.reasons),
            uploads=int(self.participations.max()),
            rounds=int(self.rounds.max()),
            unamplified_cohorts=unamplified,
        )


def compose(
    queries: Iterable[tuple[int, Event, Int64[np.ndarray, " _"] | None]],
    *,
    trust: Trust,
    sampling: Sampling,
    population: int,
) -> Composition:
    """Compose queries given as (cohort, event, members); see `ParticipationCounts`."""
    counts = ParticipationCounts(population)
    for cohort_id, event, members in queries:
        counts.add(cohort_id, event, members)
    return counts.composition(trust, sampling)


def _sampled(cohorts: Mapping[int, list[Bounded]], rate: float) -> tuple[tuple[Releases, ...], int]:
    """Releases under secret Poisson participation, and the number of cohorts that lost the amplification."""
    kinds = Counter(tuple(sorted(held, key=repr)) for held in cohorts.values() if held)
    amplified: Counter[Gaussian] = Counter()
    plain: Counter[Bounded] = Counter()
    unamplified = 0
    for held, count in kinds.items():
        gaussians = [m for m in held if isinstance(m, Gaussian)]
        if len(gaussians) == len(held):
            amplified[fuse(gaussians)] += count
        else:
            unamplified += count
            for event in held:
                plain[event] += count
    return (
        *(Releases(event, count, rate) for event, count in amplified.items()),
        *(Releases(event, count) for event, count in plain.items()),
    ), unamplified


def _event(release: Releases) -> "DpEvent":
    dp, event = dp_accounting(), release.event
    match event:
        case Gaussian():
            event = dp.GaussianDpEvent(event.noise_multiplier)
        case Laplace():
            event = dp.LaplaceDpEvent(event.scale_over_sensitivity)
        case SampledGaussian():
            step = dp.PoissonSampledDpEvent(event.rate, dp.GaussianDpEvent(event.noise_multiplier))
            event = dp.SelfComposedDpEvent(step, event.steps)
        case Shares():
            event = shares_event()(event.event)
        case SharedAccount():
            event = _event(Releases(event.whole, 1))
    if release.rate is not None:
        event = dp.PoissonSampledDpEvent(release.rate, event)
    return dp.SelfComposedDpEvent(event, release.count)
