"""Sums between two servers of which one lies: nothing opens but sums of enough nodes, once each.

A server lies to nodes and to the helper under its real key, in sums of a standing federation, a query each. A helper
lies to an honest server; so do nodes.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.privacy.fuzz_nodes.drafts import Draft, array, extra, field, taken
from privfed.engines.nodes import helper as helpers
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.two_servers import HELPER_PART_BYTES, SealingKey, SumRequest
from privfed.federation import Message
from privfed.guards.ring_code import RingCode
from privfed.methods.shared.vae_server import COUNTS
from secure_agg.errors import MessageRefused, RoundAborted
from secure_agg.primitives.keys import SIGNATURE_BYTES, Identity, KeyPair
from secure_agg.two_server import SumServer
from tests.engines.nodes.conftest import HELPER
from tests.engines.nodes.hostile.liars import Server, counts, joined, told, unchanged

SECURE = "secure-sum:clip_norm=10.0"
POLICY = Policy(allow_simulation=True, min_nodes=3, min_threshold=2, min_users=33)
NODES = 4


class Sum:
    """The server of one sum, which may say what it likes to whom it likes.

    Args:
        table: of the federation.
        wanted: what its request says instead.
    """

    def __init__(self, table: "Table", cohort: int | None = None, number: int | None = None, **wanted: Any) -> None:
        table.number += 1
        self.table, self.f, self.cohort = table, table.f, table.number if cohort is None else cohort
        self.keys, number = KeyPair.generate(), table.number if number is None else number
        query = told(self.asked(0), table.announced)
        keys = self.keys.public, table.sealing.key
        self.request = replace(SumRequest.of_query(query, number, 3, (70, 32), keys), **wanted)
        self.replies: dict[int, Packet] = {}

    def asked(self, seat: int) -> Any:
        return counts(self.f, self.cohort, members=self.f.shards[seat])

    def upload(self, seat: int, query: Any = None, sealing: Any = None, server: Any = None, **changes: Any) -> Packet:
        """Ask one node for its parts."""
        query, sealing = query or self.asked(seat), sealing or self.table.sealing
        values = {"number": self.request.number, "min_nodes": self.request.min_nodes} | changes
        arrays = {"server_key": as_array(self.request.server_key), **sealing.arrays()}
        server = server or self.table.servers[seat]
        return server.say("train.upload", {**query.fields(), **values}, {**arrays, **query.arrays()}, query)

    def collect(self, seats: Iterable[int] = range(NODES)) -> "Sum":
        """Honest uploads of some nodes."""
        self.replies = {seat: self.upload(seat) for seat in seats}
        assert not [said["refused"] for said in self.replies.values() if said["refused"] is not None]
        return self

    def server(self, **changes: Any) -> SumServer:
        """The sum of the request, once more from its beginning."""
        terms = replace(self.request, **changes).terms(self.table.announced, self.f.server.federation)
        return SumServer(terms, 0, self.keys, self.f.server.federation.directory(), min_clients=terms.min_clients)

    def ask(self, seats: Iterable[int] | None = None, parts: Any = None, helper: Any = None, **changes: Any) -> Packet:
        """Ask the helper for its share of the sum over some of the nodes; the sum is `opened`."""
        self.opened = self.server(**changes)
        chosen = list(self.replies if seats is None else seats)
        for seat in chosen:
            with suppress(MessageRefused, RoundAborted):  # under terms that it lies about
                self.opened.receive(self.replies[seat].arrays["first"].tobytes())
        own = [self.replies[seat].arrays["second"] for seat in chosen] if parts is None else parts
        stacked = np.stack(own) if len(own) else np.zeros((0, HELPER_PART_BYTES), np.uint8)
        arrays = {"server_key": as_array(self.request.server_key), "proposal": as_array(self.opened.propose())}
        fields = replace(self.request, **changes).fields()
        return (helper or self.table.helper).say("train.release", fields, {**arrays, "parts": stacked})

    def total(self, said: Packet) -> tuple[torch.Tensor, tuple[int, ...]]:
        """The sum in a helper's answer, and who is in it."""
        assert said["refused"] is None, said["refused"]
        self.opened.release(said.arrays["proposal"].tobytes())
        result = self.opened.result(said.arrays["release"].tobytes())
        code = RingCode(self.f.config.privacy.mechanism, {COUNTS: self.asked(0).schema[COUNTS]}, 45)
        return code.decode(result.total)[COUNTS].float(), result.clients


class Table:
    """A federation that has joined one run with its helper."""

    def __init__(self, f: Any) -> None:
        self.f, self.number = f, 0
        self.servers = joined(f)
        self.announced = self.servers[0].announced
        self.join()

    def join(self) -> None:
        """Announce the run to the helper's process of now."""
        counter = self.helper.counter if hasattr(self, "helper") else 0
        self.helper = Server(self.f, self.f.helper, self.announced)
        self.helper.counter = counter
        said = self.helper.announce()
        self.sealing = SealingKey.read(said, self.f.server, self.announced.run)

    def released(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(one.number, one.organisations) for one in self.f.helper.released(self.announced.run)]

    def counts(self, *seats: int) -> torch.Tensor:
        return self.f.counts(np.concatenate([self.f.shards[seat] for seat in seats]))


@pytest.fixture
def table(standing: Callable[..., Any]) -> Table:
    f = standing("two servers", SECURE, policy=POLICY, nodes=NODES, seeded=False, helped=True, fidelity="two-servers")
    if not hasattr(f, "table"):
        f.table = Table(f)
    return f.table


def refused(said: Packet, *words: str) -> None:
    assert said["refused"] is not None
    assert all(word in said.text("refused") for word in words), said["refused"]


def test_all_are_told_the_truth(table: Table) -> None:
    asked = Sum(table).collect()
    total, nodes = asked.total(asked.ask())
    assert torch.equal(total, table.counts(*range(NODES)))
    assert nodes == (0, 1, 2, 3) == table.released()[-1][1]


# A server that lies to the helper ------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [3, 2])
def test_too_few_nodes_are_left_in_a_sum(table: Table, least: int) -> None:
    asked = Sum(table).collect()
    before = table.released()
    for seats in ((1, 2), (1,), ()):
        refused(asked.ask(seats, min_nodes=least), "3 are needed" if least == 3 else "minimum is 3")
    assert table.released() == before
    assert asked.total(asked.ask())[1] == (0, 1, 2, 3)


def test_a_sum_is_asked_for_again_over_other_nodes(table: Table) -> None:
    asked = Sum(table).collect()
    assert asked.total(asked.ask())[1] == (0, 1, 2, 3)
    before = table.released()
    refused(asked.ask([0, 1, 2]), "does so once")
    refused(asked.ask([0, 1, 2], number=asked.request.number + 1000), "sum of that query")
    refused(asked.ask([0, 1, 2], number=asked.request.number + 1000, measured=True), "0 uploads are accepted")
    refused(asked.ask([0, 1, 2], number=asked.request.number + 1000, query_id=1), "no such query")
    assert table.released() == before


def test_parts_are_relayed_for_another_sum_or_in_another_node_s_name(table: Table) -> None:
    earlier, asked = Sum(table).collect(), Sum(table).collect()
    second = {seat: said.arrays["second"] for seat, said in asked.replies.items()}
    old = earlier.replies[0].arrays["second"]
    bent = second[0].copy()
    bent[100] ^= 1
    for lie in (old, bent, second[1], second[0][::-1].copy()):
        refused(asked.ask([0, 1, 2], [lie, second[1], second[2]]), "2 uploads are accepted", "3 are needed")
    first = earlier.replies[0].arrays["first"].tobytes()
    with pytest.raises(Exception, match="round"):
        asked.server().receive(first)
    total, nodes = asked.total(asked.ask(range(NODES), [old, *(second[seat] for seat in (1, 2, 3))]))
    assert nodes == (1, 2, 3)
    assert torch.equal(total, table.counts(1, 2, 3))


def test_a_request_to_the_helper_is_played_back(table: Table) -> None:
    asked, frames = Sum(table).collect(), list[bytes]()
    answer = table.helper.answer
    table.helper.answer = lambda stage, frame: (frames.append(frame), answer(stage, frame))[1]  # type: ignore[method-assign]
    asked.total(asked.ask())
    del table.helper.answer
    before = table.released()
    refused(table.helper.answer("train.release", frames[0]), "replay")
    assert table.released() == before


@pytest.mark.parametrize("restored", [False, True], ids=["as it was", "its folder restored from a copy"])
def test_the_helper_starts_again_between_requests(table: Table, restored: bool) -> None:
    asked, folder, copy = Sum(table).collect(), table.f.folder / "helper", table.f.folder / "copy"
    shutil.copytree(folder, copy)
    assert asked.total(asked.ask())[1] == (0, 1, 2, 3)
    if restored:  # the folder alone: the process still knows what it released, and with which key
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        refused(asked.ask([0, 1, 2]), "do not follow")
    shutil.rmtree(copy)
    table.f.helper = table.f.new_helper()
    table.helper.node = table.f.helper
    refused(asked.ask([0, 1, 2]), "announce it first")
    table.join()
    if not restored:  # what it wrote down is enough
        refused(asked.ask([0, 1, 2]), "does so once")
        return
    refused(asked.ask([0, 1, 2]), "not one of server 0 for this sum")
    refused(asked.ask([0, 1, 2], helper_key=table.sealing.key), "0 uploads are accepted")
    fresh = Sum(table).collect()
    assert fresh.total(fresh.ask())[1] == (0, 1, 2, 3)


def test_the_helper_is_told_of_another_run_than_the_nodes(table: Table) -> None:
    changed = table.announced.config.model_copy(update={"seed": 4})
    other = Server(table.f, table.f.helper, table.announced.model_copy(update={"config": changed}))
    other.counter = table.helper.counter
    refused(other.say("train.announce", {"announcement": other.announced.model_dump(mode="json")}), "other settings")
    table.helper.counter = other.counter


def test_the_helper_cannot_write_down_what_it_releases(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, before = Sum(table).collect(), table.released()

    def full(path: Any, data: bytes) -> None:
        raise StateError(f"{path} cannot be written (no space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(helpers, "write_file", full)
        said = asked.ask()
    refused(said, "its own log says")
    assert not said.arrays
    assert table.released() == before
    refused(asked.ask([0, 1, 2]), "do not follow")


def test_a_sum_is_longer_than_any_message(table: Table) -> None:
    asked = Sum(table)
    arrays = {"server_key": as_array(asked.keys.public), "proposal": as_array(b"0" * 60)}
    arrays["parts"] = np.zeros((0, HELPER_PART_BYTES), np.uint8)
    said = table.helper.say("train.release", replace(asked.request, length=2**39).fields(), arrays)
    refused(said, "longer than a message")


def test_the_helper_survives_bent_messages(table: Table) -> None:
    asked, rng, frames = Sum(table).collect(), random.Random(5), list[tuple[str, bytes]]()
    answer, helper = table.helper.answer, table.f.helper
    table.helper.answer = lambda stage, frame: (frames.append((stage, frame)), answer(stage, frame))[1]  # type: ignore[method-assign]
    asked.ask([0, 1])  # of too few, so that the number is free
    table.helper.announce()
    del table.helper.answer
    drafts, outcomes = [Draft.of(frame[:-SIGNATURE_BYTES]) for _, frame in frames], Counter[str]()
    for _ in range(300):
        place = rng.randrange(len(drafts))
        draft, stage = drafts[place].copy(), frames[place][0]
        table.helper.counter += 1
        draft.fields["address"] |= {"counter": table.helper.counter, "nonce": table.helper.nonce}
        for bend in rng.choices((field, taken, extra, array), k=rng.choice((0, 1, 1, 2))):
            bend(rng, draft, drafts)
        with suppress(ValueError):  # what cannot be written at all
            frame = table.f.server.frame("request", draft.encode())
            said = Packet.decode(table.f.server.unframe("reply", helper.handle(stage, frame), NODES))
            outcomes["answered" if said["refused"] is None else said.text("code")] += 1
            table.helper.nonce = said.fields.get("nonce", table.helper.nonce)  # type: ignore[assignment]
            table.helper.counter = max(table.helper.counter, int(said.fields.get("counter", 0)))  # type: ignore[arg-type]
            assert str(table.f.folder) not in str(said.fields)
    assert {"answered", "bad_message"} <= outcomes.keys()
    assert "node_failed" not in outcomes
    numbers = [number for number, _ in table.released()]
    assert len(set(numbers)) == len(numbers)
    assert all(len(nodes) >= 3 for _, nodes in table.released())
    fresh = Sum(table).collect()
    assert fresh.total(fresh.ask())[1] == (0, 1, 2, 3)


# A server that lies to nodes -----------------------------------------------------------------------------------------


def test_a_helper_s_key_is_the_server_s_own(table: Table) -> None:
    asked, own = Sum(table), KeyPair.generate().public
    run, f = table.announced.run, table.f
    forged = [
        SealingKey(own, table.sealing.signature),
        SealingKey.sign(f.server, run, own),
        SealingKey.sign(replace(f.server, identity=Identity.generate()), run, own),
        SealingKey.sign(table.f.helper.party, "0" * 32, own),
    ]
    with unchanged(f.nodes[100].folder):
        for sealing in forged:
            said = asked.upload(0, sealing=sealing)
            refused(said, "not signed by helper")
            assert not said.arrays


def test_both_keys_are_the_same(table: Table) -> None:
    asked = Sum(table, server_key=table.sealing.key)
    refused(asked.upload(0), "one server alone could open")


@pytest.mark.parametrize("lie", ["a smaller sum", "an earlier number", "a second time", "under masks"])
def test_a_node_uploads_nothing_when_it_is_asked_for(table: Table, lie: str) -> None:
    asked = Sum(table).collect([3])
    before = len(table.servers[3].ledger.entries)
    later = Sum(table)
    if lie == "a smaller sum":
        refused(later.upload(3, min_nodes=2), "accepts 3 or more")
    elif lie == "an earlier number":
        refused(later.upload(3, number=asked.request.number), "do not follow")
    elif lie == "a second time":
        refused(Sum(table, cohort=asked.cohort).upload(3), "does so once")
    else:
        invited = table.servers[3].say("train.invite", {}, {"invitation": as_array(b"none")})
        refused(invited, "made between two servers")
    assert len(table.servers[3].ledger.entries) == before


def test_a_sum_could_be_over_organisations_with_too_few_users(table: Table) -> None:
    node = table.f.nodes[103]
    careful = table.f.node(103, policy=node.policy.model_copy(update={"min_users": 34}))
    server = table.servers[3]
    server.node, before = careful, len(server.ledger.entries)
    said = Sum(table).upload(3)
    server.node = node
    refused(said, "33 users", "34")  # of the two smallest others: 11 each
    assert len(server.ledger.entries) == before


@pytest.mark.parametrize("lie", ["another model", "less noise"])
def test_one_node_is_told_otherwise(table: Table, standing: Callable[..., Any], lie: str) -> None:
    if lie == "another model":
        asked = Sum(table)
        asked.collect([0, 1, 2])
        other = replace(asked.asked(3), message=Message({"model": torch.ones(2)}))
        asked.replies[3] = asked.upload(3, query=other)
        total, nodes = asked.total(asked.ask(parts=None, seats=[0, 1, 2]))
        assert nodes == (0, 1, 2)
        assert torch.equal(total, table.counts(0, 1, 2))
        second = [asked.replies[seat].arrays["second"] for seat in (0, 1, 3)]
        refused(Sum(table).collect([0, 1]).ask([0, 1], second), "0 uploads are accepted")
        return
    plan = "distributed-gaussian:noise_multiplier={},clip_norm=1.0,n_min_honest=20"
    changes = {
        "policy": POLICY.model_copy(update={"own_noise_suffices": False}),
        "nodes": NODES,
        "seeded": False,
        "helped": True,
        "fidelity": "two-servers",
    }
    f = standing("two servers, noise", plan.format(2), **changes)
    told_more = Table(f)
    less = standing("two servers, less noise", plan.format(1), **changes).config
    run = told_more.announced.model_copy(update={"config": less})
    f.nodes[103] = f.node(103, data=f.data[103])
    liar = Server(f, fresh_node(f, 103), run)
    assert liar.announce()["refused"] is None
    asked = Sum(told_more).collect([0, 1])
    query = replace(asked.asked(3), announced=run.digest)
    asked.replies[3] = asked.upload(3, query=query, server=liar)
    assert asked.replies[3]["refused"] is None  # it trains, with less noise
    second = [asked.replies[seat].arrays["second"] for seat in (0, 1, 3)]
    refused(asked.ask([0, 1], second), "2 uploads are accepted")


def fresh_node(f: Any, number: int) -> Any:
    """The node in another folder, as if it had heard of no run."""
    from privfed.engines.nodes.node import Node

    return Node(f.folder / "fresh", policy=f.policy, data=f.data[number], party=f.parties[number])


# A helper that lies, and nodes that do -------------------------------------------------------------------------------


def lying_helper(f: Any, lie: Callable[[dict[str, np.ndarray], int], dict[str, np.ndarray]]) -> InProcess:
    """A helper whose answers are others, under its own key."""
    asked = [0]

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        if node != HELPER or stage != "train.release":
            return reply
        asked[0] += 1
        said = Packet.decode(reply[:-SIGNATURE_BYTES])
        arrays = lie({name: array.copy() for name, array in said.arrays.items()}, asked[0])
        return f.helper.party.frame("reply", Packet(said.fields, arrays).encode())

    return InProcess(f.handlers, tamper=tamper)


KEPT: dict[str, Any] = {}


def of_before(arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """What it answered to the first request."""
    if number == 1:
        KEPT.update(arrays)
    return dict(KEPT)


def another_release(arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """The release of before under the proposal of now."""
    if number == 1:
        KEPT.update(arrays)
    return {**arrays, "release": KEPT["release"]}


LIES: dict[str, Any] = {
    "noise instead of a release": lambda a, n: {**a, "release": a["release"][::-1]} if n > 1 else a,
    "an altered share": lambda a, n: {**a, "release": np.concatenate([a["release"][:-1], a["release"][-1:] ^ 1])},
    "a release that was cut": lambda a, n: {**a, "release": a["release"][:40]},
    "no release": lambda a, n: {"proposal": a["proposal"]},
    "no proposal": lambda a, n: {"release": a["release"]},
    "an altered proposal": lambda a, n: {**a, "proposal": a["proposal"] ^ 1},
    "its release as its proposal": lambda a, n: {"proposal": a["release"], "release": a["release"]},
    "numbers of another kind": lambda a, n: {name: array.astype(np.int64) for name, array in a.items()},
    "the answer to an earlier sum": of_before,
    "the release of an earlier sum": another_release,
}


@pytest.mark.parametrize("lie", LIES, ids=list(LIES))
def test_a_helper_answers(federation: Callable[..., Any], count_server: Any, lie: str) -> None:
    f = federation("feddae", SECURE, helped=True, fidelity="two-servers", rounds=3)
    KEPT.clear()
    remote, server = f.remote(lying_helper(f, LIES[lie])), count_server()
    opened = [remote.run(server, t) for t in range(3)]
    assert not all(opened)
    assert all(torch.equal(total, f.counts(np.arange(45))) for _, total in server.sums)
    assert len(remote.guard.ledger.entries) >= len(server.sums) == sum(opened)


NODE_LIES: dict[str, Any] = {
    "no part for the server": lambda a, kept: {"second": a["second"]},
    "no part for the helper": lambda a, kept: {"first": a["first"]},
    "a part for the helper of another length": lambda a, kept: {**a, "second": a["second"][:-1]},
    "rubbish for the helper": lambda a, kept: {**a, "second": a["second"] ^ 1},
    "rubbish for the server": lambda a, kept: {**a, "first": a["first"] ^ 1},
    "parts of two uploads": lambda a, kept: {**a, "second": kept[101]["second"]},
    "another node's parts": lambda a, kept: kept[101],
    "the part for the helper to the server": lambda a, kept: {"first": a["second"], "second": a["second"]},
}


@pytest.mark.parametrize("lie", NODE_LIES, ids=list(NODE_LIES))
def test_a_node_uploads(federation: Callable[..., Any], count_server: Any, lie: str) -> None:
    f = federation("feddae", SECURE, helped=True, fidelity="two-servers")
    kept: dict[int, dict[str, np.ndarray]] = {}

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        if stage != "train.upload":
            return reply
        said = Packet.decode(reply[:-SIGNATURE_BYTES])
        kept[node] = {name: array.copy() for name, array in said.arrays.items()}
        if node != 103:
            return reply
        return f.parties[103].frame("reply", Packet(said.fields, NODE_LIES[lie](kept[node], kept)).encode())

    remote, server = f.remote(InProcess(f.handlers, tamper=tamper)), count_server()
    assert remote.run(server, 0)
    assert torch.equal(server.sums[0][1], f.counts(np.concatenate(f.shards[:3])))
    assert remote.guard.ledger.entries[-1].members().tolist() == sorted(np.concatenate(f.shards[:3]))
    assert {one.node for one in remote.incidents} == {"node103"}
