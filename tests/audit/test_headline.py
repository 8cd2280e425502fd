"""The headline: chosen on half of the users, measured on the others, about the right observer, the same everywhere."""

import io
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from attacks import Knowledge, Targets
from attacks.evaluation import AttackObservation, AttackScores, measure
from privfed.audit.attack_runs.selection import selection_half
from privfed.audit.page.render import render
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import aggregate
from privfed.audit.report.paper_tables import paper_tables
from privfed.audit.report.records import AttackRow, AuditReport, Cell, Interval
from privfed.audit.report.tables import runs_table
from privfed.cli.show_audit import audit_table


@dataclass(frozen=True)
class Noise:
    """An attack that says nothing."""

    name: str
    observable: str = "nothing"
    adversary: str = "server"
    knowledge: tuple[str, ...] = ()
    unit: str = "interaction"
    cost: str = "O(1)"
    explains: str = "Guesses at random."


def noise_rows(seed: int, users: int = 100, items: int = 60, attacks: int = 100) -> list[AttackRow]:
    """A hundred attacks on nothing, and a popularity that knows nothing either."""
    rng = np.random.default_rng(seed)
    members = rng.random((users, items)) < 0.2
    members[:, 0], members[:, 1] = True, False
    everybody = np.ones(users, dtype=bool)
    names = ["popularity", *(f"noise {n}" for n in range(attacks))]
    scored = tuple(AttackScores(Noise(name), rng.normal(size=members.shape), everybody, 1, 0.0) for name in names)
    results = measure(
        AttackObservation(scored, None),
        Knowledge(rng.permutation(items).astype(np.float64)),
        Targets.trained_vs_never_seen(members, members),
        resamples=100,
        selection=selection_half(np.arange(users)),
    )
    return [AttackRow.from_result(result, tap="wire", rounds_seen=[1]) for result in results]


def test_the_best_of_a_hundred_noises_is_no_better_than_chance(make: SimpleNamespace) -> None:
    covered, above, luckiest = 0, 0, []
    for seed in range(12):
        rows = noise_rows(seed)
        headline = aggregate([make.run("gpfedrec", "none", 0, attacks=rows)])[0].headline
        assert headline is not None
        covered += headline.auc.lo <= 0.5 <= headline.auc.hi
        above += headline.excess.lo > 0
        luckiest.append(max(row.auc.lo for row in rows))
    assert min(luckiest) > 0.5  # the maximum over all users would have been a find in every one of them
    assert covered >= 10
    assert above <= 2


def test_a_user_is_on_one_side_whatever_the_company() -> None:
    users = np.arange(2000)
    half = selection_half(users)
    assert 900 < half.sum() < 1100
    assert (selection_half(users[::7]) == half[::7]).all()
    assert selection_half(np.array([0, 1, 2, 3, 4, 5, 6, 7])).tolist() == half[:8].tolist()


def test_both_sides_are_measured_on_their_own_users_only() -> None:
    one = noise_rows(3)[5]
    assert one.sample_split is not None
    assert one.sample_split.selection_users + one.sample_split.n_users == one.n_users == 100
    whole = (
        one.sample_split.selection_users * one.sample_split.selection_gain
        + one.sample_split.n_users * one.sample_split.gain.value
    ) / 100
    assert whole == pytest.approx(one.gain.value)
    assert one.sample_split.gain.value == pytest.approx(one.sample_split.auc.value - one.sample_split.popularity_auc)


def with_sample_split(row: AttackRow, selection: float, measured: float) -> AttackRow:
    assert row.sample_split is not None
    gain = Interval(value=measured - 0.842, lo=measured - 0.852, hi=measured - 0.832)
    auc = Interval(value=measured, lo=measured - 0.01, hi=measured + 0.01)
    sample_split = row.sample_split.model_copy(update={"selection_gain": selection - 0.842, "auc": auc, "gain": gain})
    return row.model_copy(update={"sample_split": sample_split})


def uneven(make: SimpleNamespace) -> AuditReport:
    """The attack that looks strongest over all users is not the one that is chosen, nor is its number shown."""
    lucky = with_sample_split(make.attack("lucky", 0.951, [1]), 0.87, 0.96)
    solid = with_sample_split(make.attack("solid", 0.931, [1]), 0.95, 0.913)
    rows = [lucky, solid, make.attack("popularity", 0.842, [1])]
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", "none", 0, attacks=rows)]
    return make.report(runs)


def cell_of(report: AuditReport, slug: str) -> Cell:
    return next(cell for cell in report.aggregates if cell.method != "popularity" and cell.setting.slug == slug)


def test_one_number_in_card_table_terminal_page_and_json(make: SimpleNamespace) -> None:
    report = uneven(make)
    headline = cell_of(report, "none").headline
    assert headline is not None
    assert (headline.attack, headline.auc.value, headline.candidates) == ("solid", 0.913, 2)
    assert runs_table(report).set_index("method").loc["gpfedrec", "auc"] == 0.913
    table = next(table for table in paper_tables(report) if table.slug == "attacks")
    assert [row["AUC"].value for row in table.rows] == [0.913]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(audit_table(report, synthetic=False))
    assert "0.913 (solid)" in console.export_text()
    statement = next(s for s in report.statements if s.topic == "attack")
    assert "91 times in 100" in statement.text
    assert "AUC 0.913" in statement.detail
    page = render(report)
    first = page[page.index('id="verdict"') : page.index('id="picture"')]
    assert re.search(r"<b>91</b>", first)
    card = page[page.index('id="settings"') : page.index('id="guarantee"')]
    assert '<span class="numeral">91 <small>' in card
    assert "0.913" in page[page.index('id="attacks"') :]
    document = report.model_dump(mode="json")
    assert document["aggregates"][1]["headline"]["auc"]["value"] == 0.913
    assert document["schema_version"] == 3
    assert "chosen on about half of the audited users" in document["selection"]


@pytest.mark.parametrize(
    ("auc", "popular", "half", "words"),
    [
        (0.999, 0.84, 0.01, "everything"),
        (0.97, 0.84, 0.01, "nearly everything"),
        (0.9, 0.84, 0.01, "more than popularity"),
        (0.9, 0.895, 0.01, "no more than popularity"),
        (0.6, 0.84, 0.01, "no more than popularity"),
        (0.996, 0.995, 0.01, "no more than popularity"),
    ],
)
def test_what_leaks_is_what_popularity_does_not_explain(
    make: SimpleNamespace, auc: float, popular: float, half: float, words: str
) -> None:
    gain = Interval(value=auc - popular, lo=auc - popular - half, hi=auc - popular + half)
    row = make.attack("row norm", auc, [1], popularity_auc=popular, gain=gain)
    headline = aggregate([make.run("gpfedrec", "none", 0, attacks=[row])])[0].headline
    assert headline is not None
    assert headline.leaks == words


def test_under_central_noise_the_server_reads_everything(large_report: AuditReport) -> None:
    cell = cell_of(large_report, "central_gaussian")
    seen = {one.who: one for one in cell.observers}
    sums, server = seen["somebody who sees the sums"], seen["the server, which adds the noise"]
    assert sums.guaranteed
    assert not server.guaranteed
    assert sums.headline is not None
    assert server.headline is not None
    assert server.headline.leaks == "everything"
    assert server.headline.auc.value > 0.995 > sums.headline.auc.value
    assert cell.headline == sums.headline
    statement = next(s for s in large_report.statements if (s.topic, s.setting) == ("attack", "central_gaussian"))
    assert "somebody who sees the sums picks the right one" in statement.text
    assert "The server, which adds the noise: more than 99 times in 100, outside the guarantee." in statement.text


def test_with_a_secure_sum_the_server_sees_masks_and_with_shares_both_together_read_all(make: SimpleNamespace) -> None:
    rows = [make.attack(name, 0.7, [1], tap="sum") for name in ("row norm", "popularity")]
    rows += [make.attack(name, 0.99, [1], tap="raw") for name in ("row norm", "popularity")]
    plans = {
        "secure_sum": {"mechanism": {"kind": "secure_sum", "clip_norm": 1.0}},
        "shared_sum": {"mechanism": {"kind": "shared_sum", "clip_norm": 1.0}},
    }
    found = {}
    for slug, plan in plans.items():
        run = make.run("gpfedrec", "none", 0, attacks=rows, plan=plan, setting={"slug": slug, "name": slug})
        found[slug] = aggregate([run])[0]
    masked, shared = found["secure_sum"].observers, found["shared_sum"].observers
    assert [(one.who, one.blind, one.guaranteed) for one in masked] == [
        ("the server, from one device", True, True),
        ("somebody who sees the sums", False, True),
        ("a server with many devices on its side", False, False),
    ]
    assert [(one.who, one.guaranteed) for one in shared] == [
        ("each server alone", True),
        ("somebody who sees the sums", True),
        ("both servers together", False),
    ]
    assert shared[-1].headline is not None
    assert shared[-1].headline.auc.value == 0.99
    assert all(cell.headline is not None and cell.headline.auc.value == 0.7 for cell in found.values())


def test_times_in_100_are_the_same_words_everywhere(report: AuditReport) -> None:
    page = render(report)
    for cell in report.aggregates[1:]:
        assert cell.headline is not None
        number = formatting.in_hundred(cell.headline.auc.value).split(" times")[0].replace("more than ", "&gt;")
        assert f"<b>{number}</b>" in page
