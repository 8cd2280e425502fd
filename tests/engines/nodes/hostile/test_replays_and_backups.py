"""Old messages and old folders: nothing is answered twice, no noise comes twice, no budget begins anew."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import FILE, OPERATOR, SIGNATURE, read_federation
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.party import KEY_FILE, Party
from privfed.engines.nodes.policy import Policy
from secure_agg.masking import Identity
from tests.engines.nodes.hostile.liars import MaskedRound, Server, counts, joined, unchanged
from tests.engines.nodes.test_faults import Deadly, Died

CLIP, LAPLACE = "clip:clip_norm=1.0,order=2", "local-laplace:epsilon0=1,clip_norm=1"
CLEAR = Policy(allow_simulation=True, mechanisms=("clip_only", "local_laplace"), max_rounds=1000)
RUN = "1" * 32


class Recorder:
    """A node whose requests are remembered, as whoever reads the wire remembers them."""

    def __init__(self, node: Node) -> None:
        self.node, self.heard = node, list[tuple[str, bytes]]()
        self.party = node.party

    def handle(self, stage: str, request: bytes) -> bytes:
        self.heard.append((stage, request))
        return self.node.handle(stage, request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)


def said(f: Any, node: Any, stage: str, frame: bytes) -> Packet:
    return codec.answer(f.server.unframe("reply", node.handle(stage, frame), 0), frame)


@pytest.mark.parametrize("lie", ["at once", "after a restart", "out of order", "to a later run"])
def test_a_request_is_played_back(federation: Callable[..., Any], lie: str) -> None:
    f = federation("feddae", CLIP, policy=CLEAR, rounds=100)
    recorder: Any = Recorder(f.nodes[100])
    server = Server(f, recorder, f.announced(run=RUN))
    assert server.announce()["refused"] is None
    for n in range(2):
        assert server.clear(counts(f, n), each=False)["refused"] is None
    heard, node = recorder.heard, f.nodes[100]
    if lie == "after a restart":
        node = f.node(100)
    if lie == "out of order":
        heard = heard[::-1]
    if lie == "to a later run":
        server.say("train.settle", {"final": True})
        again = Server(f, node, f.announced(run="2" * 32))
        assert again.announce()["refused"] is None
    with unchanged(node.folder):
        for stage, frame in heard:
            reply = said(f, node, stage, frame)
            assert reply["code"] in ("bad_message", "unknown_run", "refused")
            assert not reply.arrays


def test_a_reply_and_a_refusal_are_played_back_to_the_server(federation: Callable[..., Any], count_server: Any) -> None:
    """What a node said to one request is no answer to another, though its own key signed it."""
    f, server, old = federation("feddae", "none", nodes=3, rounds=100), count_server(), dict[str, bytes]()

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        if node != 102 or stage != "train.clear":
            return reply
        return old.setdefault(stage, reply) if stage not in old else old[stage]

    remote = f.remote(InProcess(f.nodes, tamper=tamper))
    for t in range(3):
        assert remote.run(server, t)
        users = np.arange(45) if t == 0 else np.concatenate(f.shards[:2])
        assert torch.equal(server.sums[-1][1], f.counts(users))
    assert {(one.node, "another request" in one.reason) for one in remote.incidents} == {("node102", True)}


@pytest.mark.parametrize("lie", [-3600.0, -3e7, 3e7, 3e9], ids=["an hour", "a year", "a year ahead", "a century ahead"])
def test_the_server_s_clock_is_moved(
    standing: Callable[..., Any], count_server: Any, lie: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read off a clock: neither rounds nor later runs are lost."""
    f, server = standing("clocks", "none", nodes=3), count_server()
    real = time.time
    for shift in (0.0, lie, 0.0):
        monkeypatch.setattr(time, "time", lambda shift=shift: real() + shift)
        monkeypatch.setattr(time, "time_ns", lambda shift=shift: int((real() + shift) * 1e9))
        remote = f.remote()
        for t in range(2):
            assert remote.run(server, t)
            assert torch.equal(server.sums[-1][1], f.counts(np.arange(45)))
        assert not remote.incidents


# What a node keeps ----------------------------------------------------------------------------------------------------


class Kept:
    """A node that has answered two queries of one run, copies of its folder on the way, and its server."""

    def __init__(self, f: Any, plan_each: bool) -> None:
        self.f, self.each = f, plan_each
        self.server = Server(f, f.nodes[100], f.announced(run=RUN))
        assert self.server.announce()["refused"] is None
        self.folder, self.copy = f.nodes[100].folder, f.folder / "copy"
        self.replies = [self.ask(0)]
        shutil.copytree(self.folder, self.copy)
        self.replies.append(self.ask(1))
        self.receipt = self.replies[-1]["receipt"]

    def ask(self, n: int, **more: Any) -> Packet:
        return self.server.clear(counts(self.f, n), each=self.each, **more)

    def restart(self) -> None:
        """The node's process begins anew."""
        self.server.node = self.f.nodes[100] = self.f.node(100)

    def restore(self, *names: str) -> None:
        """Bring back files of the copy, or all."""
        if not names:
            shutil.rmtree(self.folder)
            shutil.copytree(self.copy, self.folder)
        for name in names:
            shutil.copy(self.copy / name, self.folder / name)


LEDGER, BOOK, RECORD = f"ledger-{RUN}.jsonl", "state/book.json", f"state/{RUN}/record.json"


def without_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def edited(path: Path) -> None:
    path.write_text(path.read_text().replace('"round":1', '"round":9'))


FOLDERS: dict[str, tuple[Callable[[Kept], None], str, str]] = {
    "the ledger is deleted": (lambda k: (k.folder / LEDGER).unlink(), "refused", "LedgerError"),
    "the ledger's last line is removed": (lambda k: without_last_line(k.folder / LEDGER), "refused", "LedgerError"),
    "a line of the ledger is edited": (lambda k: edited(k.folder / LEDGER), "refused", "LedgerError"),
    "the ledger is restored from a copy": (lambda k: k.restore(LEDGER), "refused", "LedgerError"),
    "the ledger is emptied": (lambda k: (k.folder / LEDGER).write_bytes(b""), "refused", "LedgerError"),
    "the record is deleted": (lambda k: (k.folder / RECORD).unlink(), "refused", "folder"),
    "the record is damaged": (lambda k: (k.folder / RECORD).write_text("{"), "refused", "folder"),
    "the record is restored from a copy": (lambda k: k.restore(RECORD), "refused", ""),
    "the book is deleted": (lambda k: (k.folder / BOOK).unlink(), "refused", "folder"),
    "the book is damaged": (lambda k: (k.folder / BOOK).write_text("[]"), "refused", "folder"),
    "the book is restored from a copy": (lambda k: k.restore(BOOK), "rolled_back", "restored from a copy"),
    "all that is kept of runs is deleted": (lambda k: shutil.rmtree(k.folder / "state"), "refused", "folder"),
    "the whole folder is restored from a copy": (lambda k: k.restore(), "rolled_back", "restored from a copy"),
    "the ledger is not its owner's to read": (lambda k: as_folder(k.folder / LEDGER), "refused", "LedgerError"),
}  # fmt: skip
"""By what happens to a folder, how the node refuses the next query of a server that shows its last receipt."""


def entries(ledger: Path) -> list[str]:
    """Lines of a ledger after its header; none where there is no file."""
    return ledger.read_text().splitlines()[1:] if ledger.is_file() else []


NOT_STARTED = {"the book is deleted", "the book is damaged", "all that is kept of runs is deleted"}
"""What a process that starts afterwards refuses by itself; one that runs already refuses every query."""


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("lie", FOLDERS)
def test_what_happened_to_a_folder_is_noticed(federation: Callable[..., Any], lie: str) -> None:
    happens, code, words = FOLDERS[lie]
    k = Kept(federation("feddae", CLIP, policy=CLEAR, rounds=100), plan_each=False)
    happens(k)
    before = entries(k.folder / LEDGER)
    with pytest.raises(StateError, match=r"gone|damaged") if lie in NOT_STARTED else nullcontext():
        k.restart()
    # The old query again, and a new one: neither is answered.
    for n in (1, 2):
        reply = k.ask(n, receipt=k.receipt)
        if lie == "the record is restored from a copy" and n == 2:
            assert reply["refused"] is None, "the ledger knows better than an old record: it costs one more"
            continue
        assert (reply.fields.get("code"), words in str(reply["refused"])) == (code, True), reply.fields
        assert not reply.arrays
        assert entries(k.folder / LEDGER) == before, "and nothing is charged"
    if lie == "the record is restored from a copy":
        assert [entry.cohort_id for entry in k.server.ledger.entries] == [0, 1, 2]


def test_a_backup_whose_server_withholds_the_receipt_repeats_no_noise(federation: Callable[..., Any]) -> None:
    """A server in league with the backup gets a second answer, charged again and with noise of its own."""
    k = Kept(federation("feddae", LAPLACE, policy=CLEAR, rounds=100, seeded=False), plan_each=True)
    k.restore()
    k.restart()
    again = k.ask(1)
    assert again["refused"] is None
    (first,), (second,) = k.replies[1].arrays.values(), again.arrays.values()
    assert not np.isin(np.round(first - second, 12), 0.0).any()
    assert k.ask(2, receipt=k.receipt)["code"] == "rolled_back", "an honest server notices later all the same"


def test_a_record_restored_inside_a_masked_sum_opens_nothing_twice(federation: Callable[..., Any]) -> None:
    """One node has been brought back to before it revealed; the others answer once, so nothing else is opened."""
    f = federation("feddae", "secure-sum:clip_norm=10.0", rounds=100, seeded=False)
    servers = joined(f, RUN)
    r = MaskedRound(f, servers).until("train.reveal")
    requests, record = dict(r.pending), f.nodes[100].folder / RECORD
    before = record.read_bytes()
    r.stage("train.reveal")
    record.write_bytes(before)
    f.nodes[100] = servers[0].node = f.node(100)
    told = {seat: r.tell(seat, "train.reveal", requests[seat]) for seat in servers}
    assert [seat for seat, reply in told.items() if reply["refused"] is None] == [0]
    assert all(told[seat]["code"] == "refused" for seat in (1, 2, 3))
    shares = {seat: reply.arrays["reveal"].tobytes() for seat, reply in told.items() if reply.arrays}
    assert shares == {0: r.replies["train.reveal"][0].arrays["reveal"].tobytes()}, "the very shares it gave before"


def test_a_restored_server_is_not_shut_out_and_opens_nothing_twice(federation: Callable[..., Any]) -> None:
    f = federation("feddae", "secure-sum:clip_norm=1.0", rounds=5, nodes=3, seeded=False, checkpoint_every=1)
    with pytest.raises(Died):
        f.train(Deadly(InProcess(f.nodes), 9, before=True))
    shutil.copytree(f.folder / "server", f.folder / "copy")
    with pytest.raises(Died):
        f.train(Deadly(InProcess(f.nodes), 12, before=True))
    opened = [entry.cohort_id for entry in f.nodes[100].ledger.entries]
    shutil.rmtree(f.folder / "server")
    shutil.copytree(f.folder / "copy", f.folder / "server")
    trained = f.train()
    assert 1 <= trained.traffic.aborted_rounds <= len(opened), "what nodes have answered since is lost, and no more"
    assert trained.ledger.entries[-1].round == 4
    assert max(len(node.state.book.ended) for node in f.nodes.values()) == 1


def test_two_servers_of_one_run_do_not_confuse_a_node(federation: Callable[..., Any], count_server: Any) -> None:
    """An operator starts a server twice: whoever announced last is answered, and no query twice."""
    f = federation("feddae", "none", nodes=3, rounds=100)
    one, server = f.remote(), count_server()
    assert one.run(server, 0)
    two = Server(f, f.nodes[100], one.announced)
    two.counter = 2**41
    assert two.announce()["refused"] is None
    assert two.clear(counts(f, 5), each=False)["refused"] is None
    assert one.run(server, 1)
    assert torch.equal(server.sums[-1][1], f.counts(np.concatenate(f.shards[1:])))
    assert [entry.cohort_id for entry in f.nodes[100].ledger_of(one.announced.run).entries] == [0, 5]


# Keys and the federation file -----------------------------------------------------------------------------------------


@contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(StateError, match=match) as error:
        yield
    assert str(error.value).isprintable()


def version(f: Any, number: int, **changes: Any) -> Any:
    return f.server.federation.model_copy(update={"version": number} | changes)


PINNED: dict[str, str] = {
    "an older version than was pinned before": "version 1 and version 2 was pinned",
    "a file that another operator signed": "not signed by the operator",
    "a signature of another version": "not signed by the operator",
    "a corrupted signature": "not 64 bytes in hexadecimal digits",
    "no signature": "cannot be read",
    "an edited file": "not signed by the operator",
    "other users for the same key": "other users",
    "the key of nobody": "no party with the public key",
    "the server's key": "the server's",
    "a key of another length": "no signing key",
    "a root secret that was cut": "no key of 32 bytes",
}


@pytest.mark.parametrize("lie", PINNED)
def test_a_folder_whose_identity_is_not_right_starts_no_node(federation: Callable[..., Any], lie: str) -> None:
    f = federation("feddae", CLIP, policy=CLEAR, nodes=3)
    folder, party, operator = f.folder / "pinned", f.parties[100], f.operator
    folder.mkdir()

    def write(file: Any, signer: Identity = operator) -> None:
        Party(file, party.identity, 0).save(folder, file.signature(signer), operator.public)

    write(version(f, 2 if lie.startswith("an older") else 1))
    node = Node(folder, CLEAR, f.data[100])
    if lie == "an older version than was pinned before":
        write(version(f, 1))
    elif lie == "a file that another operator signed":
        write(version(f, 2), Identity.generate())
    elif lie == "a signature of another version":
        Party(version(f, 2), party.identity, 0).save(folder, version(f, 3).signature(operator), operator.public)
    elif lie == "a corrupted signature":
        (folder / SIGNATURE).write_text("zz" + (folder / SIGNATURE).read_text()[2:])
    elif lie == "no signature":
        (folder / SIGNATURE).unlink()
    elif lie == "an edited file":
        (folder / FILE).write_text(version(f, 1, corrupt=2).to_toml())
    elif lie == "other users for the same key":
        with refused(PINNED[lie]):
            Node(f.folder / "other", CLEAR, f.data[101], party=party)
        return
    elif lie == "the key of nobody":
        (folder / KEY_FILE).write_bytes(Identity.generate().private_bytes())
    elif lie == "the server's key":
        (folder / KEY_FILE).write_bytes(f.server.identity.private_bytes())
    elif lie == "a key of another length":
        (folder / KEY_FILE).write_bytes(b"short")
    else:
        (folder / "secret.key").write_bytes(b"short")
        with refused(PINNED[lie]):
            node.state.root()
        return
    with refused(PINNED[lie]):
        Node(folder, CLEAR, f.data[100])


def test_what_was_pinned_is_read_back(federation: Callable[..., Any]) -> None:
    """So that the refusals above are for what was changed."""
    f = federation("feddae", CLIP, nodes=3)
    f.parties[100].save(f.folder, f.server.federation.signature(f.operator), f.operator.public)
    assert read_federation(f.folder) == f.server.federation
    assert (f.folder / OPERATOR).read_text().strip() == f.operator.public.hex()
