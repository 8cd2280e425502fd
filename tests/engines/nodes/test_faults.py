"""Nodes that fall silent at any stage, and servers and nodes that die between any two messages."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.errors import NodesError, StateError
from privfed.engines.nodes.loopback import Fault, InProcess, Loopback
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import Book
from privfed.engines.nodes.run import train
from privfed.engines.simulation import Simulation, TooFewClientsError
from privfed.experiment import Experiment
from privfed.privacy import Ledger, LedgerError
from privfed.privacy.user_ranges import from_ranges
from secure_agg.masking import Identity

SECURE = "secure-sum:clip_norm=1.0"
LAST = ("train.confirm", "train.reveal")
"""Stages after the masked input: who falls silent there is in the sum."""
STAGES = ("train.invite", "train.share", "train.check", "train.input", "train.confirm", "train.reveal")


class Died(BaseException):
    """A server that was killed: nothing after it runs."""


class Deadly:
    """A transport whose server dies at a chosen exchange, before it sends or after the nodes have answered."""

    def __init__(self, inner: Any, at: int, *, before: bool) -> None:
        self.inner, self.at, self.before, self.done = inner, at, before, 0

    def nodes(self) -> Any:
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Any, timeout: float) -> Any:
        self.done += 1
        if self.done == self.at and self.before:
            raise Died
        replies = self.inner.exchange(stage, requests, timeout)
        if self.done == self.at:
            raise Died
        return replies


class Replayed(Simulation):
    """The simulation in one process with the cohorts that a federation with dropouts had."""

    taking_part: dict[int, np.ndarray]

    def members(self, round: int) -> Any:
        return torch.from_numpy(self.taking_part.get(round, np.empty(0, np.int64)))


def replayed(f: Any, lines: list[str]) -> Experiment:
    """What training comes to when exactly those take part whom the ledger says were in each sum."""
    import json

    experiment = Experiment(f.config, f.parts)
    simulation = Replayed(
        experiment.clients, f.config.privacy, 45, experiment.streams, Ledger(f.config.privacy, 45), chunk=16
    )
    simulation.taking_part = {
        entry["round"]: from_ranges(entry["participants"], limit=45) for entry in map(json.loads, lines[1:])
    }
    for t in range(f.config.rounds):
        simulation.run(experiment.server, t)
    return experiment


def equal(one: Any, other: Any) -> bool:
    mine, theirs = one.state(), other.state()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def silent_sometimes(seed: int, nodes: int, most: int, *, late: bool = True) -> Callable[[int, str], Fault | None]:
    """In one round of three, 1 to `most` nodes fall silent, each from a random stage on until the round is over."""
    rng = np.random.default_rng(seed)
    state: dict[str, Any] = {"gone": {}}

    def fault(node: int, stage: str) -> Fault | None:
        if stage == "train.share" and state.get("stage") != "train.share":
            state["gone"] = {}
            if rng.random() < 1 / 3:
                chosen = rng.choice(nodes, rng.integers(1, most + 1), replace=False)
                state["gone"] = {100 + int(n): STAGES[rng.integers(1, 6)] for n in chosen}
        state["stage"] = stage
        begins = state["gone"].get(node)
        if begins is None or stage not in STAGES or STAGES.index(stage) < STAGES.index(begins):
            return None
        return "late" if late and rng.random() < 0.5 else "drop"

    return fault


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", ["drop", "late"])
def test_one_of_four_falls_silent_at_any_stage(
    federation: Callable[..., Any], count_server: Any, stage: str, fault: Fault
) -> None:
    f, server = federation(rounds=3), count_server()
    remote = f.remote(InProcess(f.nodes, faults=lambda node, at: fault if (node, at) == (101, stage) else None))
    for t in range(3):
        remote.run(server, t)
    assert remote.traffic.aborted_rounds == 0 or stage in LAST
    entries = remote.guard.ledger.entries
    assert len(server.sums) == 3 == len(entries)
    for (_, total), entry in zip(server.sums, entries, strict=True):
        assert torch.equal(total, f.counts(entry.members()))
        present = np.isin(f.shards[1], entry.members())
        assert present.all() if stage in LAST else not present.any() or stage == "train.invite"


def test_too_few_nodes_lose_the_round_and_nothing_else(federation: Callable[..., Any], count_server: Any) -> None:
    f, server = federation(rounds=3), count_server()
    gone = {"now": False}
    remote = f.remote(
        InProcess(f.nodes, faults=lambda n, s: "drop" if gone["now"] and n > 101 and s == "train.input" else None)
    )
    assert remote.run(server, 0)
    gone["now"] = True
    assert not remote.run(server, 1)
    gone["now"] = False
    assert remote.run(server, 2)
    assert [t for t, _ in server.sums] == [0, 2]
    assert [entry.round for entry in remote.guard.ledger.entries] == [0, 2]
    assert remote.traffic.aborted_rounds == 1
    # Those whose masked input had left have charged it, whether it was opened or not.
    assert [len(f.nodes[n].ledger.entries) for n in (100, 103)] == [3, 2]


def test_twenty_rounds_of_ten_nodes_with_losses_add_up(federation: Callable[..., Any], count_server: Any) -> None:
    f, server = federation(nodes=10, rounds=20), count_server()
    remote = f.remote(InProcess(f.nodes, faults=silent_sometimes(5, 10, 3)))
    revealed = [remote.run(server, t) for t in range(20)]
    entries = remote.guard.ledger.entries
    assert (
        [entry.round for entry in entries]
        == [t for t, was in enumerate(revealed) if was]
        == [t for t, _ in server.sums]
    )
    assert remote.traffic.missing > 5
    for (_, total), entry in zip(server.sums, entries, strict=True):
        assert torch.equal(total, f.counts(entry.members()))
    own = {n: {entry.cohort_id for entry in node.ledger.entries} for n, node in f.nodes.items()}
    for entry in entries:
        assert all(entry.cohort_id in own[100 + n] for n in range(10) if np.isin(f.shards[n], entry.members()).any())


def test_training_with_losses_is_right_to_the_bit(federation: Callable[..., Any]) -> None:
    f = federation("pfedrec", SECURE, nodes=5, mixed=True, rounds=6)
    trained = f.train(InProcess(f.nodes, faults=silent_sometimes(1, 5, 1)))
    lines = f.ledger_lines()
    assert len(lines) == 1 + 6 - trained.traffic.aborted_rounds
    assert trained.traffic.missing
    assert equal(trained.server, replayed(f, lines).server)


def test_a_server_may_die_at_any_moment(federation: Callable[..., Any]) -> None:
    f = federation("pfedrec", "secure-sum:clip_norm=1.0", nodes=3, rounds=2, checkpoint_every=2)
    simulated, charges = f.simulated()
    whole = Deadly(InProcess(f.nodes), -1, before=True)
    f.train(whole, name="whole")
    assert whole.done == 13
    for at in range(1, whole.done + 1):
        name, before = f"server-{at}", at % 2 == 0
        with pytest.raises(Died):
            f.train(Deadly(InProcess(f.nodes), at, before=before), name=name)
        trained = f.train(name=name)
        assert equal(trained.server, simulated.server), (at, before)
        assert f.ledger_lines(name) == charges
        assert trained.traffic.aborted_rounds == 0


def test_a_server_may_die_between_a_sum_and_the_journal(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from privfed.engines.nodes.journal import Journal

    f = federation("pfedrec", SECURE, nodes=3, checkpoint_every=5)
    simulated, charges = f.simulated()

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", die)
        with pytest.raises(Died):
            f.train()
    trained = f.train()
    assert equal(trained.server, simulated.server)
    assert f.ledger_lines() == charges


def test_a_node_may_die_between_record_and_book_when_it_joins(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says that it takes part, and no book counts what the run costs."""
    f = federation("pfedrec", SECURE, nodes=3)
    simulated, charges = f.simulated()
    save = Book.save

    def die(book: Book, folder: Path) -> None:
        if book.active:
            raise Died
        save(book, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Book, "save", die)
        with pytest.raises(Died):
            f.train()
    trained = f.train(InProcess(f.fresh()))
    assert trained.traffic.aborted_rounds == 0
    assert equal(trained.server, simulated.server)
    assert f.ledger_lines() == charges
    assert [cost.rounds for n in f.nodes for cost in Book.load(f.node(n).state.states).ended] == [2, 2, 2]


def test_a_node_that_dies_as_it_leaves_has_left(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its book has ended the run, and the record with private tensors and secrets was not removed yet."""
    f = federation("pfedrec", SECURE, nodes=3)

    def die(*_: Any, **__: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("privfed.engines.nodes.node_state.shutil", SimpleNamespace(rmtree=die))
        with pytest.raises(Died):
            f.train()
    run = Announcement.model_validate_json((f.folder / "server" / "run.json").read_text()).run
    node = f.node(100)
    assert node.state.path.joinpath(run).exists()
    assert node.ledger_of(run) is None
    assert not node.state.path.exists()
    assert len(Book.load(node.state.states).ended) == 1


def test_a_book_that_is_older_than_a_charged_record_is_refused(federation: Callable[..., Any]) -> None:
    f = federation("pfedrec", SECURE, nodes=3, rounds=3)
    with pytest.raises(Died):
        f.train(Deadly(InProcess(f.nodes), 9, before=True))
    node = f.node(100)
    (run,) = Book.load(node.state.states).active
    Book(version=1).save(node.state.states)
    with pytest.raises(StateError, match="does not know run"):
        f.node(100).ledger_of(run)


def test_with_keys_of_their_own_nodes_open_a_query_once(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from privfed.engines.nodes.journal import Journal

    f = federation("feddae", SECURE, nodes=3, checkpoint_every=5, rounds=3, seeded=False)

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", die)
        with pytest.raises(Died):
            f.train()
    trained = f.train()
    assert trained.traffic.aborted_rounds == 1
    assert [entry.round for entry in trained.ledger.entries] == [0, 1, 2]


def test_two_servers_in_one_folder_release_no_query_twice(federation: Callable[..., Any]) -> None:
    f = federation(
        "feddae", "central-gaussian:clip_norm=1,noise_multiplier=1", nodes=3, rounds=2, checkpoint_every=5, seeded=False
    )

    class Overtaken(InProcess):
        """Another server trains in the same folder, with noise of its own, while the first one waits."""

        second: Any = None

        def exchange(self, stage: str, requests: Any, timeout: float) -> Any:
            replies = super().exchange(stage, requests, timeout)
            if stage == "train.clear" and self.second is None:
                self.second = f.train()
            return replies

    transport = Overtaken(f.nodes)
    with pytest.raises(LedgerError, match="another process writes it"):
        f.train(transport)
    # The first began the first round, so the second had to leave it out.
    assert transport.second.traffic.aborted_rounds == 1
    assert [line.split('"round"')[1][:3] for line in f.ledger_lines()[-2:]] == [":0,", ":1,"]


def test_nodes_that_missed_a_query_sit_out_the_cohort(federation: Callable[..., Any]) -> None:
    f = federation("feddae", SECURE, settings={"popularity_prior": True}, rounds=1)
    seen: list[tuple[int, str]] = []

    def fault(node: int, stage: str) -> Fault | None:
        seen.append((node, stage))
        return "drop" if node == 102 and [s for n, s in seen if n == 102].count("train.input") == 1 else None

    trained = f.train(InProcess(f.nodes, faults=fault))
    first, second = (entry.members() for entry in trained.ledger.entries)
    assert np.array_equal(first, second)
    assert not np.isin(f.shards[2], first).any()


def test_a_folder_keeps_to_its_run(federation: Callable[..., Any]) -> None:
    f = federation("feddae", SECURE, nodes=3)
    f.train()
    longer = f.config.model_copy(update={"rounds": 9})
    with pytest.raises(NodesError, match="other settings"):
        train(longer, f.server_data, f.server, InProcess(f.nodes), f.folder / "server")


def test_an_aborted_round_stays_aborted(federation: Callable[..., Any]) -> None:
    f = federation("pfedrec", SECURE, nodes=3, rounds=3, checkpoint_every=3)
    losing = InProcess(f.nodes, faults=lambda n, s: "drop" if s == "train.input" and n == 100 else None)
    with pytest.raises(Died):
        f.train(Deadly(losing, 5, before=False))
    again = f.train()
    assert again.traffic.aborted_rounds in (0, 1)
    assert equal(again.server, replayed(f, f.ledger_lines()).server)


def test_a_run_goes_on_under_its_own_name_or_not_at_all(federation: Callable[..., Any]) -> None:
    f = federation("feddae", SECURE, nodes=3)
    with pytest.raises(Died):
        f.train(Deadly(InProcess(f.nodes), 9, before=True))
    (f.folder / "server" / "run.json").unlink()
    with pytest.raises(StateError, match="is gone and the folder holds a run"):
        f.train()


@pytest.mark.parametrize("kept", [0, 31, 33])
def test_a_server_draws_no_keys_from_half_a_secret(federation: Callable[..., Any], kept: int) -> None:
    f = federation("feddae", SECURE, nodes=3)
    with pytest.raises(Died):
        f.train(Deadly(InProcess(f.nodes), 1, before=True))
    (f.folder / "server" / "secret.key").write_bytes(bytes(kept))
    with pytest.raises(StateError, match="is no key of 32 bytes"):
        f.train()


def test_nobody_takes_the_seat_of_another_organisation(federation: Callable[..., Any], count_server: Any) -> None:
    """A thief with the data of an organisation and no key of it is a stranger, wherever it connects."""
    f = federation()
    stolen = Party(f.server.federation, Identity.generate(), 0)
    f.nodes[4] = Node(f.folder / "thief", f.policy, f.data[100], party=stolen)
    remote, server = f.remote(), count_server()
    assert remote.run(server, 0)
    assert [i.node for i in remote.incidents] == ["4"]
    assert remote.roster.strangers == {4}
    assert torch.equal(server.sums[0][1], f.counts(np.arange(45)))


def test_processes_share_nothing_and_may_be_killed(federation: Callable[..., Any]) -> None:
    f = federation("pfedrec", SECURE, nodes=4, rounds=3)
    for number, data in f.data.items():
        folder = f.folder / f"node{number}"
        folder.mkdir(exist_ok=True)
        data.save(folder)
        f.parties[number].save(folder, f.server.federation.signature(f.operator), f.operator.public)
        kinds = ", ".join(f'"{kind}"' for kind in f.policy.mechanisms)
        (folder / "node.toml").write_text(
            f"[policy]\nallow_simulation = true\nmin_own_users = 1\nmechanisms = [{kinds}]\n"
        )
    killed: list[str] = []

    def fault(node: int, stage: str) -> Fault | None:
        if node == 102 and stage not in killed and stage in ("train.input", "train.reveal"):
            killed.append(stage)
            return "kill_before" if stage == "train.input" else "kill_after"
        return None

    folders = {n: f.folder / f"node{n}" for n in f.nodes}
    with Loopback(folders, method="forkserver", faults=fault) as transport:
        trained = f.train(transport, timeout=120.0)
        assert transport.restarts == 2
    assert killed == ["train.input", "train.reveal"]
    assert equal(trained.server, replayed(f, f.ledger_lines()).server)


def test_policy_and_announcement_are_read_from_files(tmp_path: Path, federation: Callable[..., Any]) -> None:
    f = federation("feddae", SECURE)
    f.data[101].save(tmp_path)
    again = type(f.data[101]).load(tmp_path)
    assert np.array_equal(again.users, f.data[101].users)
    for part in ("train", "valid", "test"):
        one, other = getattr(again.parts, part), getattr(f.data[101].parts, part)
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.indptr, other.indptr)
    (tmp_path / "node.toml").write_text("[policy]\nmin_nodes = 5\nmax_epsilon = 2.0\n")
    assert Policy.read(tmp_path / "node.toml").min_nodes == 5
    announced = f.announced()
    assert Announcement.model_validate_json(announced.model_dump_json()) == announced
    remote = f.remote(InProcess({100: f.nodes[100]}))
    cohort = remote.sample_cohort(0)
    with pytest.raises(TooFewClientsError, match="fewer than 3"):
        remote.aggregate("count", cohort, *_nothing(f))


def _nothing(f: Any) -> Any:
    from privfed.contracts import Block
    from privfed.federation import Message
    from privfed.methods.shared.vae_server import COUNTS

    return Message({}), {COUNTS: Block((f.parts.train.n_items,))}
