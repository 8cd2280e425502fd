"""What a refusal says over the wire names nothing of the machine that refuses."""

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from privfed.contracts import Block
from privfed.engines.nodes.errors import MessageError, NodeRefused, NodesError, RefusalCode, StateError
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.public_sentence import public_sentence
from privfed.engines.simulation import TooFewClientsError
from privfed.federation import Message
from privfed.methods.shared.vae_server import COUNTS
from privfed.privacy import AccountingError, LedgerError, PlanError
from privfed.privacy.errors import EntryRefused

PATH = "/srv/hospital/alice/state/record.json"


def subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(one for below in kind.__subclasses__() for one in subclasses(below))]


def made(kind: type[Exception]) -> Exception:
    """An error whose sentence names a file, unless the class writes its own."""
    try:
        return kind(f"{PATH} cannot be written (No space left on device); make room")
    except TypeError:
        return kind()


@pytest.mark.parametrize("kind", subclasses(NodesError), ids=lambda kind: kind.__name__)
def test_every_error_says_whether_its_sentence_is_for_peers(kind: type[Any]) -> None:
    error = made(kind)
    assert isinstance(kind.code, RefusalCode)
    assert error.public.strip()
    if issubclass(kind, MessageError | NodeRefused):
        assert error.public == str(error)
    else:
        assert PATH not in error.public
        assert "log" in error.public


def test_only_two_families_speak_to_peers() -> None:
    speaking = {kind for kind in subclasses(NodesError) if not kind.general}  # type: ignore[attr-defined]
    assert speaking == {*subclasses(MessageError), *subclasses(NodeRefused)}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", PATH),
        PermissionError(errno.EACCES, "Permission denied", PATH),
        FileNotFoundError(errno.ENOENT, "No such file", PATH, None, "/home/alice"),
        UnicodeDecodeError("utf-8", b"alice", 0, 1, PATH),
        KeyError(PATH),
        RuntimeError(PATH),
        LedgerError(f"ledger {PATH} cannot be written"),
        AccountingError(PATH),
        StateError(PATH),
        NodesError(PATH),
        MemoryError(PATH),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_this_machine_are_told_in_general(error: Exception) -> None:
    assert not any(secret in public_sentence(error) for secret in ("/", "srv", "alice", "device", "denied"))


def test_what_is_wrong_with_a_request_is_told() -> None:
    for kind in (PlanError, EntryRefused):
        assert public_sentence(kind("round 3 has cohort 2")) == "round 3 has cohort 2"


def replies_of(f: Any, broken: Callable[[Path], None]) -> list[bytes]:
    """What a node says when its folder breaks after a round, at whatever stage, to a server that knows of nothing."""
    said: list[bytes] = []
    remote = f.remote(InProcess(f.fresh(), tamper=lambda node, stage, reply: said.append(reply) or reply))
    schema = {COUNTS: Block((f.parts.train.n_items,))}
    remote.aggregate("count", remote.sample_cohort(0), Message({}), schema)
    del said[:]
    for number in f.nodes:
        broken(f.folder / f"node{number}")
    with suppress(TooFewClientsError):
        remote.aggregate("count", remote.sample_cohort(1), Message({}), schema)
    remote.finish()
    return said


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def break_record(folder: Path) -> None:
    next(folder.rglob("record.json")).write_text('{"users": "alice"}')


def break_ledger(folder: Path) -> None:
    next(folder.rglob("ledger-*")).write_text("alice")


@pytest.mark.parametrize("plan", ["none", "secure-sum:clip_norm=10.0"])
@pytest.mark.parametrize(
    "broken",
    [
        break_record,
        break_ledger,
        lambda folder: as_folder(next(folder.rglob("record.json"))),
        lambda folder: as_folder(next(folder.rglob("ledger-*"))),
        lambda folder: next(folder.rglob("ledger-*")).unlink(),
    ],
    ids=["damaged record", "damaged ledger", "unreadable record", "unreadable ledger", "no ledger"],
)
def test_a_node_with_a_broken_folder_refuses_without_naming_it(
    federation: Callable[..., Any], broken: Callable[[Path], None], plan: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    f = federation("feddae", plan)
    said = replies_of(f, broken)
    assert sum(b"refused" in reply and b"log" in reply for reply in said) >= len(f.nodes)
    for secret in (str(f.folder).encode(), b"node10", b".json", b"ledger-", b"alice"):
        assert not any(secret in reply for reply in said)
    assert any(str(f.folder) in record.getMessage() for record in caplog.records), "the node's own log names the file"


def test_a_full_disk_is_no_words_about_the_disk(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        monkeypatch.setattr("os.fsync", no_space)

    said = replies_of(federation("feddae", "none"), full)
    assert any(b"own log" in reply for reply in said)
    assert not any(word in reply for reply in said for word in (b"No space", b"make room", b"/pytest"))


def no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
