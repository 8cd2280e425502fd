"""Two audits side by side: differences with their intervals, and every reason not to read them."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit.page.charts.comparison import comparison_charts
from privfed.audit.page.comparison import MARK, render_comparison
from privfed.audit.report.compare import Comparison, compare, difference
from privfed.audit.report.records import AuditReport, Interval, ListsRow


def interval(value: float, below: float, above: float) -> Interval:
    return Interval(value=value, lo=value - below, hi=value + above)


@given(*[st.tuples(*[st.floats(0, 1)] * 3).map(lambda numbers: interval(*numbers))] * 2)
@settings(max_examples=50, deadline=None)
def test_a_difference_turns_its_sign_with_its_order(a: Interval, b: Interval) -> None:
    there, back = difference(a, b), difference(b, a)
    assert there.lo <= there.value <= there.hi
    assert (back.value, back.lo, back.hi) == pytest.approx((-there.value, -there.hi, -there.lo))
    assert there.hi - there.value <= b.hi - b.value + a.value - a.lo + 1e-12


def test_the_interval_of_a_difference_of_normals_is_the_known_one() -> None:
    found = difference(interval(0.2, 1.96 * 0.03, 1.96 * 0.03), interval(0.5, 1.96 * 0.04, 1.96 * 0.04))
    assert (found.lo, found.hi) == pytest.approx((0.3 - 1.96 * 0.05, 0.3 + 1.96 * 0.05))


def test_its_interval_covers_the_true_difference() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        a, b = rng.normal(0.2, 1, 80), rng.normal(0.5, 2, 60)
        ends = [(x.mean(), 1.96 * x.std(ddof=1) / math.sqrt(len(x))) for x in (a, b)]
        found = difference(*(interval(mean, half, half) for mean, half in ends))
        covered += found.lo <= 0.3 <= found.hi
    assert 0.92 <= covered / 400 <= 0.98


@pytest.fixture(scope="module")
def other(make: SimpleNamespace) -> AuditReport:
    """Another audit of the same people: stronger privacy, lower quality, one setting more and one less."""
    strong = make.guarantee("local_laplace", epsilon=30.0)
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", "none", 0)]
    runs += [make.run("gpfedrec", "local_laplace", 0, guarantee=strong), make.run("fedmf", "none", 0)]
    return make.report(runs)


@pytest.fixture(scope="module")
def comparison(report: AuditReport, other: AuditReport) -> Comparison:
    return compare(report, other, ("before", "after"))


def test_what_both_have_is_paired_and_the_rest_is_named(comparison: Comparison) -> None:
    assert [(pair.a.method, pair.a.setting.slug) for pair in comparison.pairs] == [
        ("gpfedrec", "none"),
        ("gpfedrec", "local_laplace"),
    ]
    assert comparison.only_a == ["GPFedRec, published noise (Laplace 0.3, unclipped)"]
    assert comparison.only_b == ["FedMF, no privacy mechanism"]
    assert comparison.comparable
    assert [m.what for m in comparison.mismatches] == ["seeds"]


def test_how_much_of_the_catalogue_is_shown_is_laid_side_by_side(make: SimpleNamespace) -> None:
    def shown(*coverages: float, k: int = 10) -> AuditReport:
        lift = interval(1.5, 0.2, 0.3)
        runs = [
            make.run("fedmf", "none", seed, lists=ListsRow(k=k, coverage=coverage, popularity_lift=lift))
            for seed, coverage in enumerate(coverages)
        ]
        return make.report(runs)

    few = shown(0.2, 0.3)
    (pair,) = compare(few, shown(0.5)).pairs
    assert pair.coverage is not None
    assert pair.coverage.difference is not None
    assert (pair.coverage.a, pair.coverage.b) == (pytest.approx(0.25), 0.5)
    assert pair.coverage.difference.value == pytest.approx(0.25)
    (cell,) = few.aggregates
    assert cell.lists is not None
    assert cell.lists.popularity_lift == interval(1.5, 0.2, 0.3)
    page = render_comparison(compare(few, shown(0.5)), "0")
    assert "0.250 → 0.500" in page
    (longer,) = compare(few, shown(0.5, k=20)).pairs
    assert longer.coverage is not None
    assert (longer.coverage.difference, longer.coverage.note) == (None, "lists of 10 and 20")
    (absent,) = compare(few, make.report([make.run("fedmf", "none", 0)])).pairs
    assert absent.coverage is None


def test_numbers_and_differences(comparison: Comparison) -> None:
    plain, local = comparison.pairs
    assert plain.utility is not None
    assert (plain.utility.a, plain.utility.b, plain.utility.over) == (
        pytest.approx(0.428),
        pytest.approx(0.425),
        "people",
    )
    assert not plain.utility.clear
    assert (local.epsilon.a, local.epsilon.b) == (68.3, 30.0)
    assert local.epsilon.difference is not None
    assert local.epsilon.difference.value == pytest.approx(-38.3)
    assert plain.epsilon.difference is None
    assert local.attack is not None
    assert local.attack.difference is not None
    assert local.bound is None


def test_five_seeds_give_intervals_over_seeds(make: SimpleNamespace) -> None:
    runs = [make.run("popularity", "none", 0), *(make.run("gpfedrec", "none", seed) for seed in range(5))]
    (pair,) = compare(make.report(runs), make.report(runs)).pairs
    assert pair.utility is not None
    assert pair.utility.over == "seeds"
    assert pair.utility.difference is not None
    assert pair.utility.difference.value == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dataset": {"name": "ml-1m"}}, "data set"),
        ({"dataset": {"split": "A fifth of the interactions at random."}}, "split"),
        ({"protocol": {"candidates": "all"}}, "protocol: candidates"),
    ],
)
def test_what_was_measured_differently_is_said_loudly(
    report: AuditReport, changes: dict[str, dict[str, str]], what: str
) -> None:
    changed = report.model_dump()
    for field, values in changes.items():
        (changed["protocol"]["settings"] if field == "protocol" else changed[field]).update(values)
    comparison = compare(report, AuditReport.model_validate(changed), ("before", "after"))
    assert not comparison.comparable
    assert [m.what for m in comparison.mismatches] == [what]
    page = render_comparison(comparison, "0.1.0")
    assert page.index("These two were not measured alike") < page.index("<main")
    assert next(iter(next(iter(changes.values())).values())) in page


def test_epsilons_of_another_kind_have_no_difference(report: AuditReport, make: SimpleNamespace) -> None:
    central = make.guarantee("local_laplace", trust="central", delta=1e-6)
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", "local_laplace", 0, guarantee=central)]
    (pair,) = compare(report, make.report(runs)).pairs
    assert pair.epsilon.difference is None
    assert pair.epsilon.note == "not comparable, trust: local and central; delta: 1e-05 and 1e-06"


def test_plans_of_one_name_that_differ_are_told(report: AuditReport, make: SimpleNamespace) -> None:
    plan = report.runs[-1].plan | {"sampling": {"kind": "fixed", "size": 94}}
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", "local_laplace", 0, plan=plan)]
    (pair,) = compare(report, make.report(runs)).pairs
    assert pair.note == "the plans differ: sampling.kind is all and fixed"


def test_attacks_seen_elsewhere_have_no_difference(report: AuditReport, make: SimpleNamespace) -> None:
    rows = [make.attack(name, 0.6, [40], tap="sum") for name in ("row norm", "popularity")]
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", "local_laplace", 0, attacks=rows)]
    (pair,) = compare(report, make.report(runs)).pairs
    assert pair.attack is not None
    assert pair.attack.difference is None
    assert pair.attack.note.startswith("not comparable, seen at: what one client sends")


def test_the_page_is_one_file_with_its_charts(comparison: Comparison) -> None:
    page = render_comparison(comparison, "0.1.0")
    assert MARK in page[:2000]
    assert "These two were not measured alike" not in page
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', page, re.DOTALL)[1])
    assert list(specs) == ["compare_quality", "compare_epsilon", "compare_attack"]
    assert page.count("data-chart=") == 3
    assert not re.search(r'\ssrc="|<link', page.split('<script type="application/json"')[0])


def test_nothing_in_common_is_a_page_too(report: AuditReport, make: SimpleNamespace) -> None:
    comparison = compare(report, make.report([make.run("popularity", "none", 0), make.run("fedmf", "none", 0)]))
    assert comparison_charts(comparison) == []
    assert "No method is behind the same setting in both." in render_comparison(comparison, "0.1.0")
