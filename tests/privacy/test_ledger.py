"""The ledger: charged before released, on disk, resumable, and never quietly wrong."""

import fcntl
import json
import math
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.errors import LedgerError, PlanError
from privfed.privacy.events import Empty, Exact, Laplace, SchemaSummary, Unbounded
from privfed.privacy.hash_chain import link
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.user_ranges import from_ranges, to_ranges

USERS = 6
PLAN = PrivacyPlan.parse("local-laplace:epsilon0=0.5,clip_norm=5")


def charge(ledger, round=0, *, cohort_id=None, step="train", index=0, real=("items",), integer=(), members=None):
    return ledger.record(
        cohort_id=round if cohort_id is None else cohort_id,
        round=round,
        step=step,
        index=index,
        schema=SchemaSummary(tuple(real), tuple(integer)),
        participants=np.arange(USERS) if members is None else np.asarray(members, dtype=np.int64),
    )


def test_the_plan_decides_the_mechanism():
    ledger = Ledger(PLAN, USERS)
    assert charge(ledger, 0).event == Laplace(scale_over_sensitivity=2.0)
    assert charge(ledger, 1, real=(), integer=("bits",)).event == Exact(blocks=("bits",))
    assert charge(ledger, 2, real=()).event == Empty()
    assert isinstance(charge(Ledger(PrivacyPlan.parse("none"), USERS)).event, Unbounded)


def test_epsilon_is_that_of_the_user_who_took_part_most():
    ledger = Ledger(
        PrivacyPlan.parse("local-laplace:epsilon0=0.5,clip_norm=5,sampling.kind=fixed,sampling.size=3"), USERS
    )
    for round in range(5):
        charge(ledger, round, members=[0, 1 + round])
    assert ledger.participations.tolist() == [5, 1, 1, 1, 1, 1]
    guarantee = ledger.guarantee()
    assert guarantee.rounds_counted == 5
    assert guarantee.basic_epsilon == pytest.approx(2.5)


def test_poisson_under_local_trust_counts_answers_in_full():
    sampled = Ledger(
        PrivacyPlan.parse("local-laplace:epsilon0=0.5,clip_norm=5,sampling.kind=poisson,sampling.rate=0.5"),
        USERS,
    )
    full = Ledger(PLAN, USERS)
    for round in range(4):
        charge(sampled, round, members=[2, 4])
        charge(full, round)
    assert sampled.guarantee().epsilon == full.guarantee().epsilon


@pytest.mark.parametrize(
    "words",
    ["none", "clip:clip_norm=1", "published-noise", "local-laplace:epsilon0=1,clip_norm=1,clip_order=2"],
)
def test_plans_that_bound_nothing_are_infinite_even_uncharged(words):
    ledger = Ledger(PrivacyPlan.parse(words), USERS)
    assert ledger.guarantee().epsilon == math.inf
    charge(ledger)
    assert ledger.guarantee().epsilon == math.inf
    assert ledger.guarantee().reason_if_inf


def test_an_exact_release_is_infinite_and_names_its_blocks():
    ledger = Ledger(PLAN, USERS)
    charge(ledger, 0)
    assert math.isfinite(ledger.guarantee().epsilon)
    charge(ledger, 1, integer=("bits", "counts"))
    guarantee = ledger.guarantee()
    assert guarantee.epsilon == math.inf
    assert "bits, counts" in guarantee.reason_if_inf


def test_an_empty_schema_costs_nothing():
    ledger = Ledger(PLAN, USERS)
    charge(ledger, 0, real=())
    assert ledger.guarantee().epsilon == 0.0


def test_one_cohort_per_round():
    ledger = Ledger(PLAN, USERS)
    charge(ledger, 3, cohort_id=0)
    charge(ledger, 3, cohort_id=0, index=1)
    with pytest.raises(LedgerError, match="round 3 has cohort 0 and a query of cohort 1: one cohort per round"):
        charge(ledger, 3, cohort_id=1)
    with pytest.raises(LedgerError, match="cohort 0 belongs to round 3, not 4"):
        charge(ledger, 4, cohort_id=0, index=2)
    assert len(ledger.entries) == 2


def test_the_same_query_is_not_recorded_twice():
    ledger = Ledger(PLAN, USERS)
    charge(ledger)
    with pytest.raises(LedgerError, match="was recorded before: number the queries"):
        charge(ledger)
    charge(ledger, step="evaluate")
    assert ledger.participations.max() == 2


def test_a_list_of_participants_that_is_filled_anew_is_read_anew():
    ledger, members = Ledger(PLAN, USERS), np.array([0, 1])
    charge(ledger, 0, members=members)
    members[:] = [2, 5]
    assert charge(ledger, 1, members=members).participants == "2,5"
    assert ledger.participations.tolist() == [1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("members", "part"),
    [
        (np.array([0, 6]), "from 0 to 5"),
        (np.array([-1, 2]), "from 0 to 5"),
        (np.array([2, 2]), "distinct"),
        (np.array([True, False]), "list of user numbers"),
        (np.array([0.0]), "list of user numbers"),
        (np.array([[0]]), "list of user numbers"),
        (None, "participants are missing"),
    ],
)
def test_participants_that_make_no_sense_are_refused(members, part):
    ledger = Ledger(PLAN, USERS)
    with pytest.raises(LedgerError, match=part):
        ledger._participants(members)
    assert len(ledger.entries) == 0


def test_more_participants_than_the_rule_allows_are_refused():
    ledger = Ledger(PrivacyPlan.parse("none:sampling.kind=epoch,sampling.size=2"), USERS)
    with pytest.raises(LedgerError, match="3 users take part where sampling 'epoch 2' allows 2"):
        charge(ledger, members=[0, 1, 2])
    with pytest.raises(PlanError, match="larger than the population"):
        Ledger(PrivacyPlan.parse("none:sampling.kind=fixed,sampling.size=7"), USERS)


def test_entries_are_on_disk_before_they_return(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path.read_bytes()))
    entry = charge(ledger, members=[0, 1, 2, 5])
    assert synced == [path.read_bytes()]
    header, line = path.read_text().splitlines()
    begun = json.loads(header)
    digest = begun.pop("digest")
    assert begun == {
        "format": "privfed-ledger/2",
        "run": "",
        "population": USERS,
        "plan": PLAN.to_dict(),
    }
    assert json.loads(line)["previous"] == digest
    assert json.loads(line)["participants"] == "0-2,5"
    assert entry.members().tolist() == [0, 1, 2, 5]


def test_a_failed_write_releases_nothing_and_leaves_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    charge(ledger, 0)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LedgerError, match="No space left on device"):
        charge(ledger, 1)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert len(ledger.entries) == 1
    charge(ledger, 1)
    assert Ledger.resume(PLAN, USERS, path).entries == ledger.entries


def test_an_unwritable_place_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be written"):
        Ledger(PLAN, USERS, tmp_path / "missing" / "ledger.jsonl")
    with pytest.raises(LedgerError, match="exists already: resume it"):
        Ledger(PLAN, USERS, tmp_path / "file")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger.resume(PLAN, USERS, tmp_path / "missing.jsonl")


def test_resume_continues(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, unbroken = Ledger(PLAN, USERS, path, run="a"), Ledger(PLAN, USERS)
    for round in range(3):
        charge(first, round, members=range(round + 1))
    again = Ledger.resume(PLAN, USERS, path, run="a")
    assert again.notice is None
    charge(again, 3)
    for round in range(3):
        charge(unbroken, round, members=range(round + 1))
    charge(unbroken, 3)
    assert again.entries == unbroken.entries
    assert again.guarantee() == unbroken.guarantee()
    assert Ledger.resume(PLAN, USERS, path, run="a").entries == again.entries


def test_a_kill_at_any_byte_loses_at_most_an_unopened_entry(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    for round in range(2):
        charge(ledger, round)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    near = {end + offset for end in ends for offset in (-1, 0, 1)} - {len(whole) + 1}
    for cut in sorted({*range(0, len(whole), 11), *near}):
        path.write_bytes(whole[:cut])
        again = Ledger.resume(PLAN, USERS, path)
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        assert again.entries == ledger.entries[:kept]
        assert (again.notice is not None) == (cut not in (0, *ends))
        for round in range(kept, 2):
            charge(again, round)
        assert path.read_bytes() == whole


def _bare(line):
    return {key: value for key, value in line.items() if key not in ("previous", "digest")}


def rewritten(lines, old, new):
    """The lines with one charge changed by somebody who knows how to chain them."""
    header, *charges = [json.loads(line) for line in lines]
    head, out = link(None, _bare(header))[1], [lines[0]]
    for charge_ in charges:
        line, head = link(head, json.loads(json.dumps(_bare(charge_)).replace(old, new)))
        out.append(line)
    return out


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda lines: [lines[0], lines[1][:-3], lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], "", lines[2]], "line 2 is damaged"),
        (lambda lines: rewritten(lines, '"round": 0', '"round": -1'), "line 2 is not an entry"),
        (lambda lines: rewritten(lines, '"0-5"', '"5-0"'), "not ascending ranges"),
        (lambda lines: rewritten(lines, '"0-5"', '"0-9"'), "names user 9 of 6 users"),
        (lambda lines: rewritten(lines, "2.0", "200.0"), "does not belong to this plan"),
        (lambda lines: rewritten(lines, '1, "round": 1', '0, "round": 0'), "recorded twice"),
        (lambda lines: [lines[1], lines[2]], "format = None"),
        (lambda lines: ["3", *lines[1:]], "header of a ledger"),
        (lambda lines: ["", *lines[1:]], "header of a ledger"),
        (lambda lines: [lines[0].replace("ledger/2", "ledger/1"), *lines[1:]], "'privfed-ledger/1' where this version"),
    ],
)
def test_damage_is_refused(tmp_path, damage, part):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    for round in range(2):
        charge(ledger, round)
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(LedgerError, match=part):
        Ledger.resume(PLAN, USERS, path)


def test_entries_of_different_runs_do_not_mix(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(PLAN, USERS, path, run="a")
    other = PrivacyPlan.parse("local-laplace:epsilon0=0.1,clip_norm=5")
    for plan, users, run in [(other, USERS, "a"), (PLAN, USERS + 1, "a"), (PLAN, USERS, "b")]:
        with pytest.raises(LedgerError, match="entries of different runs cannot be mixed"):
            Ledger.resume(plan, users, path, run=run)


def test_a_repeated_round_is_recorded_once_and_only_if_it_is_the_same(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    charge(ledger, 0)
    checkpoint = json.loads(json.dumps(ledger.state()))
    charge(ledger, 1, members=[0, 1])
    again = Ledger.resume(PLAN, USERS, path)
    again.load(checkpoint)
    with pytest.raises(LedgerError, match="number the queries"):
        charge(again, 0)
    with pytest.raises(LedgerError, match="a resumed run must repeat itself exactly"):
        charge(again, 1, members=[0, 2])
    before = path.read_bytes()
    charge(again, 1, members=[0, 1])
    assert path.read_bytes() == before
    assert again.participations.tolist() == [2, 2, 1, 1, 1, 1]
    with pytest.raises(LedgerError, match="number the queries"):
        charge(again, 1, members=[0, 1])


def test_fresh_noise_may_not_repeat_a_recorded_query(tmp_path):
    path = tmp_path / "ledger.jsonl"
    charge(Ledger(PLAN, USERS, path))
    again = Ledger.resume(PLAN, USERS, path, same_noise=False)
    with pytest.raises(LedgerError, match="number the queries"):
        charge(again)


def test_a_checkpoint_restores_a_ledger_in_memory():
    ledger = Ledger(PLAN, USERS)
    for round in range(3):
        charge(ledger, round, members=[round])
    restored = Ledger(PLAN, USERS)
    restored.load(json.loads(json.dumps(ledger.state())))
    assert restored.entries == ledger.entries
    assert restored.guarantee() == ledger.guarantee()


def test_a_ledger_that_lost_entries_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    for round in range(2):
        charge(ledger, round)
    checkpoint = ledger.state()
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:2]))
    with pytest.raises(LedgerError, match="lost entries"):
        Ledger.resume(PLAN, USERS, path).load(checkpoint)
    with pytest.raises(LedgerError, match="different runs"):
        Ledger(PLAN, USERS, run="b").load(checkpoint)


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 60)))
def test_ranges_round_trip(members):
    ordered = np.array(sorted(members), dtype=np.int64)
    assert from_ranges(to_ranges(ordered), limit=61).tolist() == ordered.tolist()


BAD_RANGES = ["a", "3-1", "1,1", "2,1", "-1", "1-", "1--2", "0x1", "1-2-3", " 1"]
BAD_RANGES += [
    "+1",
    "01",
    "1-02",
    "1_0",
    "1,",
    ",1",
    "1\n",
    "1, 2",
    "1e1",
    "\u0661",
    "\uff11",
    "0-1,1-2",
    "1-2,2",
    "\0",
    "1.0",
]


@pytest.mark.parametrize("text", BAD_RANGES)
def test_bad_ranges_are_refused(text):
    with pytest.raises(LedgerError):
        from_ranges(text, limit=1000)


@pytest.mark.parametrize(
    "text",
    [
        "0-999999999999999",
        "0-300000000",
        "0-60,999999999999999999",
        "61",
        "0-61",
        "1" * 10**6,
        "0-" + "9" * 18,
        "0," * 10**5 + "0",
        ",".join(map(str, range(10**5))),
    ],
)
def test_ranges_are_bounded_before_anything_is_made_of_them(text):
    tracemalloc.start()
    with pytest.raises(LedgerError, match=r"drop it|not ranges"):
        from_ranges(text, limit=61)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**16


def test_the_longest_ranges_of_a_population_are_read():
    for limit in (1, 9, 10, 11, 100, 1000):
        every_other = np.arange(0, limit, 2)
        assert from_ranges(to_ranges(every_other), limit=limit).tolist() == every_other.tolist()
        assert from_ranges(to_ranges(np.arange(limit)), limit=limit).tolist() == list(range(limit))


def test_an_edited_ledger_file_names_nobody_beyond_the_population(tmp_path):
    path = tmp_path / "ledger.jsonl"
    charge(Ledger(PLAN, USERS, path), 0, members=[0])
    header, line = path.read_text().splitlines()
    fields = json.loads(line)
    del fields["previous"], fields["digest"]
    fields["participants"] = "0-999999999999999"
    forged, _ = link(json.loads(header)["digest"], fields)
    path.write_text(f"{header}\n{forged}\n")
    with pytest.raises(LedgerError, match=r"longer than any of 6 users"):
        Ledger.resume(PLAN, USERS, path)


@pytest.mark.parametrize("same_noise", [True, False])
def test_two_processes_cannot_both_continue_a_ledger(tmp_path, same_noise):
    path = tmp_path / "ledger.jsonl"
    charge(Ledger(PLAN, USERS, path), 0)
    first, second = (Ledger.resume(PLAN, USERS, path, same_noise=same_noise) for _ in range(2))
    charge(first, 1)
    kept = path.read_bytes()
    with pytest.raises(LedgerError, match="another process writes it"):
        charge(second, 1)
    assert len(second.entries) == 1
    assert path.read_bytes() == kept
    charge(first, 2)
    assert len(Ledger.resume(PLAN, USERS, path).entries) == 3


def test_two_processes_cannot_both_begin_a_ledger(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    with monkeypatch.context() as before:
        before.setattr(type(path), "exists", lambda self: False)  # both look before either writes
        Ledger(PLAN, USERS, path)
        with pytest.raises(LedgerError, match="another process writes it"):
            Ledger(PLAN, USERS, path)


def test_a_ledger_that_was_taken_away_is_not_begun_anew(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(PLAN, USERS, path)
    charge(ledger, 0)
    path.unlink()
    with pytest.raises(LedgerError, match="cannot be written"):
        charge(ledger, 1)
    assert not path.exists()


def test_whoever_reads_a_ledger_waits_for_the_line_that_is_being_written(tmp_path):
    """A command that looks at a run takes no half of a line for one cut short, nor cuts it off."""
    path = tmp_path / "ledger.jsonl"
    charge(Ledger(PLAN, USERS, path), 0)
    whole = path.read_bytes()
    with path.open("r+b") as writer, ThreadPoolExecutor(1) as reader:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.truncate(len(whole) - 10)
        found = reader.submit(Ledger.resume, PLAN, USERS, path)
        with pytest.raises(TimeoutError):
            found.result(0.2)
        writer.seek(0, os.SEEK_END)
        writer.write(whole[-10:])
        writer.flush()
        fcntl.flock(writer, fcntl.LOCK_UN)
        assert len(found.result(10).entries) == 1
    assert path.read_bytes() == whole
