"""Messages between server and nodes as bytes: a header of JSON, then numbers as they lie in memory.

    magic "PFN1"   4 bytes
    header size    4, little-endian
    header         JSON, {"fields": {name: value}, "arrays": [[name, dtype, shape], ...]}
    arrays         one after another, little-endian, C order

A request carries an `Address` (run, seat, counter, nonce, protocol, stage, round, cohort, query, blocks, model) and a
reply the SHA-256 of the request that it answers, so every number is bound to all of these: a reply to another request,
of another run, seat or stage, does not match, and a request whose counter does not rise is an old one. Both travel with
their sender's signature (`privfed.engines.nodes.party`).

Decoding executes nothing and believes nothing: sizes are compared with what there is before anything is made, dtypes
come from a list, shapes must multiply out, names may not repeat, and floating-point numbers must be finite. A decoded
array is a read-only view.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from privfed.engines.nodes.errors import MessageError, RefusalCode

MAX_BYTES = 2**30
MAX_HEADER = 2**22

_MAGIC = b"PFN1"
_PREFIX = struct.Struct("<4sI")
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
}
_MOST_ARRAYS, _MOST_AXES, _LONGEST_NAME = 4096, 8, 200
_MOST_VALUES, _DEEPEST, _LONGEST_NUMBER = 100_000, 32, 40
_LARGEST_SHAPE = 2**40
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)

Array = NDArray[np.generic]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Packet:
    """One message.

    Attributes:
        fields: small values, as JSON has them.
        arrays: numbers by name.
    """

    fields: Mapping[str, JsonValue]
    arrays: Arrays = field(default_factory=dict)

    def encode(self) -> bytes:
        """As bytes."""
        listed, pieces = [], []
        for name, array in self.arrays.items():
            kept = np.ascontiguousarray(array).reshape(np.shape(array))
            listed.append([name, kept.dtype.name, list(kept.shape)])
            pieces.append(kept.astype(_DTYPES[kept.dtype.name], copy=False).tobytes())
        header = json.dumps(
            {"fields": dict(self.fields), "arrays": listed}, separators=(",", ":"), allow_nan=False
        ).encode()
        return b"".join([_PREFIX.pack(_MAGIC, len(header)), header, *pieces])

    @classmethod
    def decode(cls, data: bytes | memoryview, max_bytes: int = MAX_BYTES) -> "Packet":
        """Read one.

        Args:
            data: one whole message.
            max_bytes: bytes that are looked at at all.

        Raises:
            MessageError: the bytes are anything else, in one sentence that quotes no payload.
        """
        if len(data) > max_bytes:
            raise MessageError(
                f"a message of {len(data)} bytes was given and {max_bytes} are accepted; send less at once"
            )
        if len(data) < _PREFIX.size:
            raise MessageError(f"a message of {len(data)} bytes was given; the shortest has {_PREFIX.size}, so drop it")
        magic, size = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise MessageError("the bytes do not begin as a message of this protocol; check the sender's version")
        start = _PREFIX.size + size
        if size > MAX_HEADER or start > len(data):
            raise MessageError(f"the header claims {size} bytes of {len(data)}; the message was cut or forged, drop it")
        values, listed = _header(bytes(data[_PREFIX.size : start]))
        return cls(values, _read(listed, memoryview(data)[start:]))

    def __getitem__(self, name: str) -> JsonValue:
        """A field.

        Raises:
            MessageError: there is none of that name.
        """
        if name not in self.fields:
            raise MessageError(f"the message lacks the field {name!r}; its sender speaks another version")
        return self.fields[name]

    def whole(self, name: str, lowest: int = 0, highest: int = 2**63 - 1) -> int:
        """A field that must be a whole number.

        Raises:
            MessageError: it is not, or out of range.
        """
        value = self[name]
        if type(value) is not int or not lowest <= value <= highest:
            raise MessageError(f"field {name!r} is no whole number from {lowest} to {highest}; drop the message")
        return value

    def text(self, name: str, longest: int = MAX_HEADER) -> str:
        """A field that must be text.

        Raises:
            MessageError: it is not, or too long.
        """
        value = self[name]
        if not isinstance(value, str) or len(value) > longest:
            raise MessageError(f"field {name!r} is no text of at most {longest} characters; drop the message")
        return value

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> Array:
        """An array that must have this dtype and shape; None leaves a side open.

        Raises:
            MessageError: it is missing or another one.
        """
        array = self.arrays.get(name)
        if array is None:
            raise MessageError(f"the message lacks the array {name!r}; its sender speaks another version")
        fits = len(array.shape) == len(shape) and all(
            side is None or side == have for side, have in zip(shape, array.shape, strict=True)
        )
        if array.dtype.name != dtype or not fits:
            raise MessageError(
                f"array {name!r} is {array.dtype.name} of shape {array.shape}; {dtype} of "
                f"{tuple('any' if side is None else side for side in shape)} was expected, so drop the message"
            )
        return array


_Run = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{32}$")]
_ShortText = Annotated[str, Field(strict=True, max_length=_LONGEST_NAME)]
_Number = Annotated[int, Field(strict=True, ge=-1, lt=2**63)]


@dataclass(frozen=True, slots=True)
class Address:
    """What a request is bound to.

    Attributes:
        run: hexadecimal name of the run.
        seat: organisation whom it is for; -1 where the server does not know yet who is connected.
        counter: rises with every request of the run to that organisation, over restarts too.
        stage: as the transport names it.
        round, cohort_id, query_id: of the query it serves; -1 where it serves none.
        schema: SHA-256 of the declared blocks; empty where nothing is declared.
        model: SHA-256 of what every organisation is sent alike with the query; empty where it serves none.
        nonce: that the node drew when the run was last announced to it; empty in an announcement.
        protocol: version of the messages that was chosen then.
    """

    run: _Run
    seat: _Number
    counter: _Number
    stage: _ShortText
    round: _Number = -1
    cohort_id: _Number = -1
    query_id: _Number = -1
    schema: _ShortText = ""
    model: _ShortText = ""
    nonce: _ShortText = ""
    protocol: _Number = 1


_ADDRESS = TypeAdapter(Address)


def request(address: Address, values: Mapping[str, JsonValue] | None = None, arrays: Arrays | None = None) -> bytes:
    """A request as bytes."""
    return Packet({"address": asdict(address), **(values or {})}, arrays or {}).encode()


def address_of(packet: Packet) -> Address:
    """The address in a request.

    Raises:
        MessageError: there is none, or it is not well formed.
    """
    given = packet["address"]
    if not isinstance(given, dict) or set(given) != {one.name for one in fields(Address)}:
        raise MessageError("the address of a request is not complete; its sender speaks another version")
    try:
        return _ADDRESS.validate_python(given)
    except ValidationError as error:
        name = error.errors()[0]["loc"][0]
        raise MessageError(f"the address of a request has a bad {name}; drop the message") from None


def digest(data: bytes) -> str:
    """SHA-256 of a request, which its reply carries."""
    return hashlib.sha256(data).hexdigest()


def reply(to: bytes, seat: int, values: Mapping[str, JsonValue] | None = None, arrays: Arrays | None = None) -> bytes:
    """A reply of the organisation at `seat` to the request `to` as bytes."""
    return Packet({"of": digest(to), "refused": None, "seat": seat, **(values or {})}, arrays or {}).encode()


def refusal(to: bytes, reason: str, code: RefusalCode, seat: int, counter: int) -> bytes:
    """A reply that says no, and why.

    Args:
        to: the request.
        reason: one sentence for people.
        code: what the server acts on.
        seat: of the organisation that refuses.
        counter: of the last request of the run that was accepted.
    """
    return Packet({"of": digest(to), "refused": reason, "code": code.value, "seat": seat, "counter": counter}).encode()


def answer(data: bytes | memoryview, to: bytes, max_bytes: int = MAX_BYTES) -> Packet:
    """The reply in these bytes, if it is one to the request `to`.

    Raises:
        MessageError: malformed, or a reply to another request.
    """
    packet = Packet.decode(data, max_bytes)
    if packet["of"] != digest(to):
        raise MessageError("the reply is to another request: it is stale or replayed, so it is dropped")
    refused = packet["refused"]
    if refused is not None and not isinstance(refused, str):
        raise MessageError("the reply neither answers nor refuses; its sender speaks another version")
    return packet


def _header(data: bytes) -> tuple[dict[str, JsonValue], list[JsonValue]]:
    """Fields, and the arrays as they are listed."""
    _require_small(data)
    try:
        header: JsonValue = json.loads(
            data.decode("utf-8"), parse_int=_short_int, parse_float=_short_float, parse_constant=_no_constant,
            object_pairs_hook=_once,
        )  # fmt: skip
        if b"\\u" in data:  # half of a surrogate pair is no character, and fails wherever it is written next
            json.dumps(header, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MessageError(
            f"the header is no JSON of this protocol ({type(error).__name__}); drop the message"
        ) from None
    if not isinstance(header, dict) or set(header) != {"fields", "arrays"}:
        raise MessageError("the header does not list fields and arrays; its sender speaks another version")
    values, listed = header["fields"], header["arrays"]
    if not isinstance(values, dict) or not isinstance(listed, list):
        raise MessageError("the header does not list fields and arrays as such; its sender speaks another version")
    return values, listed


def _require_small(data: bytes) -> None:
    """Return quietly where a header is neither deep nor of many values, before anything is made of it.

    Raises:
        MessageError: it is.
    """
    outside = _TEXT.sub(b"", data)
    values = sum(outside.count(mark) for mark in (b",", b"[", b"{"))
    if values > _MOST_VALUES:
        raise MessageError(f"the header holds {values} values and {_MOST_VALUES} are accepted; send less at once")
    marks = np.frombuffer(outside, np.uint8)
    steps = np.isin(marks, list(b"[{")).astype(np.int8) - np.isin(marks, list(b"]}")).astype(np.int8)
    if steps[steps != 0].cumsum(dtype=np.int32).max(initial=0) > _DEEPEST:
        raise MessageError(f"the header is nested deeper than {_DEEPEST} levels; drop the message")


def _short_int(digits: str) -> int:
    value = int(digits) if len(digits) <= _LONGEST_NUMBER else 2**64
    if not -(2**63) <= value < 2**63:
        raise ValueError("a whole number beyond 64 bits")
    return value


def _short_float(digits: str) -> float:
    value = float(digits) if len(digits) <= _LONGEST_NUMBER else math.inf
    if not math.isfinite(value):
        raise ValueError("a number that is not finite, or too long")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is given twice")
    return made


def _read(listed: list[JsonValue], body: memoryview) -> Arrays:
    if len(listed) > _MOST_ARRAYS:
        raise MessageError(f"{len(listed)} arrays are listed and {_MOST_ARRAYS} accepted; drop the message")
    arrays: dict[str, Array] = {}
    at = 0
    for entry in listed:
        name, dtype, shape = _listed(entry)
        size = math.prod(shape) * dtype.itemsize
        if name in arrays or at + size > len(body):
            raise MessageError("an array is listed twice or is longer than the message; drop the message")
        array: Array = np.frombuffer(body[at : at + size], dtype).reshape(shape)
        if dtype.kind == "f" and not np.isfinite(array).all():
            raise MessageError(f"array {name!r} holds NaN or infinity, which no sum may meet; drop the message")
        if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
            raise MessageError(f"array {name!r} holds bytes that are no truth values; drop the message")
        arrays[name] = array
        at += size
    if at != len(body):
        raise MessageError(f"the message ends {len(body) - at} bytes after its last array; drop it")
    return arrays


def is_name(text: str) -> bool:
    """Whether a text may name an array, a block or a setting: short, and safe in a sentence."""
    return 0 < len(text) <= _LONGEST_NAME and text.isascii() and text.isprintable()


def _listed(entry: JsonValue) -> tuple[str, np.dtype[np.generic], tuple[int, ...]]:
    if not (isinstance(entry, list) and len(entry) == 3):
        raise MessageError("an array is not listed by name, dtype and shape; drop the message")
    name, dtype, shape = entry
    if not isinstance(name, str) or not is_name(name) or not isinstance(dtype, str) or dtype not in _DTYPES:
        raise MessageError("an array has a name or a dtype that this protocol does not know; drop the message")
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        raise MessageError(f"array {name!r} has no shape of at most {_MOST_AXES} sides; drop the message")
    sides = tuple(side for side in shape if type(side) is int and side >= 0)
    # A side of 0 makes an array empty, and whoever stacks or multiplies it still meets the other sides.
    if len(sides) != len(shape) or math.prod(max(side, 1) for side in sides) > _LARGEST_SHAPE:
        raise MessageError(f"array {name!r} has no shape of at most {_MOST_AXES} sides; drop the message")
    return name, _DTYPES[dtype], sides
