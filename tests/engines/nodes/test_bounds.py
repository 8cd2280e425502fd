"""Nothing that arrives in a message drives work or memory before it is bounded."""

import json
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Address, Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.queries import Query

MIB = 2**20
BLOCK = ["real", 1.0, None, False, False, 1.0]


def packet(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<4sI", b"PFN1", len(header)) + header + body


def with_arrays(*listed: Any, body: bytes = b"") -> bytes:
    return packet(json.dumps({"fields": {}, "arrays": listed}).encode(), body)


def with_field(value: str) -> bytes:
    return packet(b'{"fields":{"a":%s},"arrays":[]}' % value.encode())


@contextmanager
def at_most(mib: float) -> Iterator[None]:
    """Memory that Python and numpy take inside, at its peak."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < mib * MIB
    finally:
        tracemalloc.stop()


HOSTILE_HEADERS = {
    "a number of 100,000 digits": with_field("1" * 100_000),
    "a negative number of 100,000 digits": with_field("-" + "1" * 100_000),
    "a number of 4,000 digits": with_field("1" * 4000),
    "a number beyond 64 bits": with_field(str(2**64)),
    "a float beyond all": with_field("1e999"),
    "a negative float beyond all": with_field("-1e999"),
    "a float of 1,000,000 digits": with_field("0." + "1" * 1_000_000),
    "infinity": with_field("Infinity"),
    "a deep list": with_field("[" * 900 + "]" * 900),
    "a deeper list": with_field("[" * 60_000 + "]" * 60_000),
    "a deep object": with_field('{"a":' * 900 + "1" + "}" * 900),
    "four MiB of lists": with_field("[" + "[]," * (2**22 // 3 - 20) + "[]]"),
    "four MiB of numbers": with_field("[" + "1," * (2**21 - 40) + "1]"),
    "four MiB of names": packet(b'{"fields":{' + b",".join(b'"%d":1' % n for n in range(300_000)) + b'},"arrays":[]}'),
    "a lone surrogate": with_field('"\\ud800"'),
    "more arrays than are accepted": with_arrays(*([f"x{n}", "uint8", [0]] for n in range(5000))),
    "no side beside huge ones": with_arrays(["x", "float32", [0, 2**40, 2**40, 2**40]]),
    "huge sides that multiply beyond 64 bits": with_arrays(["x", "float32", [2**40] * 8]),
    "sides that overflow to nothing": with_arrays(["x", "uint8", [2**32, 2**32]]),
    "a side that is true": with_arrays(["x", "uint8", [True]], body=b"x"),
    "a side that is a float": with_arrays(["x", "uint8", [1.0]], body=b"x"),
    "a name with a line break": with_arrays(["a\nb", "uint8", [1]], body=b"x"),
    "a name with an escape": with_arrays(["\x1b[2J", "uint8", [1]], body=b"x"),
    "a name of 201 characters": with_arrays(["x" * 201, "uint8", [1]], body=b"x"),
}


@pytest.mark.parametrize("given", HOSTILE_HEADERS)
def test_a_hostile_header_is_refused_in_small_memory_and_one_line(given: str) -> None:
    with at_most(96), pytest.raises(MessageError) as refused:
        Packet.decode(HOSTILE_HEADERS[given])
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_arrays_without_numbers_make_no_work() -> None:
    """A side of 0 excuses no other side: shapes go on to be multiplied, stacked and compared by whoever reads them."""
    for shape in ([0], [0, 5], [3, 0]):
        assert Packet.decode(with_arrays(["x", "uint8", shape])).arrays["x"].shape == tuple(shape)


def query_fields(**changes: Any) -> bytes:
    address = Address("0" * 32, 0, 1, "train.clear", 0, 0, 0, "0" * 64)
    fields = {"step": "count", "members": "0", "schema": [], "config": {}, "clip_norm": None} | changes
    return codec.request(address, fields)


HOSTILE_QUERIES: dict[str, dict[str, Any]] = {
    "65,536 blocks": {"schema": [[f"b{n}", [1], *BLOCK] for n in range(65_536)]},
    "a block of a product beyond 64 bits": {"schema": [["x", [2**40] * 8, *BLOCK]]},
    "a block of no numbers and a huge side": {"schema": [["x", [0, 2**62], *BLOCK]]},
    "a block with a side beyond 64 bits": {"schema": [["x", [2**63], *BLOCK]]},
    "a block with a name of 100,000 characters": {"schema": [["x" * 100_000, [1], *BLOCK]]},
    "a block with a name that forges a line": {"schema": [["x\n2026 all is well", [1], *BLOCK]]},
    "a weight that is a number of 300 digits": {"schema": [["x", [1], "real", 10**300, None, False, False, 1.0]]},
    "a share that is a number of 300 digits": {"schema": [["x", [1], "real", 1.0, None, False, False, 10**300]]},
    "a config of 200,000 values": {"config": {f"k{n}": 1 for n in range(200_000)}},
    "a config with a number of 400 digits": {"config": {"lr": 10**400}},
    "a config with a number beyond 64 bits": {"config": {"epochs": 2**64}},
    "a config with a name of 100,000 characters": {"config": {"x" * 100_000: 1}},
    "members up to a quadrillion": {"members": "0-999999999999999"},
    "members up to 300 millions": {"members": "0-300000000"},
    "members beyond the population": {"members": "45"},
    "members of four MiB": {"members": "0," * 2_000_000},
    "a step of 100,000 characters": {"step": "x" * 100_000},
    "a step in other letters": {"step": "tr\u0430in"},
    "a clip norm of 400 digits": {"clip_norm": 10**400},
}


def read(request: bytes) -> Query:
    found = Packet.decode(request)
    address = codec.address_of(found)
    return Query.read(found, address, 2**23, 45)


@pytest.mark.parametrize("given", HOSTILE_QUERIES)
def test_a_hostile_query_is_refused_in_small_memory_and_one_line(given: str) -> None:
    request = query_fields(**HOSTILE_QUERIES[given])
    with at_most(96), pytest.raises(MessageError) as refused:
        read(request)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400
    assert "not those that the request is bound to" not in str(refused.value), "refused for itself, before any digest"
