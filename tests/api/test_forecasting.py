"""`privfed.forecast`: monotone where it must be, refused in a sentence, its constants as they were fitted."""

import json
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import privfed
from benchmarks.harness import RESULTS
from benchmarks.quality import forecast as fitting
from privfed.api import pilot
from privfed.cli import app
from privfed.methods.private_gram import expected

FEDERATION: dict[str, Any] = {"people": 6040, "items": 3700, "history": 130.0, "epsilon": 1.0}


def test_the_constants_are_those_of_the_file_of_results() -> None:
    rows = json.loads((RESULTS / "forecast.json").read_text())["results"]
    assert {name: getattr(expected, name) for name in fitting.constants(rows)} == fitting.constants(rows)


def test_every_forecast_stands_beside_its_measurement() -> None:
    rows = fitting.from_samples(json.loads((RESULTS / "forecast.json").read_text())["results"])
    assert len({row["data"] for row in rows}) >= 5
    assert all(row["forecast"] >= row["popularity"] for row in rows)


@pytest.mark.parametrize(("name", "more"), [("people", 60_000), ("epsilon", 8.0)])
def test_more_of_it_is_worth_more(name: str, more: float) -> None:
    less, better = privfed.forecast(**FEDERATION), privfed.forecast(**FEDERATION | {name: more})
    assert less.ratio.expected < better.ratio.expected
    assert less.ratio.low <= less.ratio.expected <= less.ratio.high


@pytest.mark.parametrize("change", [{"refreshes": 52, "stays_true": 0.5}, {"dropout": 0.4}, {"trust": "distributed"}])
def test_what_costs_signal_is_worth_less(change: dict[str, Any]) -> None:
    assert privfed.forecast(**FEDERATION | change).ratio.expected < privfed.forecast(**FEDERATION).ratio.expected


def test_pooled_refreshes_of_what_stays_true_cost_nothing() -> None:
    once, year = privfed.forecast(**FEDERATION), privfed.forecast(**FEDERATION, refreshes=12, stays_true=1.0)
    assert year.mu == pytest.approx(once.mu, rel=0.02)


def test_few_people_are_told_to_publish_popularity() -> None:
    found = privfed.forecast(**FEDERATION | {"people": 50, "epsilon": 0.1})
    assert found.verdict.startswith("No go")
    assert any("so few people" in risk for risk in found.risks)
    assert found.ratio.low == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"people": 1}, "give at least two of each"),
        ({"history": 4000.0}, "not a mean number of items"),
        ({"dropout": 1.0}, "not a share of devices"),
        ({"popularity": 3.0}, "is not an NDCG"),
        ({"trust": "local"}, "choose central or distributed"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"sample": pd.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1]})}, "holds 2 people: give at least 100"),
    ],
)
def test_bad_numbers_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        privfed.forecast(**FEDERATION | change)


def test_a_sample_is_trained_on_with_the_signal_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def ndcg(parts: object, method: str, plan: privfed.privacy.PrivacyPlan, seed: int) -> float:
        plans.append(plan)
        return 0.1 if method == "popularity" else 0.15

    monkeypatch.setattr(pilot, "_ndcg", ndcg)
    found = privfed.forecast(**FEDERATION, sample="synthetic-small")
    people = privfed.load("synthetic-small").n_users
    assert plans[1].mechanism.noise_multiplier == pytest.approx(people / (6040 * found.mu))
    assert found.ratio.expected == pytest.approx(1.5)
    assert found.ndcg is not None
    assert found.ndcg[1] == pytest.approx(0.15)


def test_the_command_says_what_the_function_finds() -> None:
    words = ["--people", "6040", "--items", "3700", "--history", "130", "--epsilon", "1"]
    answer = CliRunner().invoke(app, ["forecast", *words])
    assert answer.exit_code == 0
    assert " ".join(answer.output.split()) == " ".join(str(privfed.forecast(**FEDERATION)).split())
    document = json.loads(CliRunner().invoke(app, ["forecast", *words, "--json"]).stdout)
    assert document["ratio"]["expected"] == privfed.forecast(**FEDERATION).ratio.expected
