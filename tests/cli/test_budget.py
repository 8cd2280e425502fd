"""`privfed budget laplace`, both ways."""

from collections.abc import Callable

import pytest


def test_from_one_upload_to_the_run(cli: Callable) -> None:
    words = ("budget", "laplace", "--epsilon0", 1, "--participations", 100, "--delta", 1e-5)
    found = cli(*words, "--json").document
    assert found["basic_epsilon"] == 100
    assert found["epsilon"] == pytest.approx(68.3, abs=0.1)
    text = cli(*words).out
    assert "epsilon = 68.25" in text
    assert "weak or vacuous" in text


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
