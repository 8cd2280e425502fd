"""Messages between server and nodes, taken apart, bent and put together again, whether or not they still make sense."""

import copy
import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.privacy.fuzz_nodes.findings import FORGED
from benchmarks.privacy.fuzz_secure_agg import mutate
from privfed.contracts import Block
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.queries import Query
from privfed.federation import Message

LONG = "x" * 100_000
NUMBERS = (0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30)
REALS = (0.5, -0.0, 1e-320, 1e300, -1e300, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "", "x", LONG, "\x1b[2J\x1b[31mok" + FORGED, "\0", "\u202eevil", "\ud800", "../../etc/passwd",
    "0-999999999999999", "0-300000000", "9-0", "0,0,0", "__class__", "train.reveal", "é" * 300, "f" * 64, "0" * 32,
)  # fmt: skip
NESTED: tuple[Any, ...] = ([], {}, [[]], {"": {}}, {"a": [1, {"b": None}]}, [0] * 1000, [None], [[[[[[[[]]]]]]]])
NASTY: tuple[Any, ...] = (None, True, False, *NUMBERS, *REALS, *TEXTS, *NESTED)
SIDES = (0, 1, -1, 2, 3, 2**20, 2**31, 2**40, 2**62, 2**63, 2**64, 0.5, None, "1", True)
DTYPES = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64", "float16", "object", "<f8", "", 7)
_PREFIX = struct.Struct("<4sI")


@dataclass
class Draft:
    """A message that can be changed: nothing of it has to be true.

    Attributes:
        fields: small values.
        arrays: name, dtype, shape and bytes of every array.
    """

    fields: dict[str, Any]
    arrays: list[list[Any]]

    @classmethod
    def of(cls, message: bytes) -> "Draft":
        """The parts of an honest message."""
        packet = Packet.decode(message)
        arrays = [[name, array.dtype.name, list(array.shape), array.tobytes()] for name, array in packet.arrays.items()]
        return cls(json.loads(json.dumps(dict(packet.fields))), arrays)

    def copy(self) -> "Draft":
        """One that can be bent by itself."""
        return copy.deepcopy(self)

    def encode(self) -> bytes:
        """As bytes, also where no honest party could write them."""
        listed = [entry[:3] for entry in self.arrays]
        header = json.dumps({"fields": self.fields, "arrays": listed}).encode()
        return b"".join([_PREFIX.pack(b"PFN1", len(header)), header, *(entry[3] for entry in self.arrays)])


Bend = Callable[[random.Random, Draft, Sequence[Draft]], None]
"""Changes a draft in place; others are at hand to take from."""


def field(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """A value somewhere in the fields is nasty, gone, or next to what it was."""
    del others
    _inside(rng, draft.fields)


def taken(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """A field is that of another message."""
    other = rng.choice(others)
    name = rng.choice(sorted(other.fields))
    draft.fields[name] = copy.deepcopy(other.fields[name])


def extra(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """A field or an array more than there should be."""
    other = rng.choice(others)
    if other.arrays and rng.random() < 0.5:
        draft.arrays.append(list(rng.choice(other.arrays)))
    else:
        draft.fields[rng.choice(("refused", "receipt", "final", "counted", "seat", "more"))] = rng.choice(NASTY)


def array(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """An array has other numbers, another size, shape, dtype or name, or is gone."""
    if not draft.arrays:
        extra(rng, draft, others)
        return
    at = rng.randrange(len(draft.arrays))
    entry = draft.arrays[at]
    match rng.randrange(9):
        case 0:
            del draft.arrays[at]
        case 1:
            entry[1] = rng.choice(DTYPES)
        case 2:
            entry[2] = [rng.choice(SIDES) for _ in range(rng.randrange(10))]
        case 3:
            entry[0] = rng.choice((entry[0] + "x", entry[0].rpartition("/")[2], *TEXTS, 7, None))
        case 4:
            _refilled(rng, entry)
        case 5:
            _reshaped(rng, entry)
        case 6:
            entry[3] = (
                entry[3][: rng.randrange(len(entry[3]) + 1)] if rng.random() < 0.5 else entry[3] + rng.randbytes(8)
            )
        case 7:
            _retyped(rng, entry)
        case _:
            rest = [other for draft in others for other in draft.arrays]
            entry[1:] = rng.choice(rest)[1:]


def inner(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """Bytes of a message of the masked sum, or the numbers of an array, are mutated."""
    if not draft.arrays:
        extra(rng, draft, others)
        return
    entry = rng.choice(draft.arrays)
    rest = [other[3] for draft in others for other in draft.arrays if other[1] == entry[1]] or [entry[3]]
    bent = mutate(rng, entry[3], rest)
    if entry[1] == "uint8" and len(entry[2]) == 1:
        entry[2], entry[3] = [len(bent)], bent
    else:
        entry[3] = bent[: len(entry[3])].ljust(len(entry[3]), b"\0")


def truth(rng: random.Random, draft: Draft, others: Sequence[Draft]) -> None:
    """Nothing is changed."""
    del rng, draft, others


BENDS: Mapping[str, Bend] = {
    "field": field, "field of another": taken, "more": extra, "array": array, "inner bytes": inner, "as it is": truth,
}  # fmt: skip


def bound(draft: Draft) -> None:
    """Bind the address of a request to the query that it holds now, as a server that lies would; else leave it."""
    try:
        fields, address = draft.fields, draft.fields["address"]
        schema = {
            name: Block(
                tuple(shape),
                kind,
                weight=weight,
                bound=limit,
                divides=divides,
                counts=counts,
                share=share,
                refreshes=refreshes[0] if refreshes else 1,
            )
            for name, shape, kind, weight, limit, divides, counts, share, *refreshes in fields["schema"]
        }
        tensors = {
            name: torch.from_numpy(np.frombuffer(data, dtype).reshape(shape).copy())
            for name, dtype, shape, data in draft.arrays
        }
        shared = {name.removeprefix("shared/"): each for name, each in tensors.items() if name.startswith("shared/")}
        query = Query(
            fields["step"], address["round"], address["cohort_id"], address["query_id"], None,
            Message(shared, {}, fields["config"]), schema, fields["clip_norm"],
        )  # fmt: skip
        made = query.address("", 0, 0, "")
    except Exception:  # what cannot be described cannot be bound either
        return
    address["schema"], address["model"] = made.schema, made.model


def _inside(rng: random.Random, value: Any) -> None:
    while True:
        key = rng.choice(sorted(value)) if isinstance(value, dict) else rng.randrange(len(value))
        deeper = value[key]
        if isinstance(deeper, dict | list) and deeper and rng.random() < 0.85:
            value = deeper
            continue
        if rng.random() < 0.08:
            del value[key]
        elif isinstance(deeper, int | float) and rng.random() < 0.4:
            value[key] = rng.choice((deeper + 1, deeper - 1, -deeper, 2 * deeper, float(deeper), str(deeper)))
        elif isinstance(deeper, str) and deeper and rng.random() < 0.3:
            value[key] = mutate(rng, deeper.encode(), [b"0-44", b"[]"]).decode("latin-1")
        else:
            value[key] = copy.deepcopy(rng.choice(NASTY))
        return


def _refilled(rng: random.Random, entry: list[Any]) -> None:
    try:
        values = np.frombuffer(entry[3], entry[1]).copy()
        with np.errstate(all="ignore"):
            extremes = (0, 1, -1, np.nan, np.inf, 1e38, 1e-40) if values.dtype.kind == "f" else (0, 1, -1, 2**62)
            values[rng.randrange(len(values)) :: rng.choice((1, 7, len(values)))] = np.array(
                rng.choice(extremes)
            ).astype(values.dtype)
        entry[3] = values.tobytes()
    except (TypeError, ValueError):
        entry[3] = rng.randbytes(len(entry[3]))


def _reshaped(rng: random.Random, entry: list[Any]) -> None:
    """Another shape that is consistent with its bytes."""
    try:
        values = np.frombuffer(entry[3], entry[1]).reshape(entry[2])
        made = (
            values[None], values.reshape(-1), values[:-1], values[:0], np.concatenate([values, values]),
            values.T, values[..., :1], np.zeros((0, 2**20), values.dtype),
        )  # fmt: skip
        other = made[rng.randrange(len(made))]
        entry[2], entry[3] = list(other.shape), other.tobytes()
    except (TypeError, ValueError, IndexError):
        entry[2] = [1]


def _retyped(rng: random.Random, entry: list[Any]) -> None:
    """Another dtype that is consistent with its bytes."""
    try:
        values = np.frombuffer(entry[3], entry[1])
        with np.errstate(all="ignore"):
            other = values.astype(rng.choice(("bool", "int8", "uint8", "int64", "uint64", "float32", "float64")))
        entry[1], entry[3] = other.dtype.name, other.tobytes()
    except (TypeError, ValueError):
        entry[1] = "int64"
