"""`privfed.forecast`: monotone where it must be, refused in a sentence, its constants as they were fitted."""

import json
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import privfed
from benchmarks.harness import RESULTS
from benchmarks.private_tables import forecast_errors, forecasts
from benchmarks.quality import forecast as fitting
from privfed.api import pilot
from privfed.cli import app
from privfed.contracts import NoisySums, RunningTotals
from privfed.methods.private_gram import PrivateGramConfig, costs, expected
from privfed.methods.private_gram.config import PrivateGramConstants

FIELDS = {
    "epsilon", "delta", "mu", "ratio", "ndcg", "tiers", "head", "refreshes", "publish_from", "costs", "risks", "verdict"
}  # fmt: skip
COSTS = {"up_bytes", "down_bytes", "exchanges", "device_cpu_ms", "server_cpu_s"}
FEDERATION: dict[str, Any] = {"people": 6040, "items": 3700, "history": 130.0, "epsilon": 1.0}


def results() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "forecast.json").read_text())["results"]
    return rows


def test_the_constants_are_those_of_the_files_of_results() -> None:
    found, rates = fitting.constants(results()), fitting.rates()
    assert {name: getattr(expected, name) for name in found} == found
    assert {name: getattr(costs, name) for name in rates} == rates


def test_every_forecast_stands_beside_its_measurement() -> None:
    rows = fitting.from_samples(results())
    assert {row["data"] for row in rows} >= set(fitting.FIT)
    assert len({row["data"] for row in rows} - set(fitting.FIT)) >= 3


def test_a_benchmark_forecasts_by_what_the_sample_shows_alone() -> None:
    rows = [
        {"data": "ml-1m", "users": 1000, "method": "popularity", "ndcg": 0.2},
        {"data": "ml-1m", "users": 1000, "method": "private-gram", "epsilon": 1.0, "ndcg": 0.3},
        {"data": "ml-1m", "users": 100, "method": "forecast", "epsilon": 1.0, "reach": 1200.0, "popularity": 0.1,
         "ndcg": 0.22},
    ]  # fmt: skip
    (one,) = fitting.from_samples(rows, power=0.5)
    assert one["forecast"] == pytest.approx(0.22 * (12 / 3) ** 0.5)
    assert one["error"] == pytest.approx(one["forecast"] - 0.3)


def test_what_is_added_to_samples_is_less_off_on_catalogues_left_out() -> None:
    points = fitting.samples_left_out(results())
    off = {of: sum(abs(point[of] - point["ndcg"]) for point in points) for of in ("shown", "forecast")}
    assert off["forecast"] < off["shown"]


def test_catalogues_of_the_fit_are_counted_apart() -> None:
    table, errors = forecasts(), " ".join(forecast_errors())
    rows = fitting.from_samples(results())
    for fitted in (True, False):
        points = [row for row in rows if row["sample"] > 0.22 * row["users"] and (row["data"] in fitting.FIT) == fitted]
        near = sum(abs(row["error"]) <= 0.01 for row in points)
        assert f"{near} of {len(points)} forecasts" in errors
    marks = [line.split("|")[2].strip() for line in table if line.startswith("| ")][1:]
    assert marks == sorted(marks)
    assert set(marks) == {"no", "yes"}


@pytest.mark.parametrize(("name", "more"), [("people", 60_000), ("epsilon", 8.0)])
def test_more_of_it_is_worth_more(name: str, more: float) -> None:
    less, better = privfed.forecast(**FEDERATION), privfed.forecast(**FEDERATION | {name: more})
    assert less.ratio.expected < better.ratio.expected
    assert less.ratio.low <= less.ratio.expected <= less.ratio.high


@pytest.mark.parametrize("change", [{"refreshes": 52}, {"dropout": 0.4}, {"trust": "distributed"}])
def test_what_costs_signal_is_worth_less(change: dict[str, Any]) -> None:
    assert privfed.forecast(**FEDERATION | change).ratio.expected < privfed.forecast(**FEDERATION).ratio.expected


def test_a_year_has_the_noise_and_the_head_of_running_totals() -> None:
    once, year = privfed.forecast(**FEDERATION), privfed.forecast(**FEDERATION, refreshes=52)
    assert year.mu == pytest.approx(once.mu / RunningTotals(52).factor)
    assert year.head < once.head
    assert year.publish_from is not None
    assert 1 < year.publish_from <= 52
    assert once.publish_from == 1
    assert f"before about refresh {year.publish_from} of 52" in str(year)


@pytest.mark.parametrize(("data", "catalogue"), [("ml-1m", (6040, 3883, 165.6, 2)), ("ml-100k", (943, 1682, 104.0, 4))])
def test_measured_years_are_within_what_is_forecast(data: str, catalogue: tuple[int, int, float, float]) -> None:
    rows = {row["label"]: row for row in json.loads((RESULTS / f"refreshes_test_{data}.json").read_text())["results"]}
    people, items, history, epsilon = catalogue
    found = privfed.forecast(people=people, items=items, history=history, epsilon=epsilon, refreshes=52, described=True)
    year, popular = rows[f"year, epsilon {epsilon}"], rows["popularity"]
    assert year["heads"]["52"] == found.head
    assert found.ratio.low <= year["at"]["52"]["ndcg"][0] / popular["at"]["52"]["ndcg"][0] <= found.ratio.high
    assert found.publish_from is not None
    for at, quality in year["at"].items():
        worth = quality["ndcg"][0] >= popular["at"][at]["ndcg"][0]
        assert worth or int(at) < found.publish_from


def test_tiers_are_worth_what_the_weighted_sum_of_their_mu_is() -> None:
    words = "careful=1:0.8,generous=8:0.2"
    federation = FEDERATION | {"epsilon": None}
    found = privfed.forecast(**federation, tiers=words)
    careful, generous = (privfed.forecast(**FEDERATION | {"epsilon": epsilon}) for epsilon in (1.0, 8.0))
    assert careful.ratio.expected < found.ratio.expected < generous.ratio.expected
    assert [tier.alone for tier in found.tiers] == [careful.ratio, generous.ratio]
    assert [(tier.name, tier.epsilon, tier.share) for tier in found.tiers] == [
        ("careful", 1, 0.8),
        ("generous", 8, 0.2),
    ]
    runs = json.loads((RESULTS / "personal_budgets_test_ml-1m.json").read_text())["results"]["runs"]
    measured = [run["sum_of_mu"] for run in runs if run["variant"] == "1 in 5 at 8, others at 1"]
    together = 6040 * sum(tier.share * tier.mu for tier in found.tiers)
    assert together == pytest.approx(sum(measured) / len(measured), rel=0.02)
    counted = NoisySums(together / generous.mu, 1.0, 1 / generous.mu)
    assert found.head == PrivateGramConstants.from_config(PrivateGramConfig(), counted, 3700, content=False).head


def test_people_who_give_nothing_are_worth_nothing() -> None:
    found = privfed.forecast(**FEDERATION | {"epsilon": None, "tiers": {"out": (0, 0.5), "all": (1, 0.5)}})
    half = privfed.forecast(**FEDERATION, dropout=0.5)
    assert found.ratio == half.ratio
    assert found.tiers[0].alone.high == 1.0


def test_noise_in_shares_costs_messages_and_time() -> None:
    central, shares = (privfed.forecast(**FEDERATION, trust=trust).costs for trust in ("central", "distributed"))
    assert (central.exchanges, shares.exchanges) == (2, 8)
    assert shares.device_cpu_ms > 5 * central.device_cpu_ms


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
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": None}, "give one of them"),
        ({"tiers": "a=1:1"}, "give one of them"),
        ({"epsilon": None, "tiers": "a=1:0.5"}, "add up to 0.5"),
        ({"refreshes": 0}, "publishes nothing"),
        ({"sample": pd.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1]})}, "holds 2 people: give at least 100"),
    ],
)
def test_bad_numbers_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        privfed.forecast(**FEDERATION | change)


def test_a_sample_is_trained_on_with_the_signal_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    noise: list[Any] = []

    def ndcg(parts: object, part: str, method: str, mu: float | None, seed: int) -> float:
        noise.append(mu)
        return 0.1 if method == "popularity" else 0.15

    monkeypatch.setattr(pilot, "ndcg_on", ndcg)
    found = privfed.forecast(**FEDERATION, sample="synthetic-small")
    people = privfed.load("synthetic-small").n_users
    assert noise == [None, *[pytest.approx(6040 * found.mu / people)] * 3]
    added = (6040 * found.mu / people / expected.SAMPLE_LIMITS) ** expected.BY_SAMPLE
    assert added > 1
    assert found.ratio.expected == pytest.approx(1.5 * added)
    assert found.ndcg is not None
    assert found.ndcg[1] == pytest.approx(0.15 * added)


def test_a_sample_of_everybody_is_not_lifted() -> None:
    assert expected.beyond_sample(100, 1000, 299.0) == 1
    assert expected.beyond_sample(100, 100, 1e4) == 1
    assert expected.beyond_sample(50, 100, 1e4) == pytest.approx(2**expected.BY_SAMPLE)


def test_the_command_says_what_the_function_finds() -> None:
    words = ["--people", "6040", "--items", "3700", "--history", "130", "--epsilon", "1"]
    answer = CliRunner().invoke(app, ["forecast", *words])
    assert answer.exit_code == 0
    assert " ".join(answer.output.split()) == " ".join(str(privfed.forecast(**FEDERATION)).split())
    document = json.loads(CliRunner().invoke(app, ["forecast", *words, "--json"]).stdout)
    assert document["ratio"]["expected"] == privfed.forecast(**FEDERATION).ratio.expected
    chosen = ["--tiers", "careful=1:0.8,generous=8:0.2", "--refreshes", "12", "--json"]
    document = json.loads(CliRunner().invoke(app, ["forecast", *words[:-2], *chosen]).stdout)
    assert set(document) == FIELDS
    assert set(document["costs"]) == COSTS
    assert [tier["name"] for tier in document["tiers"]] == ["careful", "generous"]
    assert document["refreshes"] == 12
