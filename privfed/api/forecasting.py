"""`privfed.forecast`: what a private recommender will be worth, and cost, before anybody takes part."""

import os
from dataclasses import dataclass

import pandas as pd

from privfed.api.budgeting import budget
from privfed.api.data import Data
from privfed.api.errors import UseError
from privfed.api.pilot import measured_on
from privfed.contracts import NoisySums
from privfed.methods.private_gram.config import PrivateGramConfig, PrivateGramConstants
from privfed.methods.private_gram.expected import SAMPLE_SPREAD, ExpectedRatio, expected_ratio
from privfed.privacy.refreshes import year
from privfed.updates import packed_size

_WORTH, _HARDLY = 1.1, 1.02
"""Quality over popularity from which a model is worth the trouble, and below which it is hardly better."""
_SAMPLE_LIMITS = 4.0
"""mu of the noise on a sample from which on the sample itself limits what it shows."""
_NUMBER, _RING = 4, 8
"""Bytes of a number in the open and in a secure sum."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What `private-gram` is expected to be worth, what it costs, and whether to go on.

    Attributes:
        epsilon: of one person over all refreshes.
        delta: probability with which it may fail.
        mu: of the last release with what is left of those before it.
        ratio: NDCG over that of popularity.
        ndcg: the same in NDCG, low, expected and high; None where popularity's is not known.
        head: most popular items that are related to one another.
        up_bytes, down_bytes: of one device and refresh.
        risks: what could make the federation refuse or the forecast fail.
        verdict: go, perhaps or no go, and why, in a sentence.
    """

    epsilon: float
    delta: float
    mu: float
    ratio: ExpectedRatio
    ndcg: tuple[float, float, float] | None
    head: int
    up_bytes: int
    down_bytes: int
    risks: tuple[str, ...]
    verdict: str

    def __str__(self) -> str:
        ratio = self.ratio
        lines = [
            self.verdict,
            f"Quality: {ratio.expected:.2f} times that of popularity (likely {ratio.low:.2f} to {ratio.high:.2f}).",
        ]
        if self.ndcg is not None:
            low, expected, high = self.ndcg
            lines.append(f"NDCG@20: {expected:.3f} ({low:.3f} to {high:.3f}).")
        lines.append(
            f"Privacy: epsilon {self.epsilon:g} at delta {self.delta:.1e} for everything a person contributes; mu "
            f"{self.mu:.3f}."
        )
        lines.append(
            f"A device sends {self.up_bytes / 1e3:,.0f} kB and receives {self.down_bytes / 1e3:,.0f} kB a refresh; the "
            f"model relates {self.head:,} items."
        )
        return "\n".join([*lines, *(f"Risk: {risk}." for risk in self.risks)])


def forecast(
    *,
    people: int,
    items: int,
    history: float,
    epsilon: float,
    refreshes: int = 1,
    stays_true: float = 1.0,
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
        refreshes: how often the model is made anew within that epsilon; releases of before are pooled.
        stays_true: part of a release that still holds at the next one, from 0 to 1.
        dropout: share of the devices that do not answer.
        trust: who adds the noise: "central", or "distributed", in shares sized for half of the people.
        described: whether genres or years of items are known.
        sample: open histories of the same kind (whatever `privfed.load` takes): of donors, of a pilot, or a public
            data set. They are trained on with as much noise as gives them the signal of all `people`.
        popularity: NDCG@20 of recommending what is popular, where it is known, for a forecast in NDCG.
        delta: probability with which epsilon may fail; by default people^-1.1.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> import privfed
        >>> print(privfed.forecast(people=6040, items=3700, history=130, epsilon=1, described=True).verdict[:3])
        Go:
    """
    _refuse(people=people, items=items, history=history, dropout=dropout, popularity=popularity, trust=trust)
    needed = budget(users=people, epsilon=epsilon, rounds=refreshes, delta=delta, trust=trust)
    releases = year(epsilon, needed.delta, refreshes, stays_true)
    there = people * (1 - dropout)
    # Shares are sized for half of the people, so everybody's together are more than what is promised.
    noise = max(1.0, (2 * (1 - dropout)) ** 0.5) if trust == "distributed" else 1.0
    mu = releases[-1].pooled_mu / noise
    constants = PrivateGramConstants.from_config(
        PrivateGramConfig(), NoisySums(there, 1.0, 1 / mu), items, content=described
    )
    pilot = None
    if sample is None:
        ratio = expected_ratio(there, items, history, mu)
    else:
        pilot = measured_on(sample, there * mu)
        ratio, popularity = ExpectedRatio.around(pilot.ratio, SAMPLE_SPREAD), popularity or pilot.popularity
    size = items + packed_size(constants.head) + (constants.head if constants.again else 0)
    return Outlook(
        epsilon=epsilon,
        delta=needed.delta,
        mu=mu,
        ratio=ratio,
        ndcg=None
        if popularity is None
        else (popularity * ratio.low, popularity * ratio.expected, popularity * ratio.high),
        head=constants.head,
        up_bytes=size * (_RING if trust == "distributed" else _NUMBER),
        down_bytes=(constants.head**2 + 3 * constants.head + items) * _NUMBER,
        risks=tuple(_risks(people, dropout, trust, ratio, 0.0 if pilot is None else there * mu / pilot.people)),
        verdict=_verdict(ratio, epsilon),
    )


def _refuse(*, people: int, items: int, history: float, dropout: float, popularity: float | None, trust: str) -> None:
    if people < 2 or items < 2:
        raise UseError(f"{people} people and {items} items make no recommender: give at least two of each")
    if not 0 < history <= items:
        raise UseError(f"history = {history:g} is not a mean number of items that people have of {items:,}")
    if not 0 <= dropout < 1:
        raise UseError(f"dropout = {dropout:g} is not a share of devices that fail to answer: give 0 to below 1")
    if popularity is not None and not 0 < popularity < 1:
        raise UseError(f"popularity = {popularity:g} is not an NDCG: give a number between 0 and 1")
    if trust not in ("central", "distributed"):
        raise UseError(f"trust = {trust!r} is not known to private-gram's forecast: choose central or distributed")


def _risks(people: int, dropout: float, trust: str, ratio: ExpectedRatio, pilot_mu: float) -> list[str]:
    risks = []
    if pilot_mu > _SAMPLE_LIMITS:
        risks.append("the sample says less than so many people behind so little noise would: take the forecast as a "
                     "lower end, or give more histories")  # fmt: skip
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


def _verdict(ratio: ExpectedRatio, epsilon: float) -> str:
    if ratio.low >= _WORTH:
        return f"Go: at epsilon {epsilon:g} it is expected to beat popularity clearly."
    if ratio.expected >= _WORTH:
        return f"Perhaps: at epsilon {epsilon:g} it is expected to beat popularity, and on some catalogues it does not."
    if ratio.expected >= _HARDLY:
        return f"No go as it is: at epsilon {epsilon:g} little over popularity is expected; gather more people."
    return f"No go: at epsilon {epsilon:g} the noise hides what histories say beyond popularity; publish popularity."
