"""The chain of a ledger: whatever happens to its lines behind its back is noticed, and said in one sentence."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.errors import LedgerError
from privfed.privacy.events import SchemaSummary
from privfed.privacy.hash_chain import link, unlink
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan

USERS, ROUNDS = 5, 4
PLAN = PrivacyPlan.parse("local-laplace:epsilon0=0.5,clip_norm=5")


def charge(ledger, round, members=USERS):
    ledger.record(
        cohort_id=round,
        round=round,
        step="train",
        index=0,
        schema=SchemaSummary(("items",), ()),
        participants=np.arange(members),
    )


@pytest.fixture
def written(tmp_path):
    """A ledger on disk, its lines, and a checkpoint that has seen all of them."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    for round in range(ROUNDS):
        charge(ledger, round, members=round + 1)
    return path, path.read_text().splitlines(), json.loads(json.dumps(ledger.state()))


def resumed(path, lines, checkpoint):
    path.write_text("".join(f"{line}\n" for line in lines))
    ledger = Ledger.resume(PLAN, USERS, path)
    ledger.load(checkpoint)
    return ledger


def test_an_untouched_ledger_goes_on_with_its_checkpoint(written):
    path, lines, checkpoint = written
    assert resumed(path, lines, checkpoint).head == checkpoint["head"]


@pytest.mark.parametrize("at", range(1, ROUNDS + 1))
def test_a_removed_line_is_noticed(written, at):
    path, lines, checkpoint = written
    what = "rolled back or lost entries" if at == ROUNDS else f"line {at + 1} does not follow the line before it"
    with pytest.raises(LedgerError, match=what):
        resumed(path, lines[:at] + lines[at + 1 :], checkpoint)


@pytest.mark.parametrize("at", range(ROUNDS + 1))
def test_every_edited_character_is_noticed(written, at):
    path, lines, checkpoint = written
    for place, character in enumerate(lines[at]):
        changed = lines[at][:place] + ("1" if character != "1" else "2") + lines[at][place + 1 :]
        with pytest.raises(LedgerError, match=rf"(line {at + 1} (was edited|is damaged))|header|format"):
            resumed(path, [*lines[:at], changed, *lines[at + 1 :]], checkpoint)


@pytest.mark.parametrize(("one", "other"), [(i, j) for j in range(1, ROUNDS + 1) for i in range(j)])
def test_swapped_lines_are_noticed(written, one, other):
    path, lines, checkpoint = written
    lines[one], lines[other] = lines[other], lines[one]
    with pytest.raises(LedgerError, match=r"does not follow the line before it|has format = None"):
        resumed(path, lines, checkpoint)


@pytest.mark.parametrize("at", range(1, ROUNDS + 1))
def test_a_repeated_line_is_noticed(written, at):
    path, lines, checkpoint = written
    with pytest.raises(LedgerError, match=f"line {at + 2} does not follow"):
        resumed(path, [*lines[: at + 1], lines[at], *lines[at + 1 :]], checkpoint)


@pytest.mark.parametrize("kept", range(ROUNDS))
def test_a_rolled_back_ledger_is_noticed(written, kept):
    path, lines, checkpoint = written
    with pytest.raises(LedgerError, match=f"holds {kept} entries where the checkpoint has seen {ROUNDS}: it was"):
        resumed(path, lines[: kept + 1], checkpoint)


def test_every_truncated_byte_is_noticed_by_the_checkpoint(written):
    path, _, checkpoint = written
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(LedgerError, match="rolled back or lost entries"):
            Ledger.resume(PLAN, USERS, path).load(checkpoint)


@pytest.mark.parametrize("at", range(1, ROUNDS + 1))
def test_a_line_that_was_replaced_with_a_chain_of_its_own_is_noticed_by_the_checkpoint(written, at):
    path, lines, checkpoint = written
    head, forged = None, []
    for number, line in enumerate(lines):
        record = json.loads(line)
        record = {key: value for key, value in record.items() if key not in ("previous", "digest")}
        if number == at:
            record["participants"] = ""
        own, head = link(head, record)
        forged.append(own)
    with pytest.raises(LedgerError, match=f"does not begin with the {ROUNDS} entries that the checkpoint has seen"):
        resumed(path, forged, checkpoint)


@pytest.mark.parametrize(
    "edit",
    [
        lambda state: state["entries"].pop(),
        lambda state: state["entries"].reverse(),
        lambda state: state["entries"][1].update(participants=""),
        lambda state: state.update(head="0" * 64),
        lambda state: state.pop("head"),
    ],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_an_edited_checkpoint_is_noticed(written, edit, in_memory):
    path, _, checkpoint = written
    edit(checkpoint)
    ledger = Ledger(PLAN, USERS) if in_memory else Ledger.resume(PLAN, USERS, path)
    with pytest.raises(LedgerError, match="the checkpoint's ledger was edited"):
        ledger.load(checkpoint)


def test_a_checkpoint_without_a_chain_is_refused_by_its_format(written):
    path, _, checkpoint = written
    old = {key: value for key, value in checkpoint.items() if key != "head"} | {"format": "privfed-ledger/1"}
    with pytest.raises(LedgerError, match="'privfed-ledger/1' where this version reads 'privfed-ledger/2' only"):
        Ledger.resume(PLAN, USERS, path).load(old)


def test_entries_after_the_checkpoint_belong_to_the_same_chain(written):
    path, _, checkpoint = written
    ledger = Ledger.resume(PLAN, USERS, path)
    charge(ledger, ROUNDS)
    again = Ledger.resume(PLAN, USERS, path)
    again.load(checkpoint)
    assert len(again.entries) == ROUNDS + 1
    again.require(ROUNDS + 1, ledger.head, "somebody")
    with pytest.raises(LedgerError, match="begin with the 2 entries that somebody has seen"):
        again.require(2, ledger.head, "somebody")


def test_what_a_ledger_in_memory_chains_is_what_the_file_chains(written):
    _, _, checkpoint = written
    memory = Ledger(PLAN, USERS)
    for round in range(ROUNDS):
        charge(memory, round, members=round + 1)
    assert memory.head == checkpoint["head"]
    restored = Ledger(PLAN, USERS)
    restored.load(checkpoint)
    assert restored.head == memory.head


def test_a_cut_line_is_reported_now_and_by_every_later_resume(written):
    path, lines, _ = written
    path.write_text("\n".join(lines)[:-4])
    first = Ledger.resume(PLAN, USERS, path)
    assert first.notice is not None
    assert f"the last line of ledger.jsonl was cut short ({len(lines[-1]) - 4} bytes, after 3 entries)" in first.notice
    later = Ledger.resume(PLAN, USERS, path)
    assert later.notice is None
    assert later.notices == first.notices == (first.notice,)
    with path.with_suffix(".notices").open("ab") as file:
        file.write(b"\xff")
    assert Ledger.resume(PLAN, USERS, path).notices[0] == first.notice


@pytest.mark.parametrize("kept", [0, 1, 30, -1])
def test_a_header_that_was_cut_short_is_written_again(written, kept):
    path, lines, _ = written
    path.write_text(lines[0][:kept])
    assert Ledger.resume(PLAN, USERS, path).entries == ()
    assert path.read_text() == lines[0] + "\n"


@pytest.mark.parametrize("content", [b"garbage", b"\0" * 900, b"[" * 100_000, b'{"format":' + b"9" * 5000 + b"}"])
def test_a_file_that_is_no_ledger_is_refused_and_left_as_it_is(written, content):
    """Without a newline it looks like a header that a process died in, and it is none of this run's."""
    path, _, _ = written
    for end in (b"", b"\n"):
        path.write_bytes(content + end)
        with pytest.raises(LedgerError, match="begin with the header"):
            Ledger.resume(PLAN, USERS, path)
        assert path.read_bytes() == content + end


@pytest.mark.parametrize("line", ["[" * 100_000, '{"round":' + "9" * 5000 + "}"])
def test_a_line_that_no_parser_takes_is_damage(written, line):
    path, lines, _ = written
    path.write_text("\n".join([*lines[:2], line, ""]))
    with pytest.raises(LedgerError, match="line 3 is damaged"):
        Ledger.resume(PLAN, USERS, path)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(max_size=4), min_size=1),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
def test_any_chain_reads_back_and_any_other_byte_does_not(records, data):
    lines, head = [], None
    for record in records:
        line, head = link(head, record)
        lines.append(line)
    head = None
    for record, line in zip(records, lines, strict=True):
        found, head = unlink(head, line, "here")
        assert found == record
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda c: c != lines[at][place]))
    previous = unlink_all(lines[:at])
    with pytest.raises(LedgerError):
        unlink(previous, lines[at][:place] + other + lines[at][place + 1 :], "here")


def unlink_all(lines):
    """The head of a chain."""
    head = None
    for line in lines:
        _, head = unlink(head, line, "here")
    return head
