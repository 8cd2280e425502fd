"""`privfed.forecast`: what a private recommender will be worth, and cost, before anybody takes part."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from privfed.api.budgeting import budget
from privfed.api.data import Data, load
from privfed.api.errors import UseError
from privfed.api.pilot import Pilot, measured_on
from privfed.contracts import NoisySums, RunningTotals
from privfed.methods.private_gram import PrivateGramConfig, RefreshedGramConfig
from privfed.methods.private_gram.config import PrivateGramConstants
from privfed.methods.private_gram.costs import RefreshCosts, expected_costs
from privfed.methods.private_gram.expected import (
    SAMPLE_LIMITS,
    SAMPLE_SPREAD,
    TWENTIETH,
    ExpectedRatio,
    beyond_sample,
    expected_ratio,
    first_with_head,
)
from privfed.privacy.configuring import configure
from privfed.privacy.tiers import BudgetTiers, read_tiers

_WORTH, _HARDLY = 1.1, 1.02
"""Quality over popularity from which a model is worth the trouble, and below which it is hardly better."""


@dataclass(frozen=True, slots=True)
class TierOutlook:
    """People who choose the same budget.

    Attributes:
        name, epsilon, share: as chosen.
        mu: what an upload of theirs is worth in the last release.
        alone: NDCG over that of popularity, for everybody, if everybody chose this.
    """

    name: str
    epsilon: float
    share: float
    mu: float
    alone: ExpectedRatio


@dataclass(frozen=True, slots=True)
class Outlook:
    """What `private-gram` is expected to be worth, what it costs, and whether to go on.

    Attributes:
        epsilon: of one person over all refreshes; the largest where people choose.
        delta: probability with which it may fail.
        mu: of the last release, for a person at that epsilon.
        ratio: NDCG over that of popularity, after the last refresh, for people of every tier.
        ndcg: the same in NDCG, low, expected and high; None where popularity's is not known.
        tiers: budgets that people choose; empty where there is one for everybody.
        head: most popular items that are related to one another.
        refreshes: releases within that epsilon.
        publish_from: first refresh whose lists are likely no noise, if people join evenly over the year; None: none.
        costs: of a refresh.
        risks: what could make the federation refuse or the forecast fail.
        verdict: go, perhaps or no go, and why, in a sentence.
    """

    epsilon: float
    delta: float
    mu: float
    ratio: ExpectedRatio
    ndcg: tuple[float, float, float] | None
    tiers: tuple[TierOutlook, ...]
    head: int
    refreshes: int
    publish_from: int | None
    costs: RefreshCosts
    risks: tuple[str, ...]
    verdict: str

    def __str__(self) -> str:
        ratio, costs = self.ratio, self.costs
        after = f" after refresh {self.refreshes}" if self.refreshes > 1 else ""
        lines = [
            self.verdict,
            f"Quality: {ratio.expected:.2f} times that of popularity{after} (likely {ratio.low:.2f} to "
            f"{ratio.high:.2f}).",
        ]
        if self.ndcg is not None:
            low, expected, high = self.ndcg
            lines.append(f"NDCG@20: {expected:.3f} ({low:.3f} to {high:.3f}).")
        lines += [
            f"Tier {tier.name}, {tier.share:.0%} of the people: epsilon {tier.epsilon:g}; {tier.alone.expected:.2f} "
            "times popularity if everybody chose it."
            for tier in self.tiers
        ]
        most = "at most " if self.tiers else ""
        lines.append(
            f"Privacy: epsilon {most}{self.epsilon:g} at delta {self.delta:.1e} for everything a person contributes; "
            f"mu {self.mu:.3f}."
        )
        if self.refreshes > 1 and self.publish_from is not None:
            lines.append(
                f"Do not publish before about refresh {self.publish_from} of {self.refreshes} if people join evenly: "
                "until some items are on its head, lists are noise."
            )
        lines += [
            f"A refresh: a device sends {costs.exchanges} messages, {costs.up_bytes / 1e3:,.0f} kB together, receives "
            f"{costs.down_bytes / 1e3:,.0f} kB and computes for about {costs.device_cpu_ms:.1f} ms.",
            f"The server computes for about {costs.server_cpu_s:.2g} s; the model relates {self.head:,} items.",
        ]
        return "\n".join([*lines, *(f"Risk: {risk}." for risk in self.risks)])


def forecast(
    *,
    people: int,
    items: int,
    history: float,
    epsilon: float | None = None,
    tiers: str | Mapping[str, Any] | None = None,
    refreshes: int = 1,
    dropout: float = 0.0,
    trust: str = "central",
    described: bool = False,
    sample: Data | str | os.PathLike[str] | pd.DataFrame | None = None,
    popularity: float | None = None,
    delta: float | None = None,
) -> Outlook:
    """What `private-gram` is expected to be worth over popularity, from numbers that are public.

    Args:
        people: who would take part.
        items: of the catalogue.
        history: mean number of items that a person has.
        epsilon: total of a person over all refreshes.
        tiers: in its place, budgets that people choose for themselves, as `privfed.run` takes them.
        refreshes: how often the model is published anew within that epsilon, as running totals (`private-gram-year`).
        dropout: share of the devices that do not answer.
        trust: who adds the noise: "central", or "distributed", in shares sized for half of the people.
        described: whether genres or years of items are known.
        sample: open histories of the same kind (whatever `privfed.load` takes): of donors, of a pilot, or a public
            data set. They are trained on with as much noise as gives them the signal of all `people`.
        popularity: NDCG@20 of recommending what is popular, where it is known, for a forecast in NDCG.
        delta: probability with which epsilon may fail; by default people^-1.1.

    Raises:
        ValueError: a number out of range, or both or neither of epsilon and tiers.

    Example:
        >>> import privfed
        >>> print(privfed.forecast(people=6040, items=3700, history=130, epsilon=1, described=True).verdict[:3])
        Go:
    """
    _refuse(
        people=people, items=items, history=history, refreshes=refreshes, dropout=dropout, popularity=popularity,
        trust=trust,
    )  # fmt: skip
    levels = _levels(epsilon, tiers)
    delta = people**-1.1 if delta is None else delta
    factor = _noise(trust, dropout, refreshes)
    mus = [
        budget(users=people, epsilon=own, delta=delta, trust=trust).mu / factor if own or tiers is None else 0.0
        for _, own, _ in levels
    ]
    there, most = people * (1 - dropout), max(mus)
    # Uploads are weighted by mu, under the noise of the largest.
    weighted = there * math.fsum(mu / most * share for mu, (_, _, share) in zip(mus, levels, strict=True))
    constants = PrivateGramConstants.from_config(
        PrivateGramConfig() if refreshes == 1 else RefreshedGramConfig(), NoisySums(weighted, 1.0, 1 / most), items,
        content=described,
    )  # fmt: skip
    opened = load(sample) if sample is not None and not isinstance(sample, Data) else sample
    expect = partial(_expected, opened, items, history, there)
    ratio, pilot = expect(weighted * most)
    popularity = popularity or (None if pilot is None else pilot.popularity)
    twentieth = TWENTIETH * history**0.5 if pilot is None else pilot.twentieth
    publish_from = first_with_head(refreshes, weighted * most, constants.share, twentieth)
    within = 0.0 if pilot is None else weighted * most / pilot.people
    return Outlook(
        epsilon=max(own for _, own, _ in levels),
        delta=delta,
        mu=most,
        ratio=ratio,
        ndcg=None
        if popularity is None
        else (popularity * ratio.low, popularity * ratio.expected, popularity * ratio.high),
        tiers=()
        if tiers is None
        else tuple(TierOutlook(*level, mu, expect(there * mu)[0]) for level, mu in zip(levels, mus, strict=True)),
        head=constants.head,
        refreshes=refreshes,
        publish_from=publish_from,
        costs=expected_costs(constants, there, items, shares=trust == "distributed"),
        risks=tuple(_risks(people, dropout, trust, ratio, within, publish_from)),
        verdict=_verdict(ratio, " or ".join(f"{own:g}" for _, own, _ in levels)),
    )


def _levels(epsilon: float | None, tiers: str | Mapping[str, Any] | None) -> list[tuple[str, float, float]]:
    """Name, epsilon and share of every tier, of which there is one where all have the same budget."""
    if (epsilon is None) == (tiers is None):
        raise UseError("a forecast is of one epsilon for everybody or of tiers that people choose: give one of them")
    if tiers is None:
        return [("everybody", float(epsilon or 0.0), 1.0)]
    chosen = configure(BudgetTiers, read_tiers(tiers))
    return [(name, tier.epsilon, tier.share) for name, tier in chosen.levels]


def _noise(trust: str, dropout: float, refreshes: int) -> float:
    """Noise on the last sum over what epsilon asks for on a single one."""
    # Shares are sized for half of the people, so everybody's together are more than what is promised.
    shares = max(1.0, (2 * (1 - dropout)) ** 0.5) if trust == "distributed" else 1.0
    return shares * RunningTotals(refreshes).factor


def _expected(
    sample: Data | None, items: int, history: float, people: float, reach: float
) -> tuple[ExpectedRatio, Pilot | None]:
    """What so much n mu is worth, by the sample where there is one."""
    if reach == 0:
        return ExpectedRatio(1.0, 1.0, 1.0), None
    if sample is None:
        return expected_ratio(reach, items, history), None
    pilot = measured_on(sample, reach)
    ratio = pilot.ndcg / pilot.popularity * beyond_sample(pilot.people, people, reach)
    return ExpectedRatio.around(ratio, SAMPLE_SPREAD), pilot


def _refuse(
    *,
    people: int,
    items: int,
    history: float,
    refreshes: int,
    dropout: float,
    popularity: float | None,
    trust: str,
) -> None:
    if people < 2 or items < 2:
        raise UseError(f"{people} people and {items} items make no recommender: give at least two of each")
    if not 0 < history <= items:
        raise UseError(f"history = {history:g} is not a mean number of items that people have of {items:,}")
    if refreshes < 1:
        raise UseError(f"refreshes = {refreshes} publishes nothing: give 1, or as many as a year has")
    if not 0 <= dropout < 1:
        raise UseError(f"dropout = {dropout:g} is not a share of devices that fail to answer: give 0 to below 1")
    if popularity is not None and not 0 < popularity < 1:
        raise UseError(f"popularity = {popularity:g} is not an NDCG: give a number between 0 and 1")
    if trust not in ("central", "distributed"):
        raise UseError(f"trust = {trust!r} is not known to private-gram's forecast: choose central or distributed")


def _risks(
    people: int, dropout: float, trust: str, ratio: ExpectedRatio, pilot_mu: float, publish_from: int | None
) -> list[str]:
    risks = []
    if publish_from is None:
        risks.append("too few items stand out of the noise at any refresh: lists may be worse than popularity all year")
    if pilot_mu > SAMPLE_LIMITS:
        risks.append("the sample is small for so little noise: what more people add is taken from other catalogues")
    if trust == "distributed" and dropout > 0.5:
        risks.append("noise comes in shares that are sized for half of the people, and more are lost: rounds will be "
                     "refused")  # fmt: skip
    elif dropout > 0.3:
        risks.append("with so many devices silent, those that answer may differ from those that do not")
    if people < 500:
        risks.append("so few people leave hardly any signal above the noise; single noise draws decide")
    if ratio.low <= 1.0:
        risks.append("on some catalogues such a model is no better than popularity; it falls back to popularity there")
    return risks


def _verdict(ratio: ExpectedRatio, epsilon: str) -> str:
    if ratio.low >= _WORTH:
        return f"Go: at epsilon {epsilon} it is expected to beat popularity clearly."
    if ratio.expected >= _WORTH:
        return f"Perhaps: at epsilon {epsilon} it is expected to beat popularity, and on some catalogues it does not."
    if ratio.expected >= _HARDLY:
        return f"No go as it is: at epsilon {epsilon} little over popularity is expected; gather more people."
    return f"No go: at epsilon {epsilon} the noise hides what histories say beyond popularity; publish popularity."
