"""The pair of inputs that is told apart best, searched for on some draws and measured on others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from attacks.empirical import LowerBound, clopper_pearson_epsilon, gdp_epsilon
from privfed.audit.epsilon.probes.distinguisher import (
    BoundedStatistic,
    LinearStatistic,
    bounded,
    centred,
    expected,
    features,
    fitted,
    independent_draws,
    separation,
)
from privfed.audit.epsilon.probes.inputs import Candidate, candidates
from privfed.audit.epsilon.probes.routing import Route
from privfed.contracts import Schema

_ROWS, _COLUMNS = 4, 2
_FIRST, _SECOND, _KEPT = 400, 125, 8
"""Draws of the measurement for each upload of an input that is looked at once, and of one that is looked at twice; and
how many these are."""
_DEAR = 4
"""How many times fewer uploads there are where every client of a sum rounds and noises it."""
_NEAR = 1.0
"""Standard errors by which an input must be better than the usual worst case to take its place."""
_LAPLACE_CUT = 0.95
"""Where Laplace scores are cut: beyond the input itself both densities stand in the ratio e^epsilon."""
_ROUNDS_TOGETHER = 2


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """A bound from two worlds.

    Attributes:
        claimed_of: queries, one after another, that the claim beside it is about.
        bound: the measurement.
        deniable: what it would have been, had everything been told apart.
        worst: the input, in words.
    """

    claimed_queries: Sequence[Schema]
    bound: LowerBound
    deniable: float
    worst: str


@dataclass(frozen=True, slots=True, eq=False)
class _Worlds:
    """Features of every query with one input, and with its opposite or without it."""

    present: Sequence[Tensor]
    absent: Sequence[Tensor]

    def draws(self, *, together: bool, rounds: int) -> tuple[Tensor, Tensor]:
        """Both as independent draws; see `independent_draws`."""
        return (
            independent_draws(self.present, together=together, rounds=rounds),
            independent_draws(self.absent, together=together, rounds=rounds),
        )


class PairSearch:
    """Two worlds along one route.

    Args:
        route: of the uploads.
        draws: of each world on which one upload is measured.
        confidence: of the bounds.
    """

    def __init__(self, route: Route, draws: int, confidence: float) -> None:
        self.route, self.draws, self.confidence = route, draws, confidence
        self.schemas = route.schemas(_ROWS, _COLUMNS)
        self._dear = _DEAR if route.in_shares else 1
        self._laplace = route.plan.mechanism.noise_law == "laplace"
        self._first, self._second = (max(draws // of_one // self._dear, 2) for of_one in (_FIRST, _SECOND))

    def measured(self) -> list[MeasuredPair]:
        """Bounds for one upload, and for all uploads of a person in two rounds."""
        tried = candidates(self.route.plan, self.schemas)
        first = self._worlds(tried, self._first, 1)
        tried = [tried[0], *self._best(first[1:], tried[1:])[:_KEPT]]
        second = self._worlds(tried, self._second, 2)
        worst = self._worst(second, tried)
        queries = 1 if self.route.shared else len(self.schemas)
        of_one = min(self._dear, 2) * len(self.route.rounds) * queries
        (last,) = self._worlds([tried[worst]], -(-self.draws // of_one), 3)
        return [
            self._bound_of(tried[worst], second[worst], second, last, rounds=rounds) for rounds in (1, _ROUNDS_TOGETHER)
        ]

    # The search ------------------------------------------------------------------------------------------------------

    def _best(self, worlds: Sequence[_Worlds], tried: Sequence[Candidate]) -> list[Candidate]:
        """The inputs, those that are told apart best first."""
        apart = [self._apart(*pair)[0] for pair in zip(worlds, tried, strict=True)]
        return [tried[index] for index in np.argsort(apart, kind="stable")[::-1]]

    def _worst(self, worlds: Sequence[_Worlds], tried: Sequence[Candidate]) -> int:
        """Which input is told apart best: the first, unless another is clearly better."""
        apart = [self._apart(*pair) for pair in zip(worlds, tried, strict=True)]
        best = max(range(len(tried)), key=lambda index: apart[index][0])
        (farthest, error), (usual, usual_error) = apart[best], apart[0]
        return best if farthest - usual > _NEAR * math.hypot(error, usual_error) else 0

    def _apart(self, worlds: _Worlds, candidate: Candidate) -> tuple[float, float]:
        shared = self.route.shared
        return separation(*worlds.draws(together=shared, rounds=1), self._gap(candidate, together=shared, rounds=1))

    def _gap(self, candidate: Candidate, *, together: bool, rounds: int) -> Float64[Tensor, " features"]:
        """The difference of the means of both worlds that honest code gives."""
        queries = expected(candidate)
        one = torch.cat([*queries] * rounds) if together else queries[0]
        return one * (2 if self.route.each else 1)

    # Runs ------------------------------------------------------------------------------------------------------------

    def _worlds(self, tried: Sequence[Candidate], each: int, stage: int) -> list[_Worlds]:
        """Both worlds of these inputs, `each` uploads in either; in as many runs as it takes."""
        max_users = self.route.max_users
        times = -(-each // max_users)
        at_once, each = max(max_users // -(-each // times), 1), -(-each // times)
        worlds = []
        for first in range(0, len(tried), at_once):
            some = tried[first : first + at_once]
            runs = [self._run(some, each, (stage, first, time)) for time in range(times)]
            worlds += [_joined(of_one) for of_one in zip(*runs, strict=True)]
        return worlds

    def _run(self, tried: Sequence[Candidate], each: int, address: tuple[int, ...]) -> list[_Worlds]:
        """One run of the engine with these inputs, and their opposites or absences."""
        unit = torch.arange(len(tried) * 2 * each)
        which, absent = unit // (2 * each), unit // each % 2
        sign = 1 - absent * (2 if self.route.each else 1)
        inputs = [
            {
                name: torch.stack([one.patterns[query][name] * one.size for one in tried])[which] * sign.unsqueeze(1)
                for name in schema
            }
            for query, schema in enumerate(self.schemas)
        ]
        forms, rounds = torch.tensor([one.form for one in tried])[which], self.route.rounds
        released = self.route.released(self.schemas, inputs, forms, sign != 0, address, rounds)
        return [
            _Worlds(
                *(
                    features(released, ((which == number) & (absent == world)).nonzero().squeeze(1), one, rounds)
                    for world in (0, 1)
                )
            )
            for number, one in enumerate(tried)
        ]

    # The measurement -------------------------------------------------------------------------------------------------

    def _bound_of(
        self, worst: Candidate, search: _Worlds, every: Sequence[_Worlds], last: _Worlds, *, rounds: int
    ) -> MeasuredPair:
        """The bound of one statistic: weights and cut from the search, scores from draws of their own."""
        together = self.route.shared or rounds > 1
        noise = centred([world for one in every for world in one.draws(together=together, rounds=rounds)])
        gap = self._gap(worst, together=together, rounds=rounds)
        seen = search.draws(together=together, rounds=rounds)
        tried: list[BoundedStatistic | LinearStatistic] = [fitted(*seen, noise, gap)]
        tried += [bounded(*seen, noise, gap)] if self._laplace else []
        statistic = max(tried, key=lambda one: self._bound(*(one.scores(world).numpy() for world in seen)).epsilon)
        present, absent = (statistic.scores(w).numpy() for w in last.draws(together=together, rounds=rounds))
        perfect = self._bound(np.ones(len(present)), np.zeros(len(absent)))
        queries = list(self.schemas) * rounds if together else [self.schemas[0]]
        return MeasuredPair(
            queries, self._bound(present, absent), perfect.epsilon, f"{worst.name}, {worst.size:g} clip norms"
        )

    def _bound(self, present: Float64[np.ndarray, " present"], absent: Float64[np.ndarray, " absent"]) -> LowerBound:
        """By the estimator that fits the law of the noise."""
        plan = self.route.plan
        if self._laplace:
            return clopper_pearson_epsilon(
                present, absent, delta=plan.delta, threshold=_LAPLACE_CUT, confidence=self.confidence
            )
        return gdp_epsilon(present, absent, delta=plan.delta, threshold=0.5, confidence=self.confidence)


def _joined(runs: Sequence[_Worlds]) -> _Worlds:
    """The same input in several runs, which have the same rounds."""
    return _Worlds(
        [torch.cat(list(query), 1) for query in zip(*(run.present for run in runs), strict=True)],
        [torch.cat(list(query), 1) for query in zip(*(run.absent for run in runs), strict=True)],
    )
