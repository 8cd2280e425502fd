"""Neighbouring inputs: what one unit may contain at worst, and the others that it is added to.

Inputs are an array, or a mapping of arrays, with one row per record. Rows belong to users: `records` consecutive rows
each, or as a column named "user" says. Numbers take directions (the first or last coordinate, all, few, alternating
signs) in sizes far beyond what a clip lets pass, in all columns or one alone, and the values no clip expects (NaN,
infinity, the largest and the smallest numbers). Whole numbers and flags take the values of the example, as nothing else
need be valid there.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from attacks.mechanism.claim import Claim

Columns: TypeAlias = dict[str, np.ndarray]
Inputs: TypeAlias = Any
"""An array or a tensor, or a mapping of them."""

Kind: TypeAlias = Literal["finite", "extreme", "absent"]

USER = "user"
"""Name of the column that holds the user of each row."""

SIZES = (1.0, 1e3, 1e6)
"""Lengths of a record, in units of the example's."""

_PLAIN = ""
"""Name of the only column of an input that is no mapping."""

_MAX_EXAMPLES = 8
"""Distinct example rows that become candidates."""


@dataclass(frozen=True, eq=False)
class Example:
    """Rows that are valid inputs, and the form in which the mechanism takes them.

    Attributes:
        columns: Arrays with one row per record.
        users: User of each row.
        plain: Whether the mechanism takes an array instead of a mapping.
        torch: Whether it takes tensors.
        records: Rows of the user that is added.
    """

    columns: Columns
    users: np.ndarray
    plain: bool
    torch: bool
    records: int

    def pack(self, columns: Columns) -> Inputs:
        """A copy of the columns in the form that the mechanism takes."""
        arrays = {name: _to_tensor(column.copy()) if self.torch else column.copy() for name, column in columns.items()}
        return arrays[_PLAIN] if self.plain else arrays

    def whole_columns(self) -> list[str]:
        """Columns of whole numbers and flags, of which only the example's values are tried."""
        whole = [name for name, column in self.columns.items() if name != USER and not _is_float(column)]
        return [name or "inputs" for name in whole]

    def take(self, rows: np.ndarray) -> Columns:
        """Some of the rows."""
        return {name: column[rows] for name, column in self.columns.items()}


@dataclass(frozen=True, eq=False)
class NeighbourPair:
    """Two inputs that differ in one unit.

    Attributes:
        name: What differs, in words.
        kind: Whether the unit's numbers are finite, are such as no clip expects, or belong to somebody absent.
        without: The input without the unit, or with another one in its place.
        member: The input with it.
    """

    name: str
    kind: Kind
    without: Columns = field(repr=False)
    member: Columns = field(repr=False)


def read_example(inputs: Inputs | None, shape: tuple[int, ...], users: int, records: int, seed: int) -> Example:
    """Example rows from what the caller passed, or `users` times `records` small random rows.

    Raises:
        ValueError: If the rows of columns differ in number, or there is none.
    """
    if inputs is None:
        rows = np.random.default_rng(seed).normal(size=(users * records, *shape)) / math.sqrt(max(math.prod(shape), 1))
        return Example({_PLAIN: rows}, np.arange(users).repeat(records), plain=True, torch=False, records=records)
    plain = not isinstance(inputs, Mapping)
    given = {_PLAIN: inputs} if plain else dict(inputs)
    columns = {str(name): _to_array(column) for name, column in given.items()}
    lengths = {len(column) for column in columns.values() if column.ndim}
    if len(lengths) != 1 or not all(column.ndim for column in columns.values()):
        raise ValueError("The columns of the example differ in length; pass arrays with one row per record.")
    (n,) = lengths
    owners = columns[USER] if USER in columns else np.arange(n) // records
    # Where the mechanism sees whose a row is, it has to bound how many rows of one user it takes.
    most = 4 * int(np.unique(owners, return_counts=True)[1].max(initial=1)) if USER in columns else records
    torch = any(hasattr(column, "detach") for column in given.values())
    return Example(columns, owners, plain=plain, torch=torch, records=max(most, records))


def neighbour_pairs(
    example: Example, claim: Claim, *, min_users: int = 0, extremes: bool = True
) -> list[NeighbourPair]:
    """Every candidate for the worst pair of neighbouring inputs.

    Args:
        example: Valid rows.
        claim: Says how neighbours differ, and in what.
        min_users: Least number of other users.
        extremes: Whether NaN, infinity, and the largest and smallest numbers are inputs too.
    """
    records = example.records if claim.unit == "user" else 1
    pairs = []
    for name, kind, rows, opposite in _targets(example, records, extremes=extremes):
        for others, background in _backgrounds(example, opposite, min_users):
            # Whatever is odd about one row shows in any company; only sizes need the worst company.
            if kind != "finite" and others != "others":
                continue
            alternative = _alternative(claim, rows, opposite)
            pairs.append(
                NeighbourPair(
                    f"{name}; {others}", kind, _join(example, background, alternative), _join(example, background, rows)
                )
            )
    return pairs


def _alternative(claim: Claim, rows: Columns, opposite: Columns) -> Columns | None:
    """What stands in the place of the unit in the neighbouring input; None if nothing does."""
    if claim.neighbours == "add_or_remove":
        return None
    if claim.neighbours == "replace":
        return opposite
    return {name: np.zeros_like(column) if _is_float(column) else column for name, column in rows.items()}


def _targets(example: Example, records: int, *, extremes: bool) -> Iterator[tuple[str, Kind, Columns, Columns]]:
    """Candidates for the unit: name, kind, rows, and the rows that are furthest from them."""
    first = example.take(np.zeros(records, np.int64))
    floats = [name for name, column in example.columns.items() if _is_float(column) and name != USER]
    yield from _example_targets(example, records)
    if not floats:
        return
    unit = _typical_size(example.columns[floats[0]])
    for direction in _direction_names(example.columns, floats):
        for size in SIZES:
            rows, opposite = (_filled(first, floats, direction, sign * size * unit) for sign in (1, -1))
            yield f"{direction}, size {size * unit:.3g}", "finite", rows, opposite
    for name in floats if len(floats) > 1 else ():
        zeros = {key: np.zeros_like(first[key]) for key in floats}
        for size in SIZES:
            rows, opposite = (
                first | zeros | {name: _filled(first, [name], "all coordinates", sign * size * unit)[name]}
                for sign in (1, -1)
            )
            yield f"{name} alone, size {size * unit:.3g}", "finite", rows, opposite
    large = _filled(first, floats, "all coordinates", SIZES[2] * unit)
    for name, column in example.columns.items():
        if column.dtype == bool:
            absent = large | {name: np.zeros_like(first[name])}
            nothing = {key: np.zeros_like(value) if key in floats else value for key, value in absent.items()}
            yield f"{name} false, size {SIZES[2] * unit:.3g}", "absent", absent, nothing
    if extremes:
        for label, value in _extreme_values(example.columns[floats[0]].dtype):
            for direction in ("one coordinate", "all coordinates"):
                rows = _set(first, floats, value, everywhere=direction == "all coordinates")
                zeros = {key: np.zeros_like(column) if key in floats else column for key, column in first.items()}
                yield f"{label} in {direction}", "extreme", rows, zeros


def _example_targets(example: Example, records: int) -> Iterator[tuple[str, Kind, Columns, Columns]]:
    """Distinct rows of the example, each against another one."""
    n = len(example.users)
    signatures = [
        tuple(column[row].tobytes() for key, column in example.columns.items() if key != USER) for row in range(n)
    ]
    distinct = list(dict(zip(reversed(signatures), reversed(range(n)), strict=True)).values())[::-1][:_MAX_EXAMPLES]
    for position, row in enumerate(distinct):
        other = distinct[position - 1]
        yield (
            f"row {row} of the example",
            "finite",
            example.take(np.full(records, row)),
            example.take(np.full(records, other)),
        )


def _backgrounds(
    example: Example, opposite: Columns, min_users: int
) -> Iterator[tuple[str, list[tuple[Columns, int]]]]:
    """Companies of the unit: nobody, one that pulls the other way, and the example's users.

    Each is a list of rows with a user; the example's rows keep their users.
    """
    users = int(example.users.max(initial=-1)) + 1
    everybody = [(example.columns, -1)] if users else []
    if min_users == 0:
        yield "nobody else", []
    if min_users <= 1:
        yield "one opposite user", [(opposite, users + 1)]
    crowd = max(min_users, 3)
    yield f"{crowd} opposite users", [(opposite, users + 1 + index) for index in range(crowd)]
    if everybody:
        yield "others", everybody


def _join(example: Example, background: list[tuple[Columns, int]], unit: Columns | None) -> Columns:
    """Rows of the background, then of the unit; users are numbered so that nobody is two."""
    newcomer = int(example.users.max(initial=-1)) + 1
    parts = [*background, *([(unit, newcomer)] if unit is not None else [])]
    joined = {}
    for name, column in example.columns.items():
        pieces = [
            np.full(len(rows[name]), user, column.dtype) if name == USER and user >= 0 else rows[name]
            for rows, user in parts
        ]
        joined[name] = np.concatenate([column[:0], *pieces])
    return joined


def _direction_names(columns: Columns, floats: list[str]) -> tuple[str, ...]:
    width = max(math.prod(columns[name].shape[1:]) for name in floats)
    return (
        ("all coordinates",)
        if width == 1
        else ("one coordinate", "last coordinate", "all coordinates", "few coordinates", "alternating signs")
    )


def _filled(first: Columns, floats: list[str], direction: str, size: float) -> Columns:
    """Rows whose numbers have a direction and a length."""
    filled = dict(first)
    for name in floats:
        shape = first[name].shape[1:]
        vector = _direction(direction, math.prod(shape)).reshape(shape) * size
        filled[name] = np.broadcast_to(vector, first[name].shape).astype(first[name].dtype)
    return filled


def _direction(name: str, width: int) -> np.ndarray:
    """Unit vector."""
    vector = np.zeros(width)
    few = math.isqrt(width - 1) + 1 if width else 0
    vector[: {"one coordinate": 1, "few coordinates": few}.get(name, width)] = 1.0
    if name == "last coordinate":
        vector[:-1] = 0.0
    if name == "alternating signs":
        vector[1::2] = -1.0
    return vector / max(float(np.linalg.norm(vector)), 1.0)


def _set(first: Columns, floats: list[str], value: float, *, everywhere: bool) -> Columns:
    """Rows of zeros with a value in the first coordinate, or in all."""
    filled = dict(first)
    for name in floats:
        column = np.zeros_like(first[name])
        column.reshape(len(column), -1)[:, slice(None) if everywhere else slice(1)] = value
        filled[name] = column
    return filled


def _extreme_values(dtype: np.dtype[Any]) -> tuple[tuple[str, float], ...]:
    limits = np.finfo(dtype)
    return (
        ("NaN", math.nan),
        ("infinity", math.inf),
        ("the largest number", float(limits.max)),
        ("the smallest number", float(limits.smallest_subnormal)),
    )


def _typical_size(column: np.ndarray) -> float:
    """Median length of the example's rows, at least one."""
    lengths = np.linalg.norm(np.nan_to_num(column.reshape(len(column), -1)), axis=1)
    return max(1.0, float(np.median(lengths))) if len(lengths) else 1.0


def _is_float(column: np.ndarray) -> bool:
    return bool(np.issubdtype(column.dtype, np.floating))


def _to_array(column: Any) -> np.ndarray:
    return column.detach().cpu().numpy() if hasattr(column, "detach") else np.asarray(column)


def _to_tensor(column: np.ndarray) -> Any:
    return sys.modules["torch"].from_numpy(column)
