"""Random damage to real messages between a server and its nodes.

Messages of an honest run are recorded, damaged, and given to a node's `handle` and to the server as replies. `resign`
makes of a damaged message what a party that holds the key would send: mutations come from strangers and from parties.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError

Resign = Callable[[int, bytes], bytes]
"""From a node's number and a damaged message to the message as its sender would sign it."""


@dataclass(frozen=True)
class Recorded:
    """One message of an honest run."""

    node: int
    stage: str
    data: bytes


def unsigned(node: int, data: bytes) -> bytes:
    """Messages without signatures are what they are."""
    del node
    return data


class Mutations:
    """Damages messages.

    Args:
        rng: decides all.
        corpus: of an honest run.
        resign: how a party that holds the key sends what was damaged.
    """

    LARGE = (-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
    ODD: tuple[Any, ...] = (
        None,
        True,
        "",
        "x" * 5000,
        "0-999999999999999",
        "\x1b[2J\n",
        [],
        [[]],
        {},
        {"a": 1},
        0.5,
        1e300,
        *LARGE,
    )

    def __init__(self, rng: np.random.Generator, corpus: Sequence[Recorded], resign: Resign = unsigned) -> None:
        self._rng, self._corpus, self._resign = rng, corpus, resign
        self._ways = (
            self.flip,
            self.cut,
            self.spliced,
            self.lengthened,
            self.field,
            self.nested,
            self.array,
            self.shape,
        )

    def pick(self) -> Recorded:
        """Some message."""
        return self._corpus[int(self._rng.integers(len(self._corpus)))]

    def damaged(self, message: Recorded) -> bytes:
        """A message after one to three mutations, of a stranger or of its sender."""
        data = message.data
        for _ in range(int(self._rng.integers(1, 4))):
            way = self._ways[int(self._rng.integers(len(self._ways)))]
            try:
                data = way(data)
            except (MessageError, ValueError, KeyError, OverflowError, IndexError):
                data = self.flip(data)
        return self._resign(message.node, data) if self._rng.random() < 0.5 else data

    def flip(self, data: bytes) -> bytes:
        """Some bits differ."""
        bent = bytearray(data or b"\0")
        for _ in range(int(self._rng.integers(1, 9))):
            bent[int(self._rng.integers(len(bent)))] ^= 1 << int(self._rng.integers(8))
        return bytes(bent)

    def cut(self, data: bytes) -> bytes:
        """The end is missing."""
        return data[: int(self._rng.integers(len(data) + 1))]

    def lengthened(self, data: bytes) -> bytes:
        """Something follows."""
        return data + self._rng.bytes(int(self._rng.integers(1, 100)))

    def spliced(self, data: bytes) -> bytes:
        """The end is that of another message."""
        other = self.pick().data
        return data[: int(self._rng.integers(len(data) + 1))] + other[int(self._rng.integers(len(other) + 1)) :]

    def field(self, data: bytes) -> bytes:
        """A field is of another kind, huge, gone, or that of another message."""
        packet, other = Packet.decode(data), Packet.decode(self.pick().data)
        fields = dict(packet.fields)
        name = self._one(sorted(fields))
        swapped = dict(other.fields).get(name)
        fields[name] = [swapped, self._odd()][int(self._rng.integers(2))]
        if self._rng.random() < 0.1:
            del fields[name]
        return self._encoded(fields, packet)

    def nested(self, data: bytes) -> bytes:
        """A value somewhere inside a field is odd, the address among them."""
        packet = Packet.decode(data)
        fields = json.loads(json.dumps(dict(packet.fields)))
        inside = fields
        while isinstance(inside, dict | list) and inside:
            key: Any = self._one(sorted(inside)) if isinstance(inside, dict) else int(self._rng.integers(len(inside)))
            if not isinstance(inside[key], dict | list) or not inside[key] or self._rng.random() < 0.2:
                inside[key] = self._odd()
                break
            inside = inside[key]
        return self._encoded(fields, packet)

    def array(self, data: bytes) -> bytes:
        """An array is that of another message, of another kind, shorter, longer, or gone."""
        packet, other = Packet.decode(data), Packet.decode(self.pick().data)
        arrays = dict(packet.arrays)
        name = self._one(sorted(arrays))
        values = arrays.pop(name)
        made = [*other.arrays.values(), values[:-1], np.concatenate([values, values[:1]]), values.astype(np.int8), None]
        chosen = made[int(self._rng.integers(len(made)))]
        if chosen is not None:
            arrays[name] = chosen
        return Packet(packet.fields, arrays).encode()

    def shape(self, data: bytes) -> bytes:
        """A listed shape claims anything."""
        magic, size = struct.unpack_from("<4sI", data)
        header = json.loads(data[8 : 8 + size])
        entry = header["arrays"][int(self._rng.integers(len(header["arrays"])))]
        entry[2] = [self.LARGE[int(n)] for n in self._rng.integers(len(self.LARGE), size=int(self._rng.integers(9)))]
        text = json.dumps(header).encode()
        return struct.pack("<4sI", magic, len(text)) + text + data[8 + size :]

    def _one(self, names: Sequence[str]) -> str:
        return names[int(self._rng.integers(len(names)))]

    def _odd(self) -> Any:
        return self.ODD[int(self._rng.integers(len(self.ODD)))]

    @staticmethod
    def _encoded(fields: dict[str, Any], packet: Packet) -> bytes:
        return Packet(fields, packet.arrays).encode()
