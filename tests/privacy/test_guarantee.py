"""The claim and its sentences: complete, serialisable, and never finite by accident."""

import json
import math

import numpy as np
import pytest
from pydantic import ValidationError

from privfed.privacy.accounting import AccountedEpsilon
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Gaussian, Laplace
from privfed.privacy.guarantee import Guarantee, guarantee_for
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.statements import assumptions_for, odds

LOCAL = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=5")
ONE_HUNDRED = Composition((Releases(Laplace(scale_over_sensitivity=1.0), 100),), uploads=100, rounds=100)


def told(plan, composition, population=943, **options):
    return " ".join(guarantee_for(plan, composition, population, **options).statements)


def test_a_finite_claim_carries_everything_needed_to_judge_it():
    claim = guarantee_for(LOCAL, ONE_HUNDRED, 943)
    assert claim.epsilon == pytest.approx(68.3, abs=0.06)
    assert claim.basic_epsilon == pytest.approx(100)
    assert claim.reason_if_inf is None
    assert (claim.delta, claim.unit, claim.neighbours) == (1e-5, "user", "replace_one")
    assert (claim.trust, claim.per, claim.rounds_counted) == ("local", "run", 100)
    assert claim.accountant == "PLD"
    assert claim.accountant_version.startswith("dp-accounting ")
    assert claim.cross_check["RDP"] > claim.epsilon
    assert any("2C" in assumption for assumption in claim.assumptions)


def test_infinity_is_a_word_in_json_and_reads_back():
    claim = guarantee_for(PrivacyPlan.parse("none"), Composition(), 943)
    assert claim.epsilon == math.inf
    assert claim.model_dump()["epsilon"] == math.inf
    data = json.loads(claim.model_dump_json())
    assert data["epsilon"] == "inf"
    assert claim.model_dump(mode="json")["epsilon"] == "inf"
    assert Guarantee.model_validate(data) == claim
    finite = guarantee_for(LOCAL, ONE_HUNDRED, 943)
    assert Guarantee.model_validate_json(finite.model_dump_json()) == finite
    assert isinstance(json.loads(finite.model_dump_json())["epsilon"], float)
    strange = claim.model_copy(update={"cross_check": {"PLD": math.inf}, "basic_epsilon": math.inf})
    assert json.loads(strange.model_dump_json())["cross_check"] == {"PLD": "inf"}


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"reason_if_inf": "because"},
        {"surprise": 1},
    ],
)
def test_a_claim_that_contradicts_itself_cannot_be_built(change):
    data = guarantee_for(LOCAL, ONE_HUNDRED, 943).model_dump()
    with pytest.raises(ValidationError):
        Guarantee.model_validate({**data, **change})


def test_claims_are_frozen():
    claim = guarantee_for(LOCAL, ONE_HUNDRED, 943)
    with pytest.raises(ValidationError):
        claim.epsilon = 0.1


@pytest.mark.parametrize(
    "words",
    [
        "none",
        "none:release=total",
        "clip:clip_norm=1",
        "published-noise",
        "local-laplace:epsilon0=1,clip_norm=1,clip_order=2",
        "local-laplace:epsilon0=1,clip_norm=1,coordinates=touched",
    ],
)
def test_a_plan_without_bound_is_infinite_whatever_was_or_was_not_recorded(words):
    plan = PrivacyPlan.parse(words)
    for composition in (Composition(), ONE_HUNDRED):
        claim = guarantee_for(plan, composition, 943)
        assert claim.epsilon == math.inf
        assert claim.reason_if_inf == plan.mechanism.unbounded_reason
        assert claim.reason_if_inf in claim.statements[0]
        assert claim.assumptions == []
        assert claim.basic_epsilon is None


def test_every_sentence_answers_its_configuration():
    text = told(LOCAL, ONE_HUNDRED)
    for part in (
        "nobody else has to be trusted",
        "made 100 uploads in 100 rounds",
        "One upload alone has epsilon 1.",
        "no meaningful guarantee",
        "Who takes part, and when, is visible",
        "Choices made by looking at data",
        "whoever holds the seed",
    ):
        assert part in text
    assert "seed" not in told(LOCAL, ONE_HUNDRED, seeded=False)
    small = Composition((Releases(Laplace(scale_over_sensitivity=10.0), 1),), uploads=1, rounds=1)
    assert "no meaningful guarantee" not in told(LOCAL, small)
    assert "made 1 upload in 1 round." in told(LOCAL, small)
    assert "delta = 1e-05 is too large" in told(LOCAL, small, population=100_000)
    assert "is too large" not in told(LOCAL, small, population=99_999)
    sampled = LOCAL.model_copy(
        update={"sampling": PrivacyPlan.parse("none:sampling.kind=poisson,sampling.rate=0.1").sampling}
    )
    assert "no amplification by sampling is claimed" in told(sampled, small)
    assert "Nothing has been released yet" in told(LOCAL, Composition())
    assert "2 cohorts mixed events" in told(LOCAL, Composition(small.releases, unamplified_cohorts=2))
    assert "seed" not in told(PrivacyPlan.parse("none"), Composition())
    assert "The noise may make some attacks harder" in told(PrivacyPlan.parse("published-noise"), Composition())


def test_deleting_a_person_is_bounded_and_recalls_nothing():
    one = Composition((Releases(Gaussian(noise_multiplier=1.0), 1),), uploads=1, rounds=1)
    for words, instead in (
        ("central-gaussian:clip_norm=1,noise_multiplier=1", "without that person"),
        ("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=9", "with zeros in that person's place"),
        ("local-gaussian:clip_norm=1,noise_multiplier=1", "with anything else in that person's place"),
    ):
        claim = guarantee_for(PrivacyPlan.parse(words), one, 943)
        (sentence,) = (text for text in claim.statements if "Deleting" in text)
        assert f"{odds(claim.epsilon)} of what would have been released {instead}" in sentence
    assert "Deleting" not in told(PrivacyPlan.parse("none"), Composition())
    per_interaction = PrivacyPlan.parse("interaction-dpsgd:clip_norm=1,noise_multiplier=1")
    assert "Deleting" not in told(per_interaction, one)


def test_vacuous_budgets_are_reported_as_plain_sums():
    huge = Composition((Releases(Laplace(scale_over_sensitivity=1e-4), 100),), uploads=100, rounds=100)
    claim = guarantee_for(LOCAL, huge, 943)
    assert (claim.epsilon, claim.accountant) == (pytest.approx(1e6), "basic composition")
    assert any("plain sum" in assumption for assumption in claim.assumptions)
    assert "10^434,294" in " ".join(claim.statements)


def test_gaussian_claims_name_both_checks():
    gaussian = Composition((Releases(Gaussian(noise_multiplier=5.0), 100),), uploads=100, rounds=100)
    claim = guarantee_for(LOCAL, gaussian, 943)
    assert set(claim.cross_check) == {"closed form", "RDP"}
    assert any("RDP and the exact closed form" in assumption for assumption in claim.assumptions)


def test_odds_read_well():
    assert [odds(e) for e in (0.0, 1.0, 10.0, 100.0)] == ["1", "2.72", "22,026", "10^43"]
    assert all(isinstance(odds(float(e)), str) for e in np.geomspace(1e-6, 1e8, 20))


@pytest.mark.parametrize(
    ("accountant", "checks", "sentence"),
    [
        ("closed forms, added up", (), "as if nothing had been sampled"),
        ("RDP", (), "Epsilon comes from Renyi divergences (RDP), checked against nothing."),
        ("RDP", (("basic composition", 720.0),), "Epsilon comes from Renyi divergences (RDP), checked against basic"),
    ],
)
def test_an_accountant_that_stands_in_for_another_is_named(accountant, checks, sentence):
    found = assumptions_for(
        PrivacyPlan.parse("local-laplace:epsilon0=18,clip_norm=1"), AccountedEpsilon(718.0, accountant, "", checks)
    )
    assert sentence in " ".join(found)
