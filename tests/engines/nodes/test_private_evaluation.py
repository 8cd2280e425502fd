"""Quality over nodes as one more query of the run: the simulation's numbers, charged before anything leaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.final_queries import AGAIN, measurement
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.loopback import InProcess, Loopback
from privfed.engines.nodes.measuring import measure_schema
from privfed.engines.nodes.operations import round_line
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.run import NOT_MEASURED
from privfed.evaluation import COUNTED, UNCOUNTED, Protocol
from privfed.experiment import Experiment, RunResult
from privfed.federation import Message
from privfed.privacy import PlanError
from privfed.setup.evaluation_query import METRICS, STEP
from tests.engines.nodes.conftest import OPEN
from tests.engines.nodes.hostile.liars import Server
from tests.engines.nodes.test_faults import Deadly, Died

SHARES = "distributed-gaussian:noise_multiplier=0.2,clip_norm=1.0,n_min_honest=20"
CENTRAL = "central-gaussian:noise_multiplier=0.2,clip_norm=1.0"
RECEIVED = Protocol(state="received", ties="pessimistic")
MEASURED = {"private": True, "mu": 2.0}
POLICY = """[policy]
allow_simulation = true
mechanisms = ["distributed_gaussian"]
min_own_users = 1
own_noise_suffices = false
"""


def measuring(federation: Callable[..., Any], method: str = "private-gram", plan: str = SHARES, **more: Any) -> Any:
    fields = {"nodes": 3, "rounds": 1, "evaluation": MEASURED, "protocol": RECEIVED}
    if method == "private-gram":
        fields["settings"] = {"min_items": 0}
    return federation(method, plan, **fields | more)


def simulated(f: Any) -> tuple[RunResult, list[str]]:
    """The same experiment in one process, measured, and the lines of its ledger."""
    folder = f.folder / "measured"
    folder.mkdir()
    result = Experiment(f.config, f.parts).run(folder)
    return result, (folder / "ledger.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    ("method", "plan", "changes"),
    [
        pytest.param("private-gram", SHARES, {}, id="masked-with-popularity"),
        pytest.param("fedmf", SHARES, {"protocol": Protocol(), "rounds": 2}, id="masked-devices-train-first"),
        pytest.param("private-gram", CENTRAL, {}, id="in-the-clear"),
        pytest.param("fedmf", f"{CENTRAL},sampling.kind=poisson,sampling.rate=0.5", {"rounds": 2}, id="own-bits"),
        pytest.param("popularity", SHARES.replace("0.2", "2.0"), {}, id="several-sums"),
    ],
)
def test_metrics_are_those_of_a_simulation_and_so_are_charges(
    federation: Callable[..., Any], method: str, plan: str, changes: dict[str, Any]
) -> None:
    f = measuring(federation, method, plan, **changes)
    expected, charges = simulated(f)
    lines: list[str] = []
    trained = f.train(InProcess(f.fresh()), progress=lambda report: lines.append(round_line(report)))
    assert not trained.incidents
    assert f.ledger_lines() == charges
    assert f"round {f.config.rounds + 1} of {f.config.rounds + 1}: opened with 3 nodes" in lines[-1]
    assert ["ndcg@10" in line and "[" in line for line in lines] == [False] * f.config.rounds + [True]
    ((_, ours),) = trained.history[0].results.items()
    assert trained.history[0].round == expected.history[0].round
    if "distributed" in plan:
        assert ours == expected.test
    for mine, theirs in zip(ours.metrics, expected.test.metrics, strict=True):
        assert (mine.name, mine.k) == (theirs.name, theirs.k)
        for value in ("value", "lo", "hi", "noise"):
            assert getattr(mine, value) == pytest.approx(getattr(theirs, value), abs=1e-4)
    assert COUNTED in trained.guarantee.statements
    assert not any(UNCOUNTED in sentence for sentence in trained.guarantee.statements)
    assert trained.guarantee.epsilon == expected.guarantee.epsilon
    asked = [entry for entry in trained.ledger.entries if entry.step == STEP]
    assert len(asked) == (16 if "2.0" in plan else 1)  # (mu z)^2, where that is more than 1
    for node in f.nodes.values():
        assert node.state.audited().ended[0].rounds == f.config.rounds + 1
        assert node.state.audited().ended[0].epsilon == pytest.approx(trained.guarantee.epsilon)


def test_processes_of_their_own_measure_the_same_and_one_may_have_been_killed(federation: Callable[..., Any]) -> None:
    f = measuring(federation, "popularity", nodes=4)
    expected, charges = simulated(f)
    folders = {number: f.folder / f"node{number}" for number in f.nodes}
    for number, folder in folders.items():
        f.data[number].save(folder)
        f.parties[number].save(folder, f.server.federation.signature(f.operator), f.operator.public)
        (folder / "node.toml").write_text(POLICY)
    killed: list[int] = []

    def fault(node: int, stage: str) -> Any:
        if node == 102 and stage == "train.reveal" and not killed:
            killed.append(node)
            return "kill_after"
        return None

    with Loopback(folders, method="forkserver", faults=fault) as processes:
        trained = f.train(processes, timeout=120.0)
        assert processes.restarts == 1
    assert trained.history[0].results["test"] == expected.test
    assert f.ledger_lines() == charges


class Asker(Server):
    """Asks one node for one measurement or another, in the clear."""

    def __init__(self, f: Any) -> None:
        super().__init__(f, f.nodes[100])
        assembly = self.announced.assemble(f.server_data, bytes(32))
        asking = measurement(assembly)
        message = Message(asking.public().shared, config={AGAIN: 0})
        self.honest = Query(STEP, f.config.rounds, 0, 0, f.shards[0], message, asking.schema)
        self.announce()

    def asks(self, **changes: Any) -> str | None:
        said = self.clear(replace(self.honest, **changes), each=False)["refused"]
        return None if said is None else str(said)

    @property
    def charged(self) -> int:
        return len(self.node.ledger_of(self.announced.run).entries)  # type: ignore[union-attr]

    def block(self, **changes: Any) -> dict[str, Block]:
        return {METRICS: replace(self.honest.schema[METRICS], **changes)}


@pytest.fixture
def asker(federation: Callable[..., Any]) -> Asker:
    return Asker(measuring(federation, plan=CENTRAL))


WRONG: dict[str, Callable[[Asker], dict[str, Any]]] = {
    "before training ends": lambda a: {"round": 0},
    "a round later": lambda a: {"round": 2},
    "another dimension": lambda a: {"schema": a.block(shape=(a.honest.schema[METRICS].size - 1,))},
    "another clip": lambda a: {"schema": a.block(weight=a.honest.schema[METRICS].weight / 2)},
    "charged for less": lambda a: {"schema": a.block(share=a.honest.schema[METRICS].share / 2)},
    "another name": lambda a: {"schema": {"more": a.honest.schema[METRICS]}},
    "a block more": lambda a: {"schema": a.honest.schema | {"more": Block((1,))}},
    "number two": lambda a: {"query_id": 1},
    "training in its place": lambda a: {"step": "popularity"},
    "candidates of a grid": lambda a: {"step": "choose"},
    "candidates in a round of training": lambda a: {"step": "choose", "round": 0},
    "exact sums": lambda a: {"step": MEASURE, "schema": measure_schema(a.f.config.protocol, ("test",))},
    "another clip norm": lambda a: {"clip_norm": 7.0},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_node_answers_the_declared_measurement_and_no_other(asker: Asker, what: str) -> None:
    said = asker.asks(**WRONG[what](asker))
    assert said is not None
    assert said.count(". ") == 0
    assert asker.charged == 0


def test_a_node_answers_it_once(asker: Asker) -> None:
    assert asker.asks() is None
    assert asker.charged == 1
    for again in ({"cohort_id": 1}, {"cohort_id": 1, "round": 2}, {"cohort_id": 1, "round": 0}):
        assert asker.asks(**again) is not None
    assert asker.charged == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda message: Message(message.shared), "does not say whether it was measured before"),
        (lambda message: Message(message.shared, config={AGAIN: 1}), "begins with its first sum"),
        (lambda message: Message({}, config={AGAIN: 0}), "no finite number 'order'"),
        (lambda message: bent(message, lambda order: order[:-3]), "no finite number 'order'"),
        (lambda message: bent(message, lambda order: order * torch.nan), "holds NaN"),
    ],
)
def test_what_devices_cannot_measure_with_is_refused_whoever_they_are(asker: Asker, change: Any, why: str) -> None:
    said = asker.asks(message=change(asker.honest.message))
    assert said is not None
    assert why in said
    assert asker.charged == 0


def bent(message: Message, change: Callable[[torch.Tensor], torch.Tensor]) -> Message:
    return Message({**message.shared, "order": change(message.shared["order"])}, config=message.config)


def test_a_model_that_fails_on_devices_has_them_send_zeros_and_is_charged(asker: Asker) -> None:
    """Whom it fails for is nobody's business; how a user's own device fares decides over nobody else's vector."""
    shared = {**asker.honest.message.shared, "head": torch.full((3,), 999)}
    query = replace(asker.honest, message=Message(shared, config={AGAIN: 0}))
    reply = asker.clear(query, each=False)
    assert reply["refused"] is None
    assert not reply.arrays[f"block/{METRICS}"].any()
    assert asker.charged == 1


def test_a_node_without_anybody_to_measure_sends_zeros(federation: Callable[..., Any]) -> None:
    f = measuring(federation, plan=CENTRAL)
    nothing = f.data[100].parts.test.subset(np.empty(0, np.int64))
    f.data[100] = replace(f.data[100], parts=replace(f.data[100].parts, test=nothing, ratings=None))
    f.nodes[100] = f.node(100)
    asker = Asker(f)
    reply = asker.clear(asker.honest, each=False)
    assert reply["refused"] is None
    assert not reply.arrays[f"block/{METRICS}"].any()


def test_a_policy_without_room_for_it_refuses_before_anything_leaves(federation: Callable[..., Any]) -> None:
    f = measuring(federation, "popularity")
    both = simulated(f)[0].guarantee.epsilon
    alone = Experiment(f.config.model_copy(update={"evaluation": type(f.config.evaluation)()}), f.parts)
    trained = alone.run(parts=()).guarantee.epsilon
    policy = OPEN.model_copy(update={"max_epsilon": (trained + both) / 2, "max_delta": 0.5})
    f.nodes = {number: f.node(number, policy=policy) for number in f.nodes}
    result = f.train()
    assert result.history == []
    assert NOT_MEASURED in result.notices
    assert not any(sentence in (COUNTED, UNCOUNTED) for sentence in result.guarantee.statements)
    assert {"max_epsilon" in incident.reason for incident in result.incidents} == {True}
    for node in f.nodes.values():
        assert node.state.audited().ended[0].epsilon == pytest.approx(trained)


@pytest.mark.parametrize("before", [True, False])
def test_a_server_that_dies_while_it_measures_goes_on_and_measures_once(
    federation: Callable[..., Any], before: bool
) -> None:
    f = measuring(federation, "popularity", policy=OPEN.model_copy(update={"max_delta": 0.5}))
    whole = f.train(name="whole")
    exchanges = whole.traffic.exchanges
    for at in (exchanges - 5, exchanges - 1):
        with pytest.raises(Died):
            f.train(Deadly(InProcess(f.nodes), at, before=before), name=f"killed{at}")
        resumed = f.train(name=f"killed{at}")
        lines = [line for line in f.ledger_lines(f"killed{at}")[1:] if '"evaluate"' in line]
        assert len(lines) <= 1
        assert bool(resumed.history) == bool(lines)
        assert [bool(resumed.history), NOT_MEASURED in resumed.notices].count(True) == 1


def test_exact_parts_and_choices_among_settings_are_refused_at_the_server(federation: Callable[..., Any]) -> None:
    with pytest.raises(NodesError, match="measure no parts"):
        measuring(federation).train(parts=("test",))
    grid = MEASURED | {"grid": {"rank": (0, 64)}}
    with pytest.raises(PlanError, match=r"leave evaluation\.grid out"):
        measuring(federation, evaluation=grid).train()
    with pytest.raises(PlanError, match="nodes give 100 at most: set a smaller"):
        measuring(federation, plan=SHARES.replace("0.2", "10"), evaluation={"private": True, "mu": 1.1}).train()
    with pytest.raises(PlanError, match=r"protocol\.candidates = 'full'"):
        measuring(federation, protocol=Protocol(state="received", candidates="sampled", n_sampled=5)).train()
