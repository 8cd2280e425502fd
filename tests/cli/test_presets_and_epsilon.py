"""Presets, methods in files and `--epsilon` on the command line, and what a run says last."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privfed.audit import grid
from privfed.audit.config import AuditConfig
from privfed.setup.target_plan import delta_for

SMALL = ("--data", "synthetic-small")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_within_an_epsilon_needs_nothing_else(cli: Callable, here: Path) -> None:
    ran = cli("run", "private-gram", *SMALL, "--epsilon", 1, "--json").document
    assert ran["directory"] == "runs/private-gram"
    assert 0.9 < ran["guarantee"]["epsilon"] <= 1
    assert ran["guarantee"]["delta"] == delta_for(120)
    assert ran["config"]["rounds"] == 1
    again = cli("run", "private-gram", *SMALL, "--epsilon", 8, "-q").out
    assert (here / "runs" / "private-gram-2" / "config.json").exists()
    last = [line for line in again.splitlines() if line.startswith(("Quality:", "Privacy:"))]
    assert "popular items (NDCG@10 " in last[0]
    assert last[1].startswith("Privacy: epsilon 8 for everything one person contributes, a weak guarantee")


def test_a_plan_in_words_is_sized(cli: Callable, here: Path) -> None:
    words = ("--privacy", "local-gaussian:clip_norm=2", "--epsilon", 8)
    ran = cli("run", "gpfedrec", *SMALL, *words, "--rounds", 2, "--json").document
    assert 7.9 < ran["guarantee"]["epsilon"] <= 8
    assert ran["config"]["privacy"]["mechanism"]["clip_norm"] == 2


def test_an_epsilon_beside_the_noise_that_it_decides_is_refused(refused: Callable, here: Path) -> None:
    words = ("--privacy", "local-gaussian:clip_norm=2,noise_multiplier=1", "--epsilon", 8)
    assert "leave one of the two out" in refused("run", "gpfedrec", *SMALL, *words)


def test_noise_cannot_cover_whole_numbers(refused: Callable, here: Path) -> None:
    told = refused("run", "dfmr", "--data", "synthetic-funnel-small", "--set", "split.target=buy", "--epsilon", 1)
    assert "dfmr uploads whole numbers, which no noise covers" in told


def test_a_preset_names_folder_and_run_and_overrides_win(cli: Callable, here: Path) -> None:
    ran = cli("run", "gpfedrec:published", *SMALL, "--rounds", 1, "--set", "method.reg=1.5", "--json").document
    assert ran["directory"] == "runs/gpfedrec-published"
    assert ran["config"]["method"]["name"] == "gpfedrec:published"
    assert (ran["config"]["method"]["gamma"], ran["config"]["method"]["reg"]) == (0.5, 1.5)
    assert "changed here: reg = 1.5" in ran["our_variant"]


def test_a_method_in_a_file(cli: Callable, here: Path) -> None:
    Path("mine.py").write_text("from privfed.methods.popularity import METHOD as MINE\n", encoding="utf-8")
    ran = cli("run", "mine.py:MINE", *SMALL, "--json").document
    assert ran["directory"] == "runs/mine-MINE"
    assert cli("recommend", ran["directory"], "--user", 1, "-k", 3, "-q").out


def test_a_file_with_settings_of_another_method_is_refused(cli: Callable, refused: Callable, here: Path) -> None:
    Path("one.toml").write_text('[method]\nname = "fedmf"\ndim = 4\n', encoding="utf-8")
    told = refused("run", "gpfedrec", *SMALL, "--config", "one.toml", "--rounds", 1)
    assert "the file's [method] table is of fedmf, and METHOD is gpfedrec" in told
    assigned = ("--config", "one.toml", "--rounds", 1, "--set", "method.name=gpfedrec")
    assert "is of fedmf, and --set method.name is gpfedrec: leave that out" in refused("run", *SMALL, *assigned)
    Path("same.toml").write_text('[method]\nname = "fedmf"\ndim = 4\n', encoding="utf-8")
    words = ("run", "fedmf:published", *SMALL, "--config", "same.toml", "--rounds", 1, "--json")
    method = cli(*words).document["config"]["method"]
    assert (method["name"], method["dim"], method["user_lr_factor"]) == ("fedmf:published", 4, 20.0)


def test_an_audit_takes_its_methods_by_their_own_option(refused: Callable, here: Path) -> None:
    told = refused("audit", "--method", "fedmf", "--set", "method.name=fedvae")
    assert "--set method.name=fedvae would put one method in the place of all that are audited" in told


def test_an_attack_on_sums_says_who_sees_what_and_attacks_what_is_seen(cli: Callable, here: Path) -> None:
    cli("run", "private-gram", *SMALL, "--epsilon", 8, "-q")
    told = " ".join(cli("attack", "runs/private-gram").out.split())
    assert "Seen under this plan: The server sees every upload, which is made of one person's history" in told
    rows = json.loads((here / "runs" / "private-gram" / "attacks.json").read_text())["attacks"]
    assert "sum" in {row["tap"] for row in rows}


def test_a_run_below_popularity_says_so_and_what_is_better(cli: Callable, here: Path) -> None:
    words = ("--privacy", "local-laplace:epsilon0=0.1,clip_norm=1", "--rounds", 2)
    out = cli("run", "gpfedrec", *SMALL, *words).out
    assert "Quality: gpfedrec is worse than recommending the most popular items" in out
    last = " ".join(out.split()).rpartition("Next: ")[2]
    assert "this run is worse than recommending the most popular items" in last
    assert last.endswith("guaranteed, and better than popularity on ml-100k: privfed run private-gram --epsilon 1")
    quiet = cli("run", "gpfedrec", *SMALL, *words, "-q", "--out", here / "quiet").out
    assert [line.split()[0] for line in quiet.splitlines() if line.startswith(("Quality", "Privacy"))][-1] == "Quality:"


def test_a_run_is_not_advised_in_its_own_place(cli: Callable, here: Path) -> None:
    out = cli("run", "private-gram", *SMALL, "--epsilon", 1).out
    assert "Quality: private-gram is worse than recommending the most popular items" in out
    last = " ".join(out.split()).rpartition("Next: ")[2]
    assert last.endswith("what more people or a larger epsilon would be worth: privfed forecast")


@pytest.fixture
def audited(cli: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The configuration that words of `privfed audit` ask for; nothing is trained."""
    configurations: list[AuditConfig] = []

    def stopped(config: AuditConfig, *_: object, **__: object) -> None:
        configurations.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run_audit", stopped)

    def configured(*words: object) -> AuditConfig:
        cli("audit", *words, code=130)
        return configurations[-1]

    return configured


def variants(config: AuditConfig) -> list[tuple[str, str, int]]:
    return [
        (one.method_name, one.privacy.mechanism.kind, one.rounds)
        for one in config.cells()
        if one.seed == config.seeds[0]
    ]


def test_an_audit_without_a_question_compares_the_published_system_with_sound_ones(audited: Callable) -> None:
    config = audited(*SMALL, "--rounds", 3)
    assert variants(config) == [
        ("popularity", "unprotected", 1),
        ("gpfedrec:published", "unprotected", 3),
        ("gpfedrec:published", "local_gaussian", 3),
        ("private-gram", "central_gaussian", 1),
        ("private-gram", "central_gaussian", 1),
    ]
    assert Path("audit/config.json").exists()


def test_a_path_and_epsilons_are_a_question(audited: Callable, here: Path) -> None:
    rows = "".join(f"{user},{item},{user * 7 + item}\n" for user in range(30) for item in range(user % 5, 20, 2))
    (here / "shop.csv").write_text("user,item,timestamp\n" + rows, encoding="utf-8")
    words = ("shop.csv", "--method", "fedvae", "--epsilon", 8, "--epsilon", 1, "--rounds", 2)
    config = audited(*words)
    assert config.data == str(here / "shop.csv")
    kinds = ["unprotected", "unprotected", "central_gaussian", "central_gaussian"]
    assert [kind for _, kind, _ in variants(config)] == kinds
    noise = [one.privacy.to_dict()["mechanism"] for one in config.cells()]
    assert noise[2]["noise_multiplier"] < noise[3]["noise_multiplier"]


def test_data_named_twice_are_refused(refused: Callable, here: Path) -> None:
    assert "data are named twice, ml-100k and --data ml-1m" in refused("audit", "ml-100k", "--data", "ml-1m")
