"""The sentence about exact metrics stands wherever a metric is printed, in the same words."""

from pathlib import Path

import pytest

from privfed.evaluation import UNCOUNTED
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["explanation/privacy", "reading_the_report", "guides/choosing_a_mechanism"])
def test_pages_say_it_in_the_words_of_the_code(page):
    assert UNCOUNTED in " ".join((ROOT / "docs" / f"{page}.md").read_text().split())


@pytest.mark.parametrize("parts", [(), ("test",)])
def test_a_guarantee_says_it_where_a_metric_was_computed(small_split, parts):
    config = ExperimentConfig(
        method={"name": "popularity"}, privacy=PrivacyPlan.named("none"), rounds=1, taps=TapConfig(places=())
    )
    said = Experiment(config, small_split).run(parts=parts).guarantee.statements
    assert said.count(UNCOUNTED) == len(parts)


@pytest.mark.parametrize(
    "place",
    [
        "privfed/experiment/training.py",
        "privfed/engines/nodes/run.py",
        "privfed/engines/flower/server.py",
        "privfed/audit/report/statements.py",
        "privfed/audit/report/paper_tables.py",
        "privfed/audit/page/render.py",
        "privfed/audit/page/comparison.py",
        "privfed/cli/compare.py",
    ],
)
def test_code_that_prints_metrics_takes_the_sentence_from_one_place(place):
    text = (ROOT / place).read_text()
    assert "UNCOUNTED" in text or "about_metrics" in text
    assert "are in no ledger" not in text


@pytest.mark.parametrize("template", ["page.html", "compare.html"])
def test_both_pages_show_it(template):
    assert "{{ uncounted }}" in (ROOT / "privfed/audit/page/templates" / template).read_text()
