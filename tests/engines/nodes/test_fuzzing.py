"""Whatever is done to real messages, nobody falls, nothing is charged for nothing, and honest work goes on.

`PRIVFED_FUZZ_MINUTES=10 PRIVFED_FUZZ_SEED=7 python -m pytest tests/engines/nodes/test_fuzzing.py` tries as many as fit.
"""

import importlib.util
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node

PLANS = ["none", "secure-sum:clip_norm=10.0", "local-laplace:epsilon0=5,clip_norm=1"]
GATE = 150
LARGEST = 64 * 2**20


def load_fuzzing() -> Any:
    spec = importlib.util.spec_from_file_location("fuzzing", Path(__file__).with_name("fuzzing.py"))
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


fuzzing = load_fuzzing()


def turns() -> Iterator[int]:
    """So many in the gate; as many as the time allows where a time is given."""
    minutes, turn = float(os.environ.get("PRIVFED_FUZZ_MINUTES", "0")), 0
    end = time.monotonic() + 60 * minutes / (2 * len(PLANS))
    while turn < GATE or time.monotonic() < end:
        yield turn
        turn += 1


def seed() -> int:
    return int(os.environ.get("PRIVFED_FUZZ_SEED", "0"))


def renewed() -> Callable[[int, bytes], bytes]:
    """What a server that holds the key makes of a damaged request: one that is newer than all before."""
    serial = time.time_ns()

    def resign(node: int, data: bytes) -> bytes:
        nonlocal serial
        try:
            packet = Packet.decode(data)
            address = packet.fields["address"]
        except (MessageError, KeyError):
            return data
        serial += 1000
        address = address | {"serial": serial} if isinstance(address, dict) else address
        return Packet({**packet.fields, "address": address}, packet.arrays).encode()

    return resign


class Recording(InProcess):
    """Remembers requests and replies."""

    def __init__(self, nodes: dict[int, Node], **more: Any) -> None:
        super().__init__(nodes, **more)
        self.requests: list[Any] = []
        self.replies: list[Any] = []

    def exchange(self, stage: str, requests: Any, timeout: float) -> Any:
        replies = super().exchange(stage, requests, timeout)
        self.requests += [fuzzing.Recorded(node, stage, data) for node, data in requests.items()]
        self.replies += [fuzzing.Recorded(node, stage, data) for node, data in replies.items()]
        return replies


def entries(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in folder.rglob("ledger-*.jsonl"))


def refused(reply: bytes) -> bool:
    return Packet.decode(reply).fields["refused"] is not None


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("plan", PLANS)
def test_damaged_requests(federation: Callable[..., Any], count_server: Any, plan: str) -> None:
    rng, f = np.random.default_rng([seed(), 1]), federation("feddae", plan)
    transport = Recording(f.nodes)
    remote, server = f.remote(transport), count_server()
    assert remote.run(server, 0)
    mutations = fuzzing.Mutations(
        rng, transport.requests, renewed() if "PRIVFED_FUZZ_RESIGN" in os.environ else fuzzing.unsigned
    )
    tracemalloc.start()
    for _ in turns():
        message = mutations.pick()
        stage = message.stage if rng.random() < 0.8 else mutations.pick().stage
        folder = f.folder / f"node{message.node}"
        before, charged, data = state(folder), entries(folder), mutations.damaged(message)
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
        reply = f.nodes[message.node].handle(stage, data)
        assert tracemalloc.get_traced_memory()[1] - held < LARGEST
        if refused(reply):
            assert state(folder) == before, "a refusal leaves the state as it was"
        assert entries(folder) - charged in ((0,) if refused(reply) else (0, 1))
    tracemalloc.stop()
    fresh = f.remote(InProcess(f.fresh()))
    works = [fresh.run(count_server(), t) for t in range(2)]
    assert any(works), "an honest server is answered afterwards"


@pytest.mark.parametrize("plan", PLANS)
def test_damaged_replies(federation: Callable[..., Any], count_server: Any, plan: str) -> None:
    rng, f = np.random.default_rng([seed(), 2]), federation("feddae", plan)
    first = Recording(f.nodes)
    assert f.remote(first).run(count_server(), 0)
    mutations, liar, lies = fuzzing.Mutations(rng, first.replies), 103, 0

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        nonlocal lies
        if node != liar or stage == "train.announce" or rng.random() < 0.5:
            return reply
        lies += 1
        return bytes(mutations.damaged(fuzzing.Recorded(node, stage, reply)))

    g = f
    remote, server, opened = g.remote(InProcess(g.nodes, tamper=tamper)), count_server(), 0
    for turn in turns():
        if turn >= GATE // 10 and "PRIVFED_FUZZ_MINUTES" not in os.environ:
            break
        remote.roster.misses.clear()
        remote.roster.rests.clear()
        if remote.run(server, turn):
            members = remote.guard.ledger.entries[-1].members()
            opened += 1
            assert np.isin(np.concatenate(f.shards[:3]), members).all(), "the honest are in"
            if plan.startswith("secure-sum"):
                assert torch.equal(server.sums[-1][1], f.counts(members))
    assert lies
    assert opened
