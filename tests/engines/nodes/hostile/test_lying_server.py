"""A server that lies to a node under the key that the federation file names; what it is promised: nothing."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.measuring import measure_schema
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.queries import Query
from privfed.federation import Message
from privfed.methods.shared.vae_server import COUNTS
from tests.engines.nodes.hostile.liars import FORGERY, Server, counts, told, unchanged

CLEAR = Policy(allow_simulation=True, mechanisms=("clip_only",), min_own_users=5)
CLIP = "clip:clip_norm=1.0,order=2"
LAPLACE = "local-laplace:epsilon0=1,clip_norm=1"
HUGE, NO_NAMES = "0-999999999999999", ("__init__", "_x", "a.b", "", "x" * 201, "\u0441ount")


@pytest.fixture
def victim(standing: Callable[..., Any]) -> Server:
    """A server that announced a run to a node and was answered one query: cohort 3, round 3."""
    f = standing("clear", CLIP, policy=CLEAR)
    if not hasattr(f, "speaker"):
        f.speaker = Server(f, f.nodes[100])
        assert f.speaker.announce()["refused"] is None
        assert f.speaker.clear(counts(f, 3), each=False)["refused"] is None
        f.tried = f.speaker.counter
    f.speaker.counter = f.tried
    return f.speaker


def bound(server: Server, name: str, *values: Any) -> list[Packet]:
    """What is said to requests whose address says other things in one field."""
    asked = counts(server.f, 4)
    return [
        server.say("train.clear", {**asked.fields(), "each": False}, {}, asked, **{name: value}) for value in values
    ]


def fields(server: Server, **changes: Any) -> list[Packet]:
    """What is said to a query of which one small value is another, for each value."""
    ((name, values),) = changes.items()
    return [server.clear(counts(server.f, 4), each=False, **{name: value}) for value in values]


def asked(server: Server, *queries: Query) -> list[Packet]:
    return [server.clear(query, each=False) for query in queries]


def raw(server: Server, text: str, array: np.ndarray | None = None) -> list[Packet]:
    """What is said to a signed request whose header is this text."""
    body = b"" if array is None else array.tobytes()
    header = text.encode()
    message = struct.pack("<4sI", b"PFN1", len(header)) + header + body
    return [server.answer("train.clear", server.f.server.frame("request", message))]


def header(server: Server, array: list[Any] | None = None, **changes: str) -> str:
    """The header of an honest query, in which some values are written as given."""
    query = counts(server.f, 4)
    address = told(query, server.announced).address(
        server.announced.run, 0, server.counter + 1, "train.clear", server.nonce
    )
    packet = Packet.decode(codec.request(address, {"counted": None, **query.fields(), "each": False}))
    values = {name: json.dumps(value) for name, value in packet.fields.items()} | changes
    listed = ",".join(f'"{name}":{value}' for name, value in values.items())
    return f'{{"fields":{{{listed}}},"arrays":{json.dumps([] if array is None else [array])}}}'


def model(f: Any, value: float) -> Message:
    """A model of which every number is the same."""
    server = f.announced().assemble(f.server_data, bytes(32)).server
    message = server.public()
    return Message({name: torch.full_like(t, value) for name, t in message.shared.items()}, {}, message.config)


REFUSED: dict[str, tuple[Callable[[Server], list[Packet]], str, str]] = {
    "the run's name is a number, upper case, or too long": (
        lambda s: bound(s, "run", 7, "A" * 32, "0" * 33, None, ["0" * 32]), "bad_message", "bad run"),
    "the run was announced to nobody": (lambda s: bound(s, "run", "f" * 32), "unknown_run", "not announced"),
    "the seat is negative, huge, true, a text or a fraction": (
        lambda s: bound(s, "seat", -2, 2**63, True, "0", 0.0), "bad_message", ""),
    "the request is for another node": (lambda s: bound(s, "seat", 1, -1, 2**62), "bad_message", "another node"),
    "the counter is negative, beyond 64 bits, true, a text or missing": (
        lambda s: bound(s, "counter", -2, 2**63, True, "9", None, 1e300), "bad_message", ""),
    "the counter was used before, or an older one": (
        lambda s: bound(s, "counter", s.f.tried, 1, 0, -1), "bad_message", "a replay"),
    "the nonce is of another announcement": (lambda s: bound(s, "nonce", "0" * 32, ""), "unknown_run", "announced"),
    "the nonce is longer than any": (lambda s: bound(s, "nonce", "x" * 201, FORGERY * 50, 3), "bad_message", "nonce"),
    "the stage is another than the transport's": (
        lambda s: [s.say("train.settle", by="train.clear"), s.say("train.clear", by="train.settle")],
        "bad_message", "another stage"),
    "the stage is one that no node knows": (
        lambda s: [s.say("train.steal"), s.say(FORGERY), s.say("")], "bad_message", "no node knows"),
    "the round is before the last, beyond the run, or no number": (
        lambda s: asked(s, counts(s.f, 4, round=2), counts(s.f, 4, round=1000), counts(s.f, 4, round=2**62)),
        "refused", ""),
    "the round, cohort or query of the address is another than the query's": (
        lambda s: [*bound(s, "round", 7), *bound(s, "cohort_id", 9), *bound(s, "query_id", 1)],
        "bad_message", "not the one that the request is bound to"),
    "two cohorts in one round, or one cohort in two rounds": (
        lambda s: asked(s, counts(s.f, 4, round=3), counts(s.f, 3, round=4)), "refused", "one cohort per round"),
    "a cohort before the last": (lambda s: asked(s, counts(s.f, 2)), "refused", "older"),
    "more queries of a cohort than the method makes": (
        lambda s: [s.clear(counts(s.f, 3, query_id=1), each=False, counted=[3, 0])], "refused", "the run makes 1"),
    "a query whose number skips others": (
        lambda s: asked(s, counts(s.f, 4, query_id=1), counts(s.f, 4, query_id=2**62)), "refused", "sits out"),
    "the digest of the blocks is another": (
        lambda s: bound(s, "schema", "0" * 64, "", FORGERY), "bad_message", "blocks queried"),
    "the digest of the model is another": (
        lambda s: bound(s, "model", "0" * 64, "", FORGERY), "bad_message", "model in the query"),
    "a block that the clients' step does not fill as declared": (
        lambda s: asked(s, counts(s.f, 4, schema={COUNTS: Block((70,), "integer")}),
                        counts(s.f, 4, schema={COUNTS: Block((71,))})), "refused", ""),
    "blocks that are none": (
        lambda s: fields(s, schema=["all", [["x"]], [[COUNTS, [2**40], "real", 1.0, None, False, False, 1.0]],
                                    [[COUNTS, [0], "real", 1.0, None, False, False, 1.0]],
                                    [[COUNTS, [70], "real", 0.0, None, False, False, 1.0]],
                                    [[COUNTS, [70], "real", 1.0, None, False, False, 2.0]], 7, None]),
        "bad_message", ""),
    "a step that clients do not have": (
        lambda s: asked(s, *(counts(s.f, 4, step=step) for step in ("steal", "commit", "state", "load", "score"))),
        "refused", "no step"),
    "a step that is no name": (
        lambda s: asked(s, *(counts(s.f, 4, step=step) for step in NO_NAMES)),
        "bad_message", "step"),
    "a step without the model that it needs": (
        lambda s: asked(s, *(counts(s.f, n, step="train") for n in range(4, 12))), "node_failed", "its own log"),
    "members of another organisation": (
        lambda s: asked(s, counts(s.f, 4, members=s.f.shards[1]), counts(s.f, 4, members=np.array([0, 44]))),
        "refused", "does not host"),
    "one member alone, or all but one": (
        lambda s: asked(s, counts(s.f, 4, members=s.f.shards[0][:1]), counts(s.f, 4, members=s.f.shards[0][:-1])),
        "refused", "leaves users out"),
    "no members where the rule leaves it to nobody": (
        lambda s: asked(s, counts(s.f, 4, members=None)), "refused", "names no members"),
    "members up to a quadrillion, of the wrong kind, twice or unordered": (
        lambda s: fields(s, members=[HUGE, "0-300000000", 7, ["0"], "0,0", "5,3", "-1", FORGERY]), "bad_message", ""),
    "a clip norm that is negative, huge, of another kind, or not the plan's": (
        lambda s: [*fields(s, clip_norm=[-1.0, 0.0, "1", True, [1.0]])], "bad_message", "clip_norm"),
    "a clip norm where the plan fixes it": (
        lambda s: asked(s, counts(s.f, 4, clip_norm=1e9)), "policy", "only the plan's own"),
    "a setting that is NaN or infinite": (
        lambda s: [*raw(s, header(s, config='{"lr":NaN}')), *raw(s, header(s, clip_norm="Infinity")),
                   *raw(s, header(s, config='{"lr":1e999}'))], "bad_message", "header is no JSON"),
    "a model with NaN or infinity": (
        lambda s: [*raw(s, header(s, ["shared/w", "float32", [1]]), np.full(1, np.nan, "<f4")),
                   *raw(s, header(s, ["shared/w", "float64", [1]]), np.full(1, np.inf, "<f8"))],
        "bad_message", "NaN or infinity"),
    "single uploads where the plan releases sums": (
        lambda s: [s.say("train.clear", {**counts(s.f, 4).fields(), "each": one}, {}, counts(s.f, 4))
                   for one in (3, "yes", None)], "refused", "no single uploads"),
    "a masked input that nobody agreed to": (
        lambda s: [s.say("train.input", counts(s.f, 4).fields(), {"go_ahead": np.zeros(3, np.uint8)}, counts(s.f, 4))],
        "refused", "in no masked sum"),
    "the outcome of the last query is no query": (
        lambda s: [s.say("train.settle", {"counted": one}) for one in (3, "x", [1], [1, -1], [1, 2, 3], [True, 0])],
        "bad_message", "counted"),
    "a receipt that the node never signed": (
        lambda s: [s.say("train.settle", {"receipt": one}) for one in (
            7, [1], [10**6, "0" * 64, "0" * 128], [10**6, "0" * 64, "zz"], ["1", "", ""], [2**62, FORGERY, FORGERY])],
        "bad_message", "receipt"),
    "the receipt of another node": (
        lambda s: [s.say("train.settle", {"receipt": [
            10**6, "0" * 64, s.f.parties[101].sign("receipt", f"1 {10**6} {'0' * 64}".encode()).hex()]})],
        "bad_message", "receipt"),
    "metrics where the policy lets none leave": (
        lambda s: asked(s, metrics(s)), "refused", "evaluate = false"),
    "an address with more fields, or fewer": (
        lambda s: [*raw(s, header(s, address='{"run":"0"}')), *raw(s, header(s, address='[]')),
                   *raw(s, header(s, address=f'{{"run":"{"0" * 32}","seat":0,"counter":9,"stage":"x","round":0,'
                                             '"cohort_id":0,"query_id":0,"schema":"","model":"","nonce":"","x":1}'))],
        "bad_message", "not complete"),
    "a name that is given twice": (
        lambda s: raw(s, header(s)[:-1] + ',"arrays":[]}'), "bad_message", "header is no JSON"),
}  # fmt: skip


def metrics(server: Server) -> Query:
    schema = measure_schema(server.announced.config.protocol, ["valid"])
    shared = server.node.private_side.assembly.server.public().shared
    return Query("measure", 4, 4, 0, None, Message(shared, {}, {"valid": 1}), schema)


@pytest.mark.parametrize("lie", REFUSED)
def test_a_request_is_refused_and_costs_nothing(victim: Server, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    made, code, said = REFUSED[lie]
    entries = [entry.address for entry in victim.ledger.entries]
    with unchanged(victim.node.folder):
        for reply in made(victim):
            assert reply.fields.get("code") == code, reply.fields
            assert said in str(reply["refused"])
            assert not reply.arrays
            assert str(victim.f.folder) not in str(reply.fields)
    assert [entry.address for entry in victim.ledger.entries] == entries
    assert all(line.isprintable() and line.isascii() for line in caplog.messages)


def test_users_on_whom_training_diverges_send_zeros(federation: Callable[..., Any]) -> None:
    """A refusal, which no noise hides, would say that somebody has the item whose row is huge."""
    f = federation("feddae", CLIP, policy=CLEAR, rounds=10)
    server, message = Server(f, f.nodes[100]), model(f, 3e38)
    assert server.announce()["refused"] is None
    schema = {name: Block(tuple(values.shape)) for name, values in message.shared.items()}
    query = counts(f, 4, step="train", message=message, schema=schema)
    reply = server.clear(query, each=False)
    assert reply["refused"] is None
    assert reply.arrays
    assert all(np.isfinite(sums).all() for sums in reply.arrays.values())
    assert [entry.address for entry in server.ledger.entries] == [(4, "train", 0)]


SHORT = ("fedmf", "fedncf", "pfedrec")


@pytest.mark.parametrize("method", SHORT)
def test_users_whose_items_a_model_leaves_out_send_zeros(
    federation: Callable[..., Any], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal would say that somebody has one of the last items."""
    f = federation(method, CLIP, policy=CLEAR, rounds=10)
    server, whole = Server(f, f.nodes[100]), model(f, 0.1)
    short = {name: values[:60] if len(values) == 70 else values for name, values in whole.shared.items()}
    assert any(len(values) == 60 for values in short.values())
    assert server.announce()["refused"] is None
    schema = {name: Block(tuple(values.shape)) for name, values in short.items()}
    message = Message(short, {}, whole.config)
    reply = server.clear(counts(f, 4, step="train", message=message, schema=schema), each=False)
    assert reply["refused"] is None
    assert all(np.isfinite(sums).all() for sums in reply.arrays.values())
    assert len(server.ledger.entries) == 1
    assert "who send zeros" in caplog.messages[-1]


# Announcements --------------------------------------------------------------------------------------------------------

RUN = "5" * 32


def announced(f: Any, **changes: Any) -> Packet:
    """What a node says to a new run whose announcement says something else."""
    given = {"run": RUN} | {key: changes.pop(key) for key in ("run", "seeded") if key in changes}
    return Server(f, f.nodes[101], f.announced(**given)).announce(**changes)


def planned(f: Any, plan: str, **changes: Any) -> Packet:
    """What a node says to a run of another plan."""
    from privfed.privacy import PrivacyPlan

    config = f.config.model_copy(update={"privacy": PrivacyPlan.parse(plan)} | changes)
    said = Announcement.from_config(config, f.server_data, f.server.federation, seeded=True, run=RUN)
    return Server(f, f.nodes[101], said).announce()


def own_method(f: Any) -> str:
    """A file whose code says that it was run."""
    file = f.folder / "mine.py"
    file.write_text("raise RuntimeError('this file was run')\n")
    return str(file)


ANNOUNCED: dict[str, tuple[Callable[[Any], Packet], str, str]] = {
    "a run of another federation file": (
        lambda f: announced(f, federation="0" * 64), "other_federation", "another federation file"),
    "a population of a trillion": (lambda f: announced(f, population=10**12), "bad_message", "other users"),
    "another catalogue": (lambda f: announced(f, items=71), "bad_message", "other users or items"),
    "more queries of a cohort than the method makes": (
        lambda f: announced(f, queries=2**62), "refused", "its method makes 1"),
    "a seed for keys and a public key besides": (lambda f: announced(f, public="0" * 64), "refused", "seed"),
    "a field that nobody knows": (lambda f: announced(f, extra=FORGERY), "refused", ""),
    "the announcement is of another run than the request": (
        lambda f: Server(f, f.nodes[101], f.announced(run=RUN)).say(
            "train.announce", {"announcement": f.announced(run="6" * 32).model_dump(mode="json")}),
        "bad_message", "another run"),
    "a plan whose mechanism the policy does not list": (
        lambda f: planned(f, "secure-sum:clip_norm=1"), "policy", "allows clip_only"),
    "a method that does not exist": (
        lambda f: announced(f, config=f.announced().model_dump(mode="json")["config"] | {"method": {"name": FORGERY}}),
        "refused", "unknown method"),
    "a method in a file on the node's disk": (
        lambda f: announced(
            f, config=f.announced().model_dump(mode="json")["config"] | {"method": {"name": f"{own_method(f)}:METHOD"}}
        ), "refused", "installed at every party"),
    "more rounds than the policy allows": (
        lambda f: planned(f, CLIP, rounds=10**6), "policy", "1000 in all"),
    "an announcement for another seat": (
        lambda f: Server(f, f.nodes[101], f.announced(run=RUN)).say(
            "train.announce", {"announcement": f.announced(run=RUN).model_dump(mode="json")}, seat=2),
        "bad_message", "another node"),
    "a run name that leaves the folder": (
        lambda f: Server(f, f.nodes[101]).say("train.announce", {}, run="../../etc/" + "0" * 22),
        "bad_message", "bad run"),
}  # fmt: skip


@pytest.mark.parametrize("lie", ANNOUNCED)
def test_an_announcement_is_refused_and_leaves_nothing(
    standing: Callable[..., Any], lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    f = standing("clear", CLIP, policy=CLEAR)
    made, code, said = ANNOUNCED[lie]
    with unchanged(f.nodes[101].folder):
        reply = made(f)
        assert reply.fields.get("code") == code, reply.fields
        assert said in str(reply["refused"])
    assert f.nodes[101].ledger is None
    assert all(line.isprintable() for line in caplog.messages)


# Budgets and runs -----------------------------------------------------------------------------------------------------


def test_a_server_that_makes_queries_fail_burns_no_budget(federation: Callable[..., Any]) -> None:
    """Steps that do not exist or fail, and members who may not be named: the whole budget is there afterwards."""
    policy = Policy(allow_simulation=True, mechanisms=("local_laplace",), max_epsilon=1.5)
    f = federation("feddae", LAPLACE, policy=policy, rounds=100)
    server = Server(f, f.nodes[100])
    assert server.announce()["refused"] is None
    for n in range(3):
        for asked_ in (counts(f, n, step="steal"), counts(f, n, step="train"), counts(f, n, members=f.shards[0][:1])):
            assert server.clear(asked_, each=True)["refused"] is not None
    assert not server.ledger.entries
    said = [server.clear(counts(f, 20 + n), each=True)["refused"] for n in range(2)]
    assert [one is None for one in said] == [True, False]
    assert "max_epsilon = 1.5" in said[1]
    assert len(server.ledger.entries) == 1


def test_concurrent_runs_share_one_budget_and_do_not_evict_one_another(federation: Callable[..., Any]) -> None:
    policy = Policy(allow_simulation=True, mechanisms=("local_laplace",), max_epsilon=3.5, max_runs=2)
    f = federation("feddae", LAPLACE, policy=policy, rounds=100)
    first, second, third = (Server(f, f.nodes[100], f.announced(run=str(n) * 32)) for n in (1, 2, 3))
    assert first.announce()["refused"] is None
    assert first.clear(counts(f, 0), each=True)["refused"] is None
    assert second.announce()["refused"] is None
    assert second.clear(counts(f, 0), each=True)["refused"] is None
    refused = third.announce()
    assert (refused["code"], "max_runs = 2" in str(refused["refused"])) == ("policy", True)
    assert first.clear(counts(f, 1), each=True)["refused"] is None, "the second run has not evicted the first"
    for server in (first, second):
        said = server.clear(counts(f, 2), each=True)
        assert (said["code"], "3.5" in str(said["refused"])) == ("policy", True)
    assert [len(server.ledger.entries) for server in (first, second)] == [2, 1]
    first.say("train.settle", {"final": True})
    again = Server(f, f.nodes[100], f.announced(run="1" * 32)).announce()
    assert "does not come back" in str(again["refused"])
    over = Server(f, f.nodes[100], f.announced(run="4" * 32))
    assert over.announce()["refused"] is None
    assert over.clear(counts(f, 0), each=True)["refused"] is not None, "leaving a run gives nothing back"


def test_a_counter_of_two_to_the_62_costs_its_own_run_alone(federation: Callable[..., Any]) -> None:
    f = federation("feddae", CLIP, policy=CLEAR, rounds=100)
    lying = Server(f, f.nodes[100], f.announced(run="1" * 32))
    lying.counter = 2**63 - 2
    assert lying.announce()["refused"] is None
    lying.counter = 5
    assert "replay" in str(lying.clear(counts(f), each=False)["refused"])
    honest = Server(f, f.nodes[100], f.announced(run="2" * 32))
    assert honest.announce()["refused"] is None
    assert honest.clear(counts(f), each=False)["refused"] is None


def test_a_run_whose_settings_change_is_refused(federation: Callable[..., Any]) -> None:
    f = federation("feddae", CLIP, policy=CLEAR, rounds=100)
    server = Server(f, f.nodes[100])
    assert server.announce()["refused"] is None
    longer = server.announced.config.model_copy(update={"rounds": 99}).model_dump(mode="json")
    with unchanged(server.node.folder):
        assert "other settings" in str(server.announce(config=longer)["refused"])
    assert server.clear(counts(f), each=False)["refused"] is None


def test_names_of_runs_that_nobody_announced_fill_no_memory(victim: Server) -> None:
    for n in range(50):
        victim.say("train.settle", run=f"{n:032x}")
    assert len(victim.node.state._memories) <= 2


def test_after_all_refusals_the_honest_next_query_is_answered(victim: Server) -> None:
    """A bound lie costs the liar alone: nothing that was refused has moved a counter, a budget or a round."""
    f = victim.f
    reply = victim.clear(counts(f, 5), each=False)
    assert reply["refused"] is None
    assert torch.equal(torch.tensor(reply.arrays[f"block/{COUNTS}"]) > 0, f.counts(f.shards[0]) > 0)
    assert [entry.cohort_id for entry in victim.ledger.entries] == [3, 5]


def test_metrics_over_fewer_own_users_than_the_policy_asks_for_do_not_leave(standing: Callable[..., Any]) -> None:
    f = standing("metrics", CLIP, policy=Policy(
        allow_simulation=True, mechanisms=("clip_only",), evaluate=True, min_own_users=13))  # fmt: skip
    server = Server(f, f.nodes[100])
    assert server.announce()["refused"] is None
    reply = server.clear(metrics(server), each=False)
    assert (reply["code"], "min_own_users" in str(reply["refused"]), dict(reply.arrays)) == ("policy", True, {})


# Who takes part -------------------------------------------------------------------------------------------------------

FIXED = "secure-sum:clip_norm=10.0,sampling.kind=fixed,sampling.size=20"
COHORTS: dict[str, tuple[str, Policy, Callable[[Server], Any], str, str]] = {
    "one user of the sampled cohort is named alone": (
        FIXED, Policy(allow_simulation=True, min_own_users=1), lambda s: drawn(s)[:1], "refused", "sampling rule"),
    "the cohort is not the one of the public rule": (
        FIXED, Policy(allow_simulation=True, min_own_users=1), lambda s: np.setdiff1d(s.f.shards[0], drawn(s)),
        "refused", "sampling rule"),
    "the rule leaves fewer own users than the policy asks for": (
        FIXED, Policy(allow_simulation=True, min_own_users=12), lambda s: np.array(drawn(s)), "policy",
        "min_own_users"),
    "members are named where each user's secret bit decides": (
        "secure-sum:clip_norm=10.0,sampling.kind=poisson,sampling.rate=0.5", Policy(allow_simulation=True),
        lambda s: s.f.shards[0], "refused", "secret random bit"),
    "a rate so low that a sum expects less than one own user": (
        "secure-sum:clip_norm=10.0,sampling.kind=poisson,sampling.rate=0.05", Policy(allow_simulation=True),
        lambda s: None, "policy", "min_own_users"),
    "noise in shares that rests on users of other nodes": (
        "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=20", Policy(allow_simulation=True),
        lambda s: s.f.shards[0], "policy", "own_noise_suffices"),
    "noise in shares that suffices in rounds of many own users only": (
        "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=3,sampling.kind=poisson,"
        "sampling.rate=0.7", Policy(allow_simulation=True, min_own_users=1), lambda s: None, "policy",
        "0 of this node's"),
    "a plain sum under a plan of masked sums": (
        "secure-sum:clip_norm=10.0", Policy(allow_simulation=True), lambda s: s.f.shards[0], "refused", "masked sums"),
}  # fmt: skip


def drawn(server: Server) -> np.ndarray:
    """Own users that the public rule chooses in round 0."""
    return np.intersect1d(server.node.private_side.cohort(0), server.f.shards[0])


@pytest.mark.parametrize("lie", COHORTS)
def test_who_takes_part_is_not_the_server_s_word(federation: Callable[..., Any], lie: str) -> None:
    """Admission is asked itself, as it is before a masked input: a whole masked sum would say no more."""
    from privfed.engines.nodes.errors import NodesError

    plan, policy, chosen, code, said = COHORTS[lie]
    f = federation("feddae", plan, policy=policy, nodes=3)
    server = Server(f, f.nodes[100])
    assert server.announce()["refused"] is None
    node = server.node
    if lie.startswith("a plain sum"):
        with unchanged(node.folder):
            reply = server.clear(counts(f), each=False)
        assert (reply["code"], said in str(reply["refused"])) == (code, True)
        return
    with node.state.locked():
        node.state.open(server.announced.run)
        with pytest.raises(NodesError, match=said) as refused:
            node._admission.admit(counts(f, members=chosen(server)))
    assert refused.value.code == code
    assert not server.ledger.entries
