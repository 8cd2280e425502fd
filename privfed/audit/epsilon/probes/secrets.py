"""Secrets of random bits that uploads spell, read off one release, or off the difference of two.

Every user has a secret of its own and spells it, with signs that alternate, in every block of every query and round.
Where a block leaves without noise, its signs are the secret. Where two releases have their noise in common, the signs
of their difference are: two blocks of one upload, two queries, two rounds, or an upload and one of zeros.

Half of the users choose what is read, and how many wrong bits a right guess may have; the others are the measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from attacks.empirical import LowerBound, secrets_epsilon
from privfed.audit.epsilon.probes.engines import Released
from privfed.audit.epsilon.probes.inputs import SIZES
from privfed.audit.epsilon.probes.routing import Route
from privfed.audit.epsilon.probes.uploads import sign
from privfed.contracts import Schema

_ROWS, _COLUMNS = 32, 8
BITS = _ROWS * _COLUMNS
"""Bits of a secret, one for each coordinate of a block."""

_SPELLERS, _IN_NOISE, _IN_NOISE_AT_ONCE = 64, 24, 2048
"""Users with a secret; fewer where every user's noise lies on the slots of all, and fewer the more users there are."""
_QUANTILES = (0.5, 0.8, 0.95)
"""Of the wrong bits of a search, one of which becomes the number that a guess may have."""
_WORTH_ALLOWING = frozenset(range(3 * BITS // 8))
"""With more wrong bits a guess is little better than a blind one."""

Cell = tuple[int, int, str]
"""A round and a query, by their places, and a block."""


@dataclass(frozen=True, slots=True)
class SecretView:
    """What a secret is read off.

    Attributes:
        one: a release of a block.
        other: a second one that is subtracted; None where there is none.
        bystander: whether the same release of somebody who sends zeros is subtracted instead.
    """

    one: Cell
    other: Cell | None = None
    bystander: bool = False

    @property
    def releases(self) -> int:
        """How many releases of a person it takes."""
        return 1 if self.other is None or self.other[:2] == self.one[:2] else 2

    def describe(self, rounds: Sequence[int]) -> str:
        """Where a secret was found."""
        index, query, name = self.one
        where = f"block {name!r} of query {query + 1} in round {rounds[index] + 1}"
        if self.bystander:
            return f"{where} less the same of somebody else"
        if self.other is None:
            return where
        index, query, name = self.other
        return f"{where} less block {name!r} of query {query + 1} in round {rounds[index] + 1}"


@dataclass(frozen=True, slots=True)
class RecoveredSecrets:
    """A bound from secrets.

    Attributes:
        claimed_of: queries, one after another, that the claim beside it is about.
        bound: the measurement.
        deniable: what it would have been, had every guess been right.
        worst: what was read, in words.
    """

    claimed_queries: Sequence[Schema]
    bound: LowerBound
    deniable: float
    worst: str


def recovered(route: Route, confidence: float) -> RecoveredSecrets:
    """How much of secrets can be read off what is released along a route.

    Args:
        route: of the uploads.
        confidence: of the bound.
    """
    schemas, spellers, rounds = route.schemas(_ROWS, _COLUMNS), _SPELLERS, route.rounds
    if (noisy := _noisy_users(route)) is not None:
        spellers, rounds = noisy, tuple(dict.fromkeys([*rounds[:2], *rounds[-2:]]))
    inclusion = torch.from_numpy(np.random.default_rng([route.seed, BITS]).integers(0, 2, (spellers, BITS)) * 2.0 - 1)
    spells = torch.arange(2 * spellers) % 2 == 0
    spelt = torch.zeros(2 * spellers, BITS, dtype=torch.float64)
    spelt[spells] = inclusion * SIZES[0]
    inputs = [{name: spelt * _turn(block) for block, name in enumerate(schema)} for schema in schemas]
    released = route.released(schemas, inputs, torch.arange(2 * spellers) // 2 % 3, spells, (4,), rounds)
    return _search(_Secrets(released, inclusion, rounds), route, schemas, confidence)


def _noisy_users(route: Route) -> int | None:
    """Users with a secret where every user's noise lies on the slots of all; None where it does not."""
    shares = route.plan.mechanism.noise_shares
    if shares is not None:
        return max(min(_IN_NOISE, route.max_users, _IN_NOISE_AT_ONCE // shares.min_honest), 2)
    return None if route.each or route.plan.mechanism.noise is None else _IN_NOISE


def _turn(block: int) -> int:
    """The sign of a block within an upload."""
    return 1 - 2 * (block % 2)


class _Secrets:
    """What was released of secrets; spellers and bystanders take turns."""

    def __init__(self, released: Released, inclusion: Float64[Tensor, "spellers bits"], rounds: Sequence[int]) -> None:
        self._released, self._bits, self.rounds = released, inclusion, rounds
        self._signs: dict[Cell, int] = {
            (index, query, name): sign(t, query) * _turn(block)
            for index, t in enumerate(rounds)
            for query, blocks in enumerate(released)
            for block, name in enumerate(blocks)
        }

    def views(self) -> list[SecretView]:
        """Every release, every difference of two in which the secret stands with two signs, and every bystander."""
        cells = list(self._signs)
        views = [SecretView(cell) for cell in cells] + [SecretView(cell, bystander=True) for cell in cells]
        for index, one in enumerate(cells):
            views += [SecretView(one, other) for other in cells[index + 1 :] if self._signs[one] != self._signs[other]]
        return views

    def wrong(self, view: SecretView) -> Int64[np.ndarray, " spellers"]:
        """Wrong bits of every speller; a coordinate that says nothing counts as one."""
        values = self._cell(view.one)[0::2]
        if view.bystander:
            values = values - self._cell(view.one)[1::2]
        if view.other is not None:
            values = values - self._cell(view.other)[0::2]
        wrong: Int64[np.ndarray, " spellers"] = (values * self._bits * self._signs[view.one] <= 0).sum(1).numpy()
        return wrong

    def _cell(self, cell: Cell) -> Float64[Tensor, "units bits"]:
        index, query, name = cell
        return self._released[query][name][index]


def _search(secrets: _Secrets, route: Route, schemas: Sequence[Schema], confidence: float) -> RecoveredSecrets:
    """Choose on every second speller, measure on the others."""
    delta, readings = route.plan.delta, list[tuple[float, int, SecretView]]()
    for view in secrets.views():
        wrong = secrets.wrong(view)[0::2]
        for errors in {int(np.quantile(wrong, share, method="higher")) for share in _QUANTILES} & _WORTH_ALLOWING:
            # What two releases say stands beside twice the claim, and half as much of it is as bad.
            worth = _bound(wrong, errors, delta, confidence).epsilon / view.releases
            readings.append((worth, -errors, view))
    _, errors, view = max(readings, key=lambda one: one[:2], default=(0.0, -BITS // 8, secrets.views()[0]))
    errors = -errors
    wrong = secrets.wrong(view)[1::2]
    perfect = _bound(np.zeros_like(wrong), errors, delta, confidence)
    round_of_all = list(schemas) if route.shared else [schemas[view.one[1]]]
    return RecoveredSecrets(
        round_of_all * view.releases,
        _bound(wrong, errors, delta, confidence),
        perfect.epsilon,
        view.describe(secrets.rounds),
    )


def _bound(wrong: Int64[np.ndarray, " trials"], errors: int, delta: float, confidence: float) -> LowerBound:
    right = int((wrong <= errors).sum())
    return secrets_epsilon(right, len(wrong), bits=BITS, errors=errors, delta=delta, confidence=confidence)
