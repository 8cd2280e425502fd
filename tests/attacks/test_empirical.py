"""Measured epsilons: the kind is part of the type, and goes into files and reports."""

import dataclasses
import json
import typing

import numpy as np
import pytest

from attacks.empirical import (
    CredibleBound,
    EpsilonEstimate,
    LowerBound,
    MeasuredEpsilon,
    bayesian_epsilon,
    clopper_pearson_epsilon,
    count_guesses,
    gdp_epsilon,
    one_run_epsilon,
    one_run_gdp_epsilon,
    one_shot_epsilon,
    one_shot_lower_bound,
)
from privfed.audit.report.records import EmpiricalRow

DELTA = 1e-5


@pytest.fixture(scope="module")
def measured():
    """One of each estimator on two Gaussian worlds of mu = 2."""
    rng = np.random.default_rng(0)
    worlds = rng.normal(2, 1, 1000), rng.normal(0, 1, 1000)
    included = rng.random(1000) < 0.5
    guesses = count_guesses(2 * included + rng.normal(size=1000), included, guess_in=100)
    cosines = rng.normal(2, 1, 200) / 100
    return [
        clopper_pearson_epsilon(*worlds, delta=DELTA),
        gdp_epsilon(*worlds, delta=DELTA),
        bayesian_epsilon(*worlds, delta=DELTA, threshold=1.0),
        one_run_epsilon(guesses, delta=DELTA),
        one_run_gdp_epsilon(guesses, delta=DELTA),
        one_shot_epsilon(cosines, dimensions=10_000, delta=DELTA),
        one_shot_lower_bound(cosines, dimensions=10_000, delta=DELTA),
    ]


def test_every_estimator_says_its_kind_by_its_type(measured):
    kinds = {LowerBound: "lower bound", EpsilonEstimate: "estimate", CredibleBound: "credible bound"}
    assert set(kinds) == set(typing.get_args(MeasuredEpsilon))
    assert [kinds[type(m)] for m in measured] == [m.kind for m in measured]
    assert len({m.estimator for m in measured}) == len(measured)
    assert set(kinds.values()) == set(typing.get_args(EmpiricalRow.model_fields["kind"].annotation))


def test_only_a_lower_bound_can_deny_a_claim(measured):
    for m in measured:
        assert m.epsilon > 0
        assert hasattr(m, "rejects") == (m.kind == "lower bound")
        if isinstance(m, LowerBound):
            assert m.rejects(m.epsilon / 2)
            assert not m.rejects(m.epsilon)


def test_a_kind_cannot_be_chosen():
    fields = {"estimator": "mine", "epsilon": 1.0, "delta": 0.0, "confidence": 0.95, "trials": 1, "evidence": None}
    assert LowerBound(**fields).kind == "lower bound"
    with pytest.raises(TypeError, match="kind"):
        LowerBound(**fields, kind="estimate")
    with pytest.raises(TypeError, match="placebo"):
        EpsilonEstimate(**fields, lo=0.0, hi=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        LowerBound(**fields).epsilon = 0.0


def test_measured_epsilons_are_plain_json(measured):
    for m in measured:
        read = json.loads(json.dumps(dataclasses.asdict(m)))
        assert (read["kind"], read["epsilon"], read["trials"]) == (m.kind, m.epsilon, m.trials)
        assert all(count >= 0 for count in read["evidence"].values())
