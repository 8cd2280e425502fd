"""Protocols say in words what they do."""

import pytest
from pydantic import ValidationError

from privfed.evaluation import HONEST, PAPER, Protocol


def test_presets_are_what_they_claim():
    assert (HONEST.candidates, HONEST.negatives, HONEST.ties, HONEST.select) == (
        "full",
        "train",
        "random",
        "last",
    )
    assert (PAPER.candidates, PAPER.n_sampled, PAPER.negatives, PAPER.ties, PAPER.select) == (
        "sampled",
        99,
        "all",
        "pessimistic",
        "best_valid",
    )
    assert HONEST.state == PAPER.state == "private"


def test_every_choice_changes_the_sentence():
    base = HONEST.sentence()
    changes = [
        {"task": "rating"},
        {"task": "rating", "catalogue": "trained"},
        {"task": "rating", "select": "best_valid"},
        {"candidates": "sampled"},
        {"catalogue": "trained"},
        {"candidates": "sampled", "catalogue": "trained"},
        {"when_testing": "valid_ranked"},
        {"k": (5,)},
        {"negatives": "all"},
        {"ties": "pessimistic"},
        {"state": "received"},
        {"select": "best_valid"},
        {"seed": 3},
    ]
    sentences = {Protocol(**change).sentence() for change in changes}
    assert len(sentences) == len(changes)
    assert base not in sentences
    assert "99 items" in PAPER.sentence()
    assert base.count(". ") == 0
    assert base.endswith(".")


@pytest.mark.parametrize(
    "bad", [{"k": ()}, {"k": (20, 10)}, {"k": (0,)}, {"n_sampled": 0}, {"seed": -1}, {"shuffle": True}]
)
def test_bad_fields_are_refused(bad):
    with pytest.raises(ValidationError):
        Protocol(**bad)
