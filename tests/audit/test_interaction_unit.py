"""A guarantee about single interactions is read, worded and compared as one, and never as one about people."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from privfed.audit.report import formatting
from privfed.audit.report.ceilings import auc_ceiling, inclusion_auc_ceiling, interaction_level

PLAN = {"mechanism": {"kind": "interaction_dpsgd", "clip_norm": 1.0, "noise_multiplier": 1.0}}
CLAIM = {"epsilon": 3.0, "unit": "interaction", "neighbours": "add_or_remove_one"}


def audited(make: SimpleNamespace, plan: dict[str, object], **changes: object) -> list[str]:
    """Rules that the report of one run beside the popularity recommender offends."""
    runs = [make.run("popularity", "none", 0), make.run("fedncf", "local_laplace", 0, plan=plan, **changes)]
    return [offence.rule for offence in make.report(runs).contradictions]


@pytest.mark.parametrize(
    "mechanism",
    [
        PLAN["mechanism"],
        {"kind": "central_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0},
        {"kind": "distributed_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0, "n_min_honest": 5},
    ],
)
def test_noise_that_is_not_on_the_upload_is_noise(make: SimpleNamespace, mechanism: dict[str, object]) -> None:
    assert audited(make, {"mechanism": mechanism}, attacks=[]) == []


def test_ceilings_hold_for_an_interaction_as_they_are(make: SimpleNamespace) -> None:
    assert interaction_level(make.guarantee("local_laplace", **CLAIM)) == (3.0, 1e-5)
    epsilon, delta = interaction_level(make.guarantee("local_laplace", **CLAIM | {"unit": "user"}))
    assert (epsilon, delta) == (6.0, pytest.approx(1e-5 * (1 + math.exp(3.0))))


def test_an_upload_tapped_before_the_guard_is_protected_already(make: SimpleNamespace) -> None:
    """Noise is inside training, so a weak attack there does not show that the attack is broken."""
    weak = [make.attack(name, 0.55, [1], tap="raw") for name in ("rank-1 sign", "popularity")]
    claim = make.guarantee("local_laplace", **CLAIM)
    assert audited(make, PLAN, attacks=weak, guarantee=claim) == []
    assert audited(make, PLAN, attacks=weak) == ["positive_control"]


def test_words() -> None:
    assert formatting.compared("add_or_remove_one", "interaction") == "one interaction of one person present or absent"
    assert formatting.compared("add_or_remove_one", "user") == "one person present or absent"
    assert formatting.compared("replace_one", "user") == "one person's data replaced by any other"


def test_the_headline_speaks_of_an_interaction(make: SimpleNamespace) -> None:
    claim = make.guarantee("local_laplace", **CLAIM)
    runs = [make.run("popularity", "none", 0), make.run("fedncf", "local_laplace", 0, plan=PLAN, guarantee=claim)]
    said = [s for s in make.report(runs).statements if s.topic == "guarantee" and s.method == "fedncf"]
    assert len(said) == 1
    assert "about one interaction of one person by more than a factor of 20.1" in said[0].text
    assert "for one interaction of one person" in said[0].detail


def test_an_auc_over_pairs_of_interactions_is_held_against_two_of_them(make: SimpleNamespace) -> None:
    single = make.guarantee("local_laplace", **CLAIM)
    assert inclusion_auc_ceiling(single) == auc_ceiling(6.0, min(1.0, (1 + math.exp(3.0)) * 1e-5))
    person = make.guarantee("local_laplace", **CLAIM | {"unit": "user", "neighbours": "replace_one"})
    assert inclusion_auc_ceiling(person) == auc_ceiling(3.0, 1e-5)


def test_the_sound_mechanism_that_beats_the_ceiling_of_one_interaction_stays_below_that_of_two() -> None:
    rng, n = np.random.default_rng(0), 20_000
    kept, dropped = np.ones(n), np.zeros(n)
    difference = kept - dropped + rng.laplace(scale=1.0, size=n)
    auc = (difference > 0).mean()
    assert auc_ceiling(1.0, 0.0) < auc < auc_ceiling(2.0, 0.0)
