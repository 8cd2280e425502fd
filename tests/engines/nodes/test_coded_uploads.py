"""Rounded uploads travel packed, arrive to the bit in the bytes that are counted, and lies are refused."""

from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.queries import coded_arrays, coded_tensors_of
from privfed.federation import Call, Streams
from privfed.guards import ClientGuard
from privfed.privacy import PrivacyPlan
from privfed.updates import ClientUpdates, Dense

SCHEMA = {"items": Block((9, 3)), "head": Block(()), "seen": Block((4,), "integer", bound=1)}
BITS, USERS = 5, 3


def sent() -> tuple[dict[str, torch.Tensor], dict[str, Any], int]:
    """Uploads as their devices have them, their arrays, and the bytes that are counted."""
    rng, users = np.random.default_rng(0), torch.arange(USERS)
    updates = ClientUpdates(
        users, SCHEMA, [
            Dense("items", users, torch.from_numpy(rng.normal(size=(USERS, 9, 3))).float()),
            Dense("head", users, torch.from_numpy(rng.normal(size=USERS)).float()),
            Dense("seen", users, torch.ones(USERS, 4, dtype=torch.int64)),
        ],
    )  # fmt: skip
    guard = ClientGuard(PrivacyPlan.parse(f"none:upload_bits={BITS}"), Streams.from_seed(0))
    steps: dict[str, torch.Tensor] = {}
    call = Call(0, 0, "train", 0, users, Streams.from_seed(1), SCHEMA)
    uploads = guard.protect(updates, call, users, steps=steps)
    return uploads, coded_arrays(uploads, steps, SCHEMA, BITS), guard.upload_bytes(updates)


def test_uploads_arrive_to_the_bit_in_the_bytes_that_are_counted() -> None:
    uploads, arrays, counted = sent()
    packet = Packet.decode(Packet({}, arrays).encode())
    found = coded_tensors_of(packet, SCHEMA, USERS, BITS)
    assert all(found[name].equal(uploads[name]) for name in SCHEMA)
    assert sum(array.nbytes for array in arrays.values()) == counted


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("step/items", np.zeros(USERS, np.float32), "out of range"),
        ("step/items", np.full(USERS, -1, np.float32), "out of range"),
        ("step/items", np.full(USERS, 3e38, np.float32), "out of range"),
        ("step/items", np.ones(USERS + 1, np.float32), "was expected"),
        ("block/items", np.full((USERS, 17), 255, np.uint8), "bits are set after the last"),
        ("block/items", np.tile(np.uint8([16] + [0] * 16), (USERS, 1)), "out of range"),
        ("block/items", np.zeros((USERS, 16), np.uint8), "was expected"),
        ("block/items", np.zeros((USERS, 9, 3), np.float32), "was expected"),
        ("block/other", np.zeros((USERS, 16), np.uint8), "no more and no fewer"),
    ],
)
def test_lies_about_rounded_uploads_are_refused(name: str, value: Any, said: str) -> None:
    arrays = {**sent()[1], name: value}
    with pytest.raises(MessageError, match=said):
        coded_tensors_of(Packet.decode(Packet({}, arrays).encode()), SCHEMA, USERS, BITS)
