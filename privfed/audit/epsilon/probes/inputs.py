"""The pairs of inputs among which the audit of the mechanism looks for the worst, and the secrets that it sends.

An input is a pattern over the short blocks, of the norm that the claim allows, made `size` times as long for the clip
to bring in. Its opposite, or its absence, is the other input of the pair.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.contracts import Schema, share_of
from privfed.privacy import PrivacyPlan

SIZES = (1e3, 1.1, 1.0)
"""Lengths of an input, in clip norms: far outside the clip, a little, and at it."""

Pattern = Mapping[str, Float64[Tensor, " size"]]
"""Block -> weighted values, over the clip norm."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One input.

    Attributes:
        name: of its direction, in words.
        size: length before the clip, in clip norms.
        form: representation of its tables.
        patterns: of every query, within the clip.
    """

    name: str
    size: float
    form: int
    patterns: Sequence[Pattern]


def candidates(plan: PrivacyPlan, schemas: Sequence[Schema]) -> list[Candidate]:
    """Every direction at every size, each direction in every representation; the first is the usual worst case."""
    directions = [list(_directions(schema)) for schema in schemas]
    tried = []
    for number, (name, _) in enumerate(directions[0]):
        patterns = [
            _at_clip(plan, schema, of_query[number][1]) for schema, of_query in zip(schemas, directions, strict=True)
        ]
        tried += [Candidate(name, size, (number + index + 1) % 3, patterns) for index, size in enumerate(SIZES)]
    return tried


def _directions(schema: Schema) -> Iterator[tuple[str, Pattern]]:
    """Named directions over the blocks of a query; those of queries of one probe have the same names in order."""
    names = list(schema)
    rows = {name: _row(schema[name].size, schema[name].shape) for name in names}
    one = {name: _first(schema[name].size, 1) for name in names}
    whole = {name: torch.ones(schema[name].size, dtype=torch.float64) for name in names}
    zero = {name: torch.zeros(schema[name].size, dtype=torch.float64) for name in names}
    yield "one coordinate", zero | {names[0]: one[names[0]]}
    yield "one coordinate of the last block", zero | {names[-1]: one[names[-1]]}
    yield "one coordinate of a middle block", zero | {names[len(names) // 2]: one[names[len(names) // 2]]}
    yield "one row", zero | {names[0]: rows[names[0]]}
    yield "some rows", zero | {names[0]: _first(schema[names[0]].size, schema[names[0]].size // 2)}
    yield "one coordinate of every row", zero | {names[0]: _every(schema[names[0]].size, schema[names[0]].shape)}
    yield "one block", zero | {names[0]: whole[names[0]]}
    yield "one coordinate of every block", one
    yield "all rows of all blocks", whole
    yield "all blocks, unequal", {name: whole[name] * 0.3**index for index, name in enumerate(names)}


def _first(size: int, count: int) -> Float64[Tensor, " size"]:
    values = torch.zeros(size, dtype=torch.float64)
    values[: max(count, 1)] = 1
    return values


def _row(size: int, shape: tuple[int, ...]) -> Float64[Tensor, " size"]:
    return _first(size, size // shape[0])


def _every(size: int, shape: tuple[int, ...]) -> Float64[Tensor, " size"]:
    values = torch.zeros(size, dtype=torch.float64)
    values[:: size // shape[0]] = 1
    return values


def _at_clip(plan: PrivacyPlan, schema: Schema, pattern: Pattern) -> Pattern:
    """The pattern as long as the clip lets it be."""
    clip = plan.mechanism.clip
    if clip is None:
        return pattern
    share = math.sqrt(share_of(schema))
    if clip.per_block is not None:
        bounds = dict(zip(schema, clip.bounds(list(schema)), strict=True))
        return {
            name: values * (bounds[name] / clip.norm * share / max(float(values.norm()), 1e-300))
            for name, values in pattern.items()
        }
    length = sum(float(values.norm(clip.order)) ** clip.order for values in pattern.values()) ** (1 / clip.order)
    return {name: values * (share / length) for name, values in pattern.items()}
