"""Interaction-level privacy from the command line: its unit is on the screen, and methods without it are refused."""

import json
from collections.abc import Callable
from pathlib import Path

PLAN = "interaction-dpsgd:clip_norm=1,noise_multiplier=2,local_rate=0.5,local_steps=2,expected_records=10"
RUN = ("--data", "synthetic-small", "--rounds", 2, "--privacy", PLAN)


def test_a_run_says_whose_data_it_protects(cli: Callable, tmp_path: Path) -> None:
    answer = cli("run", "pfedrec", *RUN, "--set", "method.dim=4", "--out", tmp_path / "r")
    text = " ".join(answer.out.replace("│", " ").split())
    assert "for one interaction of one person, over 2 rounds." in text
    assert "Compares: one interaction of one person present or absent. Trusts: nobody" in text
    assert "The unit is ONE INTERACTION, NOT A USER" in text
    guarantee = json.loads((tmp_path / "r" / "guarantee.json").read_text())
    assert guarantee["unit"] == "interaction"
    assert 0 < guarantee["epsilon"] < 10


def test_other_methods_are_refused_in_one_sentence(refused: Callable, tmp_path: Path) -> None:
    for method in ("fedmf", "gpfedrec", "fedvae"):
        line = refused("run", method, *RUN, "--out", tmp_path / method)
        assert "no training step with a bounded gradient per interaction" in line


def test_the_table_of_methods_has_a_column_for_it(cli: Callable) -> None:
    found = {row["name"]: row["mechanisms"]["interaction-dpsgd"] for row in cli("methods", "--json").document}
    assert {name for name, fits in found.items() if fits["runs"]} == {"fedncf", "pfedrec"}
    assert found["fedncf"]["finite_epsilon"]
