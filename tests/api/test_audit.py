"""`privfed.audit`, `privfed.compare` and `privfed.budget`."""

import json
from pathlib import Path
from typing import Any

import pytest

import privfed
from privfed.api.comparing import record_of
from privfed.privacy.closed_forms import gaussian_epsilon

QUICK: dict[str, Any] = {"workers": 1, "options": {"canaries": 0, "taps": {"users": 20, "inclusion": 0.0}}}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> privfed.Report:
    folder = tmp_path_factory.mktemp("audit")
    methods = ["private-gram", {"name": "fedmf", "dim": 4}]
    return privfed.audit(methods, "synthetic-small", epsilon=[8, 1], rounds=2, folder=folder / "a", **QUICK)


def test_every_method_is_put_behind_every_epsilon(report: privfed.Report) -> None:
    table = report.to_frame()
    assert table["method"].tolist() == ["private-gram"] * 2 + ["fedmf"] * 2
    assert table["epsilon"].tolist() == pytest.approx([8, 1, 8, 1], rel=0.02)
    assert (table["epsilon"] <= [8, 1, 8, 1]).all()
    assert set(table["metric"]) == {"NDCG@10"}
    assert table["popularity"].nunique() == 1
    assert report.contradictions == []


def test_the_verdict_follows_from_the_table(report: privfed.Report) -> None:
    table = report.to_frame()
    assert "four settings" in report.verdict
    assert set(table["leaks"].dropna()) <= {
        "everything",
        "nearly everything",
        "more than popularity",
        "no more than popularity",
    }
    assert report.advice in str(report)
    assert report.verdict in str(report)
    assert report.verdict in report._repr_html_()


def test_the_picture_and_the_page(report: privfed.Report, tmp_path: Path) -> None:
    assert report.plot().to_dict()["title"]
    page = report.save_html(tmp_path / "audit.html").read_text()
    assert "</html>" in page
    assert report.folder is not None
    assert json.loads((report.folder / "report.json").read_text())["runs"]
    with pytest.raises(ValueError, match="there is no folder"):
        report.save_html(tmp_path / "no" / "audit.html")


def test_two_audits_side_by_side(report: privfed.Report, tmp_path: Path) -> None:
    other = privfed.audit("private-gram", "synthetic-small", epsilon=8, seeds=2, **QUICK)
    compared = privfed.compare(report, other)
    assert compared.comparable
    assert "NDCG@10" in str(compared.to_frame()["what"].tolist())
    assert report.folder is not None
    assert privfed.compare(report.folder, other).to_frame().equals(compared.to_frame())
    assert "</html>" in compared.save_html(tmp_path / "c.html").read_text()
    with pytest.raises(ValueError, match=r"holds no report\.json"):
        privfed.compare(tmp_path, report)
    with pytest.raises(ValueError, match="int is no audit"):
        record_of(3)


@pytest.mark.parametrize(
    ("methods", "options", "said"),
    [
        ([], {}, "methods is empty"),
        ("fedmf", {"seeds": 0}, "seeds=0 makes no runs"),
        ({"dim": 3}, {}, "has no name: add one"),
        ("no-such", {"epsilon": 8}, "unknown method"),
    ],
)
def test_what_cannot_be_audited(methods: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        privfed.audit(methods, "synthetic-small", **options)


def test_a_budget_goes_both_ways() -> None:
    needed = privfed.budget(epsilon=8, users=943, rounds=100, rate=0.1)
    back = privfed.budget(noise_multiplier=needed.noise_multiplier, users=943, rounds=100, rate=0.1)
    assert needed.epsilon <= 8
    assert back.epsilon == pytest.approx(needed.epsilon, rel=1e-3)
    assert gaussian_epsilon(needed.mu, needed.delta) == pytest.approx(needed.epsilon, rel=1e-6)
    assert "odds change by at most a factor of" in str(needed)
    local = privfed.budget(epsilon=8, users=943, rounds=10, trust="local")
    assert local.noise_multiplier == pytest.approx(2 * privfed.budget(epsilon=8, users=943, rounds=10).noise_multiplier)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"users": 10}, "give either epsilon or noise_multiplier"),
        ({"users": 10, "epsilon": 1, "noise_multiplier": 1}, "give either epsilon or noise_multiplier"),
        ({"users": 0, "epsilon": 1}, "clients"),
        ({"users": 10, "epsilon": -1}, "epsilon = -1"),
        ({"users": 10, "epsilon": 1, "trust": "me"}, "trust"),
    ],
)
def test_a_budget_that_cannot_be(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        privfed.budget(**asked)
