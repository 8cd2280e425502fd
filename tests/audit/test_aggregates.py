"""Cells against naive statistics over the runs they are made of."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.audit.report.aggregates import aggregate, rate_at, spread
from privfed.audit.report.records import AuditReport


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_spread_against_the_textbook(values: list[float]) -> None:
    found = spread(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert (found.minimum, found.maximum, found.n_seeds) == (min(values), max(values), len(values))
    if len(values) < 5:
        assert found.lo is None
        assert found.hi is None
    else:
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
        assert (found.lo, found.hi) == pytest.approx((found.mean - half, found.mean + half), abs=1e-6)


def test_one_cell_per_method_and_setting(report: AuditReport) -> None:
    cells = [(cell.method, cell.setting.slug, cell.n_seeds) for cell in report.aggregates]
    assert cells == [
        ("popularity", "none", 3),
        ("gpfedrec", "none", 3),
        ("gpfedrec", "published_noise", 3),
        ("gpfedrec", "local_laplace", 3),
    ]


def test_a_cell_averages_its_runs(report: AuditReport) -> None:
    cell = report.aggregates[2]
    runs = [run for run in report.runs if (run.method, run.setting.slug) == ("gpfedrec", "published_noise")]
    ndcg = [row for run in runs for row in run.utility if row.name == "ndcg"]
    found = next(row for row in cell.utility if row.name == "ndcg")
    assert found.seeds.mean == pytest.approx(np.mean([row.value for row in ndcg]))
    assert found.users.lo == pytest.approx(np.mean([row.lo for row in ndcg]))
    vote = [row for run in runs for row in run.attacks if "vote" in row.attack and row.tap == "wire"]
    attack = next(row for row in cell.attacks if "vote" in row.attack and row.tap == "wire")
    assert attack.auc.mean == pytest.approx(np.mean([row.auc.value for row in vote]))
    assert attack.tpr_at_1pct is not None
    assert attack.tpr_at_1pct.mean == pytest.approx(np.mean([rate_at(row, 0.01) for row in vote]))
    assert cell.cost.train_s == pytest.approx(np.mean([run.wall.train_s for run in runs]))


def test_the_worst_of_each_tap_and_game_is_an_attack_and_the_strongest(report: AuditReport) -> None:
    for cell in report.aggregates[1:]:
        worst = {(row.tap, row.game): row for row in cell.attacks if row.chosen}
        assert len(worst) == len([row for row in cell.attacks if row.chosen]) == 4
        for (tap, game), row in worst.items():
            rivals = [r for r in cell.attacks if (r.tap, r.game) == (tap, game) and r.attack != "popularity"]
            assert row.auc.mean == max(r.auc.mean for r in rivals)
            assert row.attack != "popularity"


def test_the_guarantee_of_a_cell_is_the_weakest_of_its_seeds(make: SimpleNamespace) -> None:
    runs = [
        make.run("gpfedrec", "local_laplace", seed, guarantee=make.guarantee("local_laplace", epsilon=epsilon))
        for seed, epsilon in enumerate([3.0, 7.5, 5.0])
    ]
    assert aggregate(runs)[0].guarantee.epsilon == 7.5


def test_what_a_guarantee_is_held_against_is_never_averaged(make: SimpleNamespace) -> None:
    runs = [make.full("gpfedrec", "local_laplace", seed) for seed in range(3)]
    values = {0: 0.2, 1: 0.9, 2: 0.5}
    runs = [
        run.model_copy(
            update={"empirical": [row.model_copy(update={"value": values[run.seed]}) for row in run.empirical]}
        )
        for run in runs
    ]
    assert {row.value for row in aggregate(runs)[0].empirical} == {0.9}
    denied = [row.model_copy(update={"consistent": False}) for row in runs[0].empirical]
    cell = aggregate([runs[0].model_copy(update={"empirical": denied}), *runs[1:]])[0]
    assert {(row.value, row.consistent) for row in cell.empirical} == {(0.2, False)}
    assert len(cell.empirical) == len(runs[0].empirical)


def test_tenths_and_attributes_are_means_over_seeds(make: SimpleNamespace) -> None:
    runs = [
        make.run("gpfedrec", "none", seed, attacks=[make.attack("row norm", 0.8, [1], slices=make.slices(auc))])
        for seed, auc in enumerate([0.6, 0.8, 0.9])
    ]
    (attack,) = aggregate(runs)[0].attacks
    naive = np.mean([[part.auc.value for part in run.attacks[0].slices] for run in runs], axis=0)
    assert [part.auc.value for part in attack.slices] == pytest.approx(naive)
    assert [(part.by, part.group) for part in attack.slices] == [
        (by, group) for by in ("popularity", "activity") for group in range(10)
    ]
    full = [make.full("gpfedrec", "none", seed) for seed in range(2)]
    moved = full[1].attributes[0].model_copy(update={"majority": 0.5})
    full[1] = full[1].model_copy(update={"attributes": [moved, *full[1].attributes[1:]]})
    cell = aggregate(full)[0]
    assert len(cell.attributes) == len(full[0].attributes) == 4
    assert cell.attributes[0].majority == pytest.approx((0.72 + 0.5) / 2)


def test_the_ceiling_and_the_ledger_are_those_of_the_weakest_seed(make: SimpleNamespace) -> None:
    runs = [make.full("gpfedrec", "local_laplace", seed) for seed in range(2)]
    weak = make.guarantee("local_laplace", epsilon=99.0)
    ledger = [line.model_copy(update={"times": 7}) for line in runs[1].ledger]
    attacks = [
        row.model_copy(update={"ceiling": row.ceiling.model_copy(update={"beaten": True, "auc": 0.9})})
        if row.ceiling
        else row
        for row in runs[1].attacks
    ]
    runs[1] = runs[1].model_copy(update={"guarantee": weak, "ledger": ledger, "attacks": attacks})
    (cell,) = aggregate(runs)
    assert (cell.guarantee.epsilon, cell.ledger) == (99.0, ledger)
    inclusion = [row for row in cell.attacks if row.membership == "randomised"]
    assert len(inclusion) == 3
    assert all(row.ceiling and row.ceiling.beaten and row.ceiling.auc > 0.9 for row in inclusion)
    assert all(row.ceiling is None for row in cell.attacks if row.membership == "natural")


def test_a_rate_that_was_not_resolved_is_none(make: SimpleNamespace) -> None:
    row = make.attack("rank-1 sign", 0.9, [1], tpr_at_fpr=[{"fpr": 0.01, "tpr": None, "false_positives": 0}])
    assert rate_at(row, 0.01) is None
    assert rate_at(row, 0.1) is None
    cell = aggregate([make.run("gpfedrec", "none", 0, attacks=[row])])[0]
    assert cell.attacks[0].tpr_at_1pct is None
