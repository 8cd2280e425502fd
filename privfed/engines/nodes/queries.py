"""One query as it travels to a node: the step, who takes part, the message, and the blocks that may come back."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError
from torch import Tensor

from privfed.contracts import Block, Schema, UpdateError, declared_refreshes, refreshes_of, schema_digest, upload_bytes
from privfed.engines.nodes.codec import Address, Array, Packet, is_name
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.printable import printable
from privfed.federation import Message
from privfed.guards.quantising import UploadCode
from privfed.privacy import LedgerError
from privfed.privacy.user_ranges import from_ranges, to_ranges
from secure_agg.errors import MalformedMessage

MEASURE = "measure"
"""The step that trains nothing and answers with sums of metrics."""

_SHARED, _PERSONAL = "shared/", "personal/"
_MOST_BLOCKS, _MOST_SETTINGS, _LARGEST_SIDE = 4096, 1000, 2**40
_LARGEST_VALUE = float(np.finfo(np.float32).max) / 2**32
"""Numbers in the clear: so many users' sum is finite in float32, whatever one of them sends."""

_FIELDS = ("step", "members", "schema", "config", "clip_norm")


def _named(text: str) -> str:
    if not is_name(text):
        raise ValueError("no name")
    return text


_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Number = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)] | _Finite
_Side = Annotated[int, Field(strict=True, ge=0, le=_LARGEST_SIDE)]
_Name = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_named)]
_Bound = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
_Flag = Annotated[bool, Field(strict=True)]
_Refreshes = Annotated[int, Field(strict=True, ge=2, le=2**16)]
_SingleBlock = tuple[
    _Name, Annotated[list[_Side], Field(max_length=8)], Literal["real", "integer"], _Number, _Bound | None, _Flag,
    _Flag, _Number,
]  # fmt: skip
"""Name, shape, kind, weight, bound, divides, counts, share of a block."""
_RefreshedBlock = tuple[
    _Name, Annotated[list[_Side], Field(max_length=8)], Literal["real", "integer"], _Number, _Bound | None, _Flag,
    _Flag, _Number, _Refreshes,
]  # fmt: skip
"""The same, and queries that share its account."""
_WireBlock = _SingleBlock | _RefreshedBlock


class _QueryFields(BaseModel):
    """The small values of a query, as they come off the wire."""

    model_config = ConfigDict(extra="forbid")

    step: Annotated[str, Field(strict=True, max_length=200)]
    members: Annotated[str, Field(strict=True)] | None
    schema_: list[_WireBlock] = Field(alias="schema", max_length=_MOST_BLOCKS)
    config: dict[_Name, _Number] = Field(max_length=_MOST_SETTINGS)
    clip_norm: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A query of one node.

    Attributes:
        step: of the clients, or `MEASURE`.
        round, cohort_id, query_id: of the cohort.
        members: the node's users that take part; None lets each decide by its own secret random bit.
        message: addressed to these users, or to all of the node's where they decide.
        schema: blocks that may be sent.
        clip_norm: where the plan adapts it.
        model: SHA-256 of what every organisation is sent alike; empty where it was not computed yet.
        announced: SHA-256 of the announcement of the run. It is never sent: who was told of another plan or of other
            donors comes to another `model`, and organisations that signed unequal ones open no sum.
    """

    step: str
    round: int
    cohort_id: int
    query_id: int
    members: Int64[np.ndarray, " members"] | None
    message: Message
    schema: Schema
    clip_norm: float | None = None
    model: str = ""
    announced: str = ""

    def address(self, run: str, seat: int, counter: int, stage: str, nonce: str = "") -> Address:
        """What a request that serves this query is bound to."""
        return Address(
            run, seat, counter, stage, self.round, self.cohort_id, self.query_id, schema_digest(self.schema),
            self.model or self.common_digest(), nonce,
        )  # fmt: skip

    def common_digest(self) -> str:
        """SHA-256 of everything that is sent to all organisations alike; masks of a sum are bound to it."""
        fields = {name: value for name, value in self.fields().items() if name != "members"}
        shared = {name: array for name, array in self.arrays().items() if name.startswith(_SHARED)}
        return hashlib.sha256(Packet(fields | self._place(), shared).encode()).hexdigest()

    def _place(self) -> dict[str, JsonValue]:
        place = {"round": self.round, "cohort_id": self.cohort_id, "query_id": self.query_id}
        return {**place, "announced": self.announced}

    def fields(self) -> dict[str, JsonValue]:
        """The small values."""
        return {
            "step": self.step,
            "members": None if self.members is None else to_ranges(self.members),
            "schema": [
                [
                    name,
                    list(b.shape),
                    b.kind,
                    b.weight,
                    b.bound,
                    b.divides,
                    b.counts,
                    b.share,
                    *declared_refreshes(b),
                ]
                for name, b in self.schema.items()
            ],
            "config": dict(self.message.config),
            "clip_norm": self.clip_norm,
        }

    def arrays(self) -> dict[str, Array]:
        """The tensors of the message."""
        return {
            prefix + name: tensor.detach().numpy()
            for prefix, tensors in ((_SHARED, self.message.shared), (_PERSONAL, self.message.personal))
            for name, tensor in tensors.items()
        }

    @classmethod
    def read(cls, packet: Packet, address: Address, max_bytes: int, population: int, announced: str = "") -> "Query":
        """The query in a request.

        Args:
            packet: the request.
            address: its address.
            max_bytes: of the largest upload of one user.
            population: users of the run.
            announced: SHA-256 of the announcement of the run.

        Raises:
            MessageError: something is missing or malformed, or the blocks or the model are not those of the address.
        """
        try:
            given = _QueryFields.model_validate({name: packet[name] for name in _FIELDS})
        except ValidationError as error:
            raise MessageError(f"a field of the query is malformed ({_first(error)}); drop the message") from None
        if not given.step.isascii() or not given.step.isidentifier() or given.step.startswith("_"):
            raise MessageError("the step is no name of a client's step; drop the message")
        members = _members(given.members, population)
        schema = _schema(given.schema_, max_bytes)
        if schema_digest(schema) != address.schema:
            raise MessageError("the blocks queried are not those that the request is bound to; drop the message")
        if min(address.round, address.cohort_id, address.query_id) < 0:
            raise MessageError("the request serves no query; drop the message")
        tensors = {name: torch.tensor(array) for name, array in packet.arrays.items()}
        message = Message(
            {name.removeprefix(_SHARED): t for name, t in tensors.items() if name.startswith(_SHARED)},
            {name.removeprefix(_PERSONAL): t for name, t in tensors.items() if name.startswith(_PERSONAL)},
            given.config,
        )
        query = cls(
            given.step, address.round, address.cohort_id, address.query_id, members,
            message, schema, given.clip_norm, address.model, announced,
        )  # fmt: skip
        if query.common_digest() != address.model:
            raise MessageError("the model in the query is not the one that the request is bound to; drop the message")
        return query

    def digest(self) -> str:
        """SHA-256 of everything that decides what the node's users send."""
        return hashlib.sha256(Packet(self.fields() | self._place(), self.arrays()).encode()).hexdigest()


def addressed(
    message: Message, everybody: Int64[np.ndarray, " everybody"], some: Int64[np.ndarray, " some"]
) -> Message:
    """A message to a node's `everybody` as `some` of them receive it.

    Raises:
        MessageError: a personal tensor has not one row for each of `everybody`.
    """
    for name, values in message.personal.items():
        if values.shape[:1] != (len(everybody),):
            raise MessageError(
                f"personal tensor {name!r} has shape {tuple(values.shape)} for {len(everybody)} users; drop the message"
            )
    if not message.personal:
        return message
    at = torch.from_numpy(np.searchsorted(everybody, some))
    personal = {name: values.index_select(0, at) for name, values in message.personal.items()}
    return Message(message.shared, personal, message.config)


def tensors_of(packet: Packet, schema: Schema, sides: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """Blocks that came back, each with `sides` before its own shape.

    Raises:
        MessageError: a block is missing, there is another one, its dtype or shape is not as declared, or a number is so
            large that no sum could hold it.
    """
    _require_blocks(packet, schema)
    blocks = {}
    for name, block in schema.items():
        dtype = "int64" if block.kind == "integer" else "float32" if sides else "float64"
        values = torch.tensor(packet.array(f"block/{name}", dtype, (*sides, *block.shape)))
        if block.kind == "real" and (values.abs() > _LARGEST_VALUE).any():
            raise MessageError(f"block {name!r} holds numbers that sums in float32 cannot hold; the reply is dropped")
        blocks[name] = values
    return blocks


def coded_arrays(
    uploads: Mapping[str, Tensor], steps: Mapping[str, Tensor], schema: Schema, bits: int
) -> dict[str, Array]:
    """Rounded uploads `[n, *shape]` as they travel: packed numbers and the steps `[n]` of real blocks, others whole."""
    code, arrays = UploadCode(bits), dict[str, Array]()
    for name, block in schema.items():
        values = uploads[name].numpy()
        if block.kind == "real":
            step, flat = steps[name].numpy(), values.reshape(-1, block.size)
            packed = [code.pack(row, own) for row, own in zip(flat, step, strict=True)]
            arrays[f"step/{name}"] = step
            values = np.stack(packed) if packed else np.zeros((0, code.packed_bytes(block.size)), np.uint8)
        arrays[f"block/{name}"] = values
    return arrays


def coded_tensors_of(packet: Packet, schema: Schema, users: int, bits: int) -> dict[str, Tensor]:
    """Rounded uploads of so many users, `[users, *shape]`, to the bit as their devices had them.

    Raises:
        MessageError: as `tensors_of`, or numbers that no such upload has.
    """
    _require_blocks(packet, schema)
    code, blocks = UploadCode(bits), dict[str, Tensor]()
    for name, block in schema.items():
        if block.kind == "integer":
            blocks[name] = torch.tensor(packet.array(f"block/{name}", "int64", (users, *block.shape)))
            continue
        steps = packet.array(f"step/{name}", "float32", (users,))
        packed = packet.array(f"block/{name}", "uint8", (users, code.packed_bytes(block.size)))
        values = np.empty((users, block.size), np.float32)
        for position, (row, step) in enumerate(zip(packed, steps, strict=True)):
            try:
                values[position] = code.unpack(row, step, block.size)
            except MalformedMessage as refused:
                raise MessageError(f"an upload of block {name!r} is none of {bits} bits: {refused}") from None
        blocks[name] = torch.from_numpy(values).view(users, *block.shape)
    return blocks


def _require_blocks(packet: Packet, schema: Schema) -> None:
    if {name for name in packet.arrays if name.startswith("block/")} != {f"block/{name}" for name in schema}:
        raise MessageError("the reply does not hold the blocks that were queried, no more and no fewer; it is dropped")


def _schema(listed: "list[_WireBlock]", max_bytes: int) -> Schema:
    schema: dict[str, Block] = {}
    for name, shape, kind, weight, bound, divides, counts, share, *refreshes in listed:
        if name in schema:
            raise MessageError(f"block {name!r} is listed twice; drop the message")
        try:
            schema[name] = Block(
                tuple(shape), kind, weight=weight, bound=bound, divides=divides, counts=counts, share=share,
                refreshes=refreshes[0] if refreshes else 1,
            )  # fmt: skip
            refreshes_of(schema)
        except UpdateError as error:
            raise MessageError(f"a block cannot be: {error}") from error
    if upload_bytes(schema) > max_bytes:
        raise MessageError(
            f"the blocks take {upload_bytes(schema)} bytes and {max_bytes} are accepted; query less at once"
        )
    return schema


def _first(error: ValidationError) -> str:
    """Where the first mistake is, without what was given there."""
    first = error.errors()[0]
    return f"{printable('.'.join(str(part) for part in first['loc'][:2]), 100)}: {first['type']}"


def _members(text: str | None, population: int) -> Int64[np.ndarray, " members"] | None:
    if text is None:
        return None
    try:
        return from_ranges(text, limit=population)
    except LedgerError as error:
        raise MessageError("members are not ranges of user numbers; drop the message") from error
