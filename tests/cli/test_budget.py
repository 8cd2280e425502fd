"""`privfed budget laplace` and `privfed budget gaussian`, both ways, and `privfed budget refreshes`."""

import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

import pytest

from privfed.privacy.refreshes import year

MOVIELENS = ("budget", "gaussian", "--clients", 943, "--rounds", 100, "--rate", 0.1)


def test_from_one_upload_to_the_run(cli: Callable) -> None:
    words = ("budget", "laplace", "--epsilon0", 1, "--participations", 100, "--delta", 1e-5)
    found = cli(*words, "--json").document
    assert found["basic_epsilon"] == 100
    assert found["epsilon"] == pytest.approx(68.3, abs=0.1)
    text = cli(*words).out
    assert "epsilon = 68.25" in text
    assert "no meaningful guarantee" in text


def test_from_the_run_to_one_upload(cli: Callable) -> None:
    words = ("budget", "laplace", "--epsilon", 8, "--participations", 100)
    found = cli(*words, "--json").document
    assert found["budget"]["epsilon"] <= 8
    assert found["budget"]["epsilon0"] > found["basic_epsilon0"] == 0.08
    assert f"epsilon0 = {found['budget']['epsilon0']}" in cli(*words, "--quiet").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon0", -1), "epsilon0 = -1.0 is not allowed"),
        (("--epsilon", 0), "epsilon = 0.0 is not allowed"),
        (("--epsilon0", 1, "--delta", 0), "delta = 0.0 is not allowed"),
        (("--epsilon0", "much"), "'much' is not a valid float"),
        (("--epsilon0", 1, "--epsilon", 8), "either --epsilon0"),
        ((), "either --epsilon0"),
    ],
)
def test_what_cannot_be_computed(refused: Callable, words: tuple[object, ...], told: str) -> None:
    assert told in refused("budget", "laplace", "--participations", 10, *words)


def test_noise_for_a_total(cli: Callable) -> None:
    found = cli(*MOVIELENS, "--epsilon", 8, "--json").document
    assert set(found) == {
        "target",
        "noise_multiplier",
        "epsilon",
        "delta",
        "accounted",
        "placement",
        "growth",
        "statements",
    }
    assert found["target"] == 8
    assert found["noise_multiplier"] == pytest.approx(0.8022, abs=2e-4)
    assert found["delta"] == pytest.approx(943**-1.1)
    assert found["accounted"] == {
        "noise_multiplier": found["noise_multiplier"],
        "rounds": 100,
        "rate": 0.1,
        "delta": found["delta"],
        "epsilon": found["epsilon"],
        "accountant": "PLD",
        "cross_check": {"RDP": pytest.approx(9.41, abs=0.02)},
    }
    assert found["placement"] == {
        "trust": "central",
        "clients": 943,
        "rate": 0.1,
        "honest": None,
        "cohort": pytest.approx(94.3),
        "neighbours": "add_or_remove_one",
        "client_deviation_per_clip": 0.0,
        "sum_deviation_per_clip": found["noise_multiplier"],
    }
    assert [row["rounds"] for row in found["growth"]] == [10, 25, 50, 100, 200]
    totals = [row["epsilon"] for row in found["growth"]]
    assert totals == sorted(totals)
    assert totals[3] == found["epsilon"] <= 8


def test_a_total_for_noise_and_the_way_back(cli: Callable) -> None:
    found = cli(*MOVIELENS, "--noise-multiplier", 0.8022, "--json").document
    assert found["target"] is None
    assert 7.99 < found["epsilon"] <= 8.0
    less = cli(*MOVIELENS, "--noise-multiplier", 0.8022 * 0.999, "--json").document
    assert less["epsilon"] > 8.0


def test_what_people_read(cli: Callable) -> None:
    text = cli(*MOVIELENS, "--epsilon", 8).out
    assert "noise multiplier z = 0.8022 (epsilon = 7.998, PLD)" in text
    assert "the server adds Gaussian noise of standard deviation z x C = 0.8022 x C" in text
    assert "amplification by sampling is claimed" in text
    assert "Checks: RDP 9.41, which is looser. For speed, Opacus' PRV was not computed" in text
    assert "at most a factor of 2,97" in text
    assert "weak" not in text
    assert "too large" not in text
    bars = {line.split("│")[1].strip(): line.count("█") for line in text.splitlines() if "█" in line}
    assert list(bars) == ["10", "25", "50", "100", "200"]
    assert bars["200"] == 40 > bars["100"] > bars["10"] > 0
    assert cli(*MOVIELENS, "--epsilon", 8, "--quiet").out.count("\n") == 1


def test_a_weak_guarantee_and_a_delta_too_large_are_called_so(cli: Callable) -> None:
    text = cli(*MOVIELENS, "--epsilon", 12, "--delta", 0.01).out
    assert "no meaningful guarantee" in text
    assert "delta = 0.01 is too large for 943 users" in text


def test_the_ledgers_own_accounting_on_request(cli: Callable) -> None:
    words = ("budget", "gaussian", "--clients", 943, "--rounds", 20, "--rate", 0.3, "--epsilon", 1, "--check")
    checks = cli(*words, "--json").document["accounted"]["cross_check"]
    assert set(checks) == {"RDP", "PRV"}
    assert "PLD is on the grid of a run's ledger" in cli(*words).out


def test_the_ledgers_own_accounting_without_sampling(cli: Callable) -> None:
    words = ("budget", "gaussian", "--clients", 943, "--rounds", 20, "--epsilon", 1)
    text = cli(*words, "--check").out
    assert "closed form" in text
    assert "was not computed" not in text
    assert "the closed form was not computed" in cli(*words).out


def test_everybody_in_every_round(cli: Callable) -> None:
    text = cli("budget", "gaussian", "--clients", 6040, "--rounds", 100, "--epsilon", 8).out
    assert "z = 5.526" in text
    assert "Everybody takes part in every round" in text


def test_distributed_noise_in_shares(cli: Callable) -> None:
    words = (*MOVIELENS, "--epsilon", 8, "--trust", "distributed")
    found = cli(*words, "--json").document
    assert found["accounted"]["rate"] == 1
    assert found["noise_multiplier"] == pytest.approx(4.979, abs=2e-3)
    assert found["placement"]["honest"] == 47
    assert found["placement"]["client_deviation_per_clip"] == pytest.approx(4.979 / 47**0.5, rel=1e-3)
    text = cli(*words).out
    assert "N = 47 honest survivors, half of the expected cohort (94.3 of 943 clients)" in text
    assert "no amplification by sampling is claimed: a user may take part in all 100 rounds" in text
    named = cli(*words, "--honest", 100).out
    assert "= 0.4979 x C" in named
    assert "more than the expected cohort" in named


def test_local_noise_on_every_upload(cli: Callable) -> None:
    words = (*MOVIELENS, "--trust", "local")
    found = cli(*words, "--epsilon", 8, "--json").document
    assert found["noise_multiplier"] == 2 * found["accounted"]["noise_multiplier"] == pytest.approx(9.958, abs=4e-3)
    assert found["placement"]["neighbours"] == "replace_one"
    assert found["placement"]["sum_deviation_per_clip"] == pytest.approx(9.958 * 94.3**0.5, rel=1e-3)
    back = cli(*words, "--noise-multiplier", found["noise_multiplier"], "--json").document
    assert back["epsilon"] == found["epsilon"]
    assert "sqrt(94.3) = 9.71 times the noise of one client" in cli(*words, "--epsilon", 8).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "either --epsilon"),
        (("--epsilon", 8, "--noise-multiplier", 1), "either --epsilon"),
        (("--epsilon", 0), "epsilon = 0.0 is not allowed"),
        (("--epsilon", 1000), "protects nothing"),
        (("--noise-multiplier", -1), "noise_multiplier = -1.0 is not allowed"),
        (("--noise-multiplier", 0.001), "use more noise or fewer rounds"),
        (("--epsilon", 8, "--rate", 0), "rate = 0.0 is not allowed"),
        (("--epsilon", 8, "--rounds", 0), "rounds = 0 is not allowed"),
        (("--epsilon", 8, "--clients", 0), "clients = 0 is not allowed"),
        (("--epsilon", 8, "--delta", 1), "delta = 1.0 is not allowed"),
        (("--epsilon", 8, "--trust", "centrel"), "did you mean 'central'?"),
        (("--epsilon", 8, "--honest", 5), "choose distributed trust"),
        (("--epsilon", 8, "--trust", "local", "--honest", 5), "choose distributed trust"),
        (("--epsilon", 8, "--trust", "distributed", "--honest", 944), "more than the 943 clients"),
    ],
)
def test_gaussian_budgets_that_cannot_be_computed(refused: Callable, words: tuple[object, ...], told: str) -> None:
    assert told in refused(*MOVIELENS, *words)


def test_a_gaussian_budget_does_not_keep_people_waiting(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Processor seconds with all imports, because the wall belongs to whoever else is busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = start(*MOVIELENS, "--epsilon", 8, "--quiet")
    out, err = process.communicate(timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, err
    assert out.startswith("To keep epsilon at 8")
    assert err == ""
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 4.0


def test_a_budget_needs_no_torch() -> None:
    code = "import sys; from privfed.privacy import PrivacyPlan, solve_gaussian; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_year_of_refreshes_is_what_the_library_plans(cli: Callable) -> None:
    words = ("budget", "refreshes", "--epsilon", 8, "--refreshes", 12, "--clients", 6040, "--kept", 0.5)
    found = cli(*words, "--json").document
    planned = year(8.0, 6040**-1.1, 12, kept=0.5)
    assert found["refreshes"] == [asdict(refresh) for refresh in planned]
    assert found["running_total_factors"]["increments"] == pytest.approx(12**0.5)
    assert f"z = {planned[0].noise_multiplier:g}" in cli(*words, "--quiet").out


def test_one_refresh_is_one_round(cli: Callable) -> None:
    """A single release needs the noise that `budget gaussian` gives one round."""
    year_of_one = cli("budget", "refreshes", "--epsilon", 4, "--refreshes", 1, "--clients", 943, "--json").document
    one_round = cli("budget", "gaussian", "--epsilon", 4, "--rounds", 1, "--clients", 943, "--json").document
    assert year_of_one["refreshes"][0]["noise_multiplier"] == one_round["noise_multiplier"]


@pytest.mark.parametrize(
    ("words", "told"),
    [(("--refreshes", 0), "refreshes = 0 is not allowed"), (("--refreshes", 3, "--kept", 1.5), "kept = 1.5")],
)
def test_refreshes_that_cannot_be_planned(refused: Callable, words: tuple[object, ...], told: str) -> None:
    assert told in refused("budget", "refreshes", "--epsilon", 8, "--clients", 943, *words)


def test_the_help_of_refreshes_shows_two_examples_and_no_device(cli: Callable) -> None:
    text = " ".join(cli("budget", "refreshes", "--help").out.split())
    assert text.count("privfed budget refreshes --epsilon 8 --refreshes 12 --clients 6040") == 2
    assert "--json" in text
    assert "--device" not in text
