"""Asking for an epsilon on the command line and in a file, and going on with such a run."""

import json
from collections.abc import Callable
from pathlib import Path

from privfed.methods import method

RUN = ("run", "fedmf", "--data", "synthetic-small", "--rounds", 3, "--set", "evaluate_every=3")
ASKED = ("--privacy", "central-gaussian:epsilon=8")


def plan_of(out: Path) -> dict[str, object]:
    plan: dict[str, object] = json.loads((out / "config.json").read_text())["config"]["privacy"]
    return plan


def epsilon_of(out: Path) -> float:
    return float(json.loads((out / "guarantee.json").read_text())["epsilon"])


def test_an_epsilon_is_all_that_has_to_be_said(cli: Callable, tmp_path: Path) -> None:
    answer = cli(*RUN, *ASKED, "--out", tmp_path / "run")
    told = " ".join(answer.out.split())
    assert "Epsilon 8 at delta 1e-05 needs noise_multiplier = 1.04 over 3 rounds of everybody." in told
    own = next(one for one in method("fedmf").clip_norms if one.clipped == "upload")
    assert f"Clip norm {own.norm:g}, the default of fedmf: " in told
    mechanism = plan_of(tmp_path / "run")["mechanism"]
    assert isinstance(mechanism, dict)
    assert mechanism["noise_multiplier"] > 1
    assert mechanism["clip_norm"] == own.norm
    assert "epsilon" not in mechanism
    assert 7.92 <= epsilon_of(tmp_path / "run") <= 8


def test_a_file_asks_in_the_same_words(cli: Callable, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    for number, words in enumerate(
        ("privacy.epsilon = 8", "[privacy]\ntarget_epsilon = 8", "privacy = 'central-gaussian:epsilon=8'")
    ):
        file.write_text(words)
        cli(*RUN, "--config", file, "--out", tmp_path / str(number), "--quiet")
    assert plan_of(tmp_path / "0") == plan_of(tmp_path / "1") == plan_of(tmp_path / "2")


def test_a_run_that_goes_on_has_the_same_plan(cli: Callable, refused: Callable, tmp_path: Path) -> None:
    out = tmp_path / "run"
    cli(*RUN, *ASKED, "--out", out, "--quiet")
    before = plan_of(out)
    for words in ((), ASKED):
        cli("run", *words, "--out", out, "--resume", "--quiet")
        assert plan_of(out) == before
    told = refused("run", "--privacy", "central-gaussian:epsilon=4", "--out", out, "--resume")
    assert "was begun with privacy.mechanism.noise_multiplier = " in told


def test_auto_goes_on_too(cli: Callable, tmp_path: Path) -> None:
    out, words = tmp_path / "run", ("--privacy", "central-gaussian:epsilon=8,clip_norm=auto")
    answer = cli(*RUN, *words, "--out", out)
    told = " ".join(answer.out.split())
    own = next(one for one in method("fedmf").clip_norms if one.clipped == "upload")
    assert f"then {own.of_median:g} of the median norm, which noisy counts find for 5 % of the budget" in told
    cli("run", *words, "--out", out, "--resume", "--quiet")
    assert 7.92 <= epsilon_of(out) <= 8


def test_refusals_speak_of_what_was_written(refused: Callable, tmp_path: Path) -> None:
    told = refused(*RUN, "--privacy", "secure-sum:epsilon=8", "--out", tmp_path / "run")
    assert told.startswith("epsilon = 8 cannot be reached with secure-sum")
    told = refused(*RUN, *ASKED, "--set", "privacy.epsilon=4", "--out", tmp_path / "run")
    assert "the same target given twice" in told


def test_help_says_that_an_epsilon_can_be_asked_for(cli: Callable) -> None:
    assert "epsilon=8" in cli("run", "--help").out


def test_tiers_need_no_other_option(cli: Callable, refused: Callable, tmp_path: Path) -> None:
    words = ("--tiers", "careful=1:0.8,generous=8:0.2", "--out", tmp_path / "run")
    answer = cli("run", "private-gram", "--data", "synthetic-small", *words)
    told = " ".join(answer.out.split())
    assert "every user ends at epsilon = 8" in told
    assert "by what each person chose: careful 1 (0.8 of users), generous 8 (0.2)" in told
    claims = json.loads((tmp_path / "run" / "guarantee.json").read_text())["tiers"]
    assert [(claim["name"], round(claim["epsilon"], 2)) for claim in claims] == [("careful", 1.0), ("generous", 8.0)]
    cli("run", "--out", tmp_path / "run", "--resume", "--quiet")
    assert "give one of them" in refused("run", "fedmf", "--tiers", "all=1:1", "--epsilon", 1)
    assert "add up to 0.8" in refused("run", "fedmf", "--data", "synthetic-small", "--tiers", "all=1:0.8")
