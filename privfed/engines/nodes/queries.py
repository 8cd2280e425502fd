"""One ask as it travels to a node: the step, who takes part, the message, and the blocks that may come back."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Block, Schema, UpdateError, schema_digest, upload_bytes
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import MessageError
from privfed.federation import Message
from privfed.guards.quantising import UploadCode
from privfed.privacy import LedgerError
from privfed.privacy.ledger import from_ranges, to_ranges
from secure_agg.errors import MalformedMessage

MEASURE = "measure"
"""The step that trains nothing and answers with sums of metrics."""

_BLOCK = ("name", "shape", "kind", "weight", "bound", "divides", "counts", "share")
_SHARED, _PERSONAL = "shared/", "personal/"
_MOST_BLOCKS = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What one node is asked.

    Attributes:
        step: of the clients, or `MEASURE`.
        round, cohort_id, query_id: of the cohort.
        members: the node's users that take part; None lets each decide by its own secret coin.
        message: addressed to these users, or to all of the node's where they decide.
        schema: blocks that may be sent.
        clip_norm: where the plan adapts it.
    """

    step: str
    round: int
    cohort_id: int
    query_id: int
    members: Int64[np.ndarray, " members"] | None
    message: Message
    schema: Schema
    clip_norm: float | None = None

    def address(self, run: str, node: int, serial: int, stage: str) -> Address:
        """Where a request that serves this ask is bound to."""
        return Address(run, node, serial, stage, self.round, self.cohort_id, self.query_id, schema_digest(self.schema))

    def fields(self) -> dict[str, Any]:
        """The small values."""
        return {
            "step": self.step,
            "members": None if self.members is None else to_ranges(self.members),
            "schema": [
                [name, list(b.shape), b.kind, b.weight, b.bound, b.divides, b.counts, b.share]
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
    def read(cls, packet: Packet, address: Address, max_clients: int) -> "Query":
        """The ask in a request.

        Args:
            packet: the request.
            address: its address.
            max_clients: bytes that the largest upload of one user may take.

        Raises:
            MessageError: something is missing or malformed, or the blocks are not those of the address.
        """
        step, members, config, clip = packet.text("step", 200), packet["members"], packet["config"], packet["clip_norm"]
        if not step.isidentifier() or step.startswith("_"):
            raise MessageError("the step is no name of a client's step; drop the message")
        schema = _schema(packet["schema"], max_clients)
        if schema_digest(schema) != address.schema:
            raise MessageError("the blocks asked for are not those that the request is bound to; drop the message")
        if not isinstance(config, Mapping) or not all(_number(value) for value in config.values()):
            raise MessageError("the message's settings are no finite numbers; drop it")
        if clip is not None and not (_number(clip) and clip > 0):
            raise MessageError("the announced clip norm is no number above 0; drop the message")
        if min(address.round, address.cohort_id, address.query_id) < 0:
            raise MessageError("the request serves no ask; drop the message")
        tensors = {name: torch.tensor(array) for name, array in packet.arrays.items()}
        message = Message(
            {name.removeprefix(_SHARED): t for name, t in tensors.items() if name.startswith(_SHARED)},
            {name.removeprefix(_PERSONAL): t for name, t in tensors.items() if name.startswith(_PERSONAL)},
            {str(name): float(value) if isinstance(value, float) else value for name, value in config.items()},
        )
        return cls(
            step, address.round, address.cohort_id, address.query_id, _members(members), message, schema,
            None if clip is None else float(clip),
        )  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of everything that decides what the node's users send."""
        place = {"round": self.round, "draw": self.cohort_id, "ask": self.query_id}
        return hashlib.sha256(Packet(self.fields() | place, self.arrays()).encode()).hexdigest()


def addressed(
    message: Message, everybody: Int64[np.ndarray, " everybody"], some: Int64[np.ndarray, " some"]
) -> Message:
    """A message to a node's `everybody` as `some` of them receive it."""
    if not message.personal:
        return message
    at = torch.from_numpy(np.searchsorted(everybody, some))
    personal = {name: values.index_select(0, at) for name, values in message.personal.items()}
    return Message(message.shared, personal, message.config)


def tensors_of(packet: Packet, schema: Schema, sides: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """Blocks that came back, each with `sides` before its own shape.

    Raises:
        MessageError: a block is missing, there is another one, or its dtype or shape is not as declared.
    """
    _require_blocks(packet, schema)
    found = {}
    for name, block in schema.items():
        dtype = "int64" if block.kind == "integer" else "float32" if sides else "float64"
        found[name] = torch.tensor(packet.array(f"block/{name}", dtype, (*sides, *block.shape)))
    return found


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
    code, found = UploadCode(bits), dict[str, Tensor]()
    for name, block in schema.items():
        if block.kind == "integer":
            found[name] = torch.tensor(packet.array(f"block/{name}", "int64", (users, *block.shape)))
            continue
        steps = packet.array(f"step/{name}", "float32", (users,))
        packed = packet.array(f"block/{name}", "uint8", (users, code.packed_bytes(block.size)))
        values = np.empty((users, block.size), np.float32)
        for place, (row, step) in enumerate(zip(packed, steps, strict=True)):
            try:
                values[place] = code.unpack(row, step, block.size)
            except MalformedMessage as refused:
                raise MessageError(f"an upload of block {name!r} is none of {bits} bits: {refused}") from None
        found[name] = torch.from_numpy(values).view(users, *block.shape)
    return found


def _require_blocks(packet: Packet, schema: Schema) -> None:
    if {name for name in packet.arrays if name.startswith("block/")} != {f"block/{name}" for name in schema}:
        raise MessageError(
            "the reply does not hold the blocks that were asked for, no more and no fewer; it is dropped"
        )


def _schema(listed: Any, max_clients: int) -> Schema:
    if not isinstance(listed, list) or len(listed) > _MOST_BLOCKS:
        raise MessageError(f"the blocks are not listed, or are more than {_MOST_BLOCKS}; drop the message")
    schema: dict[str, Block] = {}
    for entry in listed:
        if not isinstance(entry, list) or len(entry) != len(_BLOCK):
            raise MessageError("a block is not listed with all that is declared of it; drop the message")
        given = dict(zip(_BLOCK, entry, strict=True))
        name, shape = given.pop("name"), given.pop("shape")
        sides = isinstance(shape, list) and len(shape) <= 8 and all(type(side) is int for side in shape)
        if not isinstance(name, str) or name in schema or not sides or not _declared(given):
            raise MessageError("a block is declared with values that no block has; drop the message")
        try:
            schema[name] = Block(tuple(shape), **given)
        except UpdateError as error:
            raise MessageError(f"a block cannot be: {error}") from error
    if upload_bytes(schema) > max_clients:
        raise MessageError(
            f"the blocks take {upload_bytes(schema)} bytes and {max_clients} are accepted; ask for less at once"
        )
    return schema


def _declared(given: Mapping[str, Any]) -> bool:
    bound = given["bound"]
    return (
        given["kind"] in ("real", "integer")
        and _number(given["weight"])
        and _number(given["share"])
        and (bound is None or (type(bound) is int and 0 <= bound < 2**63))
        and type(given["divides"]) is bool
        and type(given["counts"]) is bool
    )


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _members(text: Any) -> Int64[np.ndarray, " members"] | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise MessageError("members are not ranges of user numbers; drop the message")
    try:
        spans = [span.partition("-") for span in text.split(",")] if text else []
        if sum(int(end or first) - int(first) + 1 for first, _, end in spans) > 2**28:
            raise MessageError("more members are listed than anybody hosts; drop the message")
        return from_ranges(text)
    except (LedgerError, ValueError) as error:
        raise MessageError("members are not ranges of user numbers; drop the message") from error
