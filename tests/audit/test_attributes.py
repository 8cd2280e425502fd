"""Attribute rows of real runs on generated people, whose taste follows what they are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.audit.attack_runs.attributes import MIN_PER_CLASS, NO_PERSON, attack_attributes
from privfed.audit.report.records import AttributeRow
from privfed.data import SplitSpec, SyntheticSpec, generate, split
from privfed.engines.transcript import Observation
from privfed.experiment import Experiment
from privfed.methods.hetefedrec.published import AS_PUBLISHED
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

PEOPLE = SyntheticSpec(
    name="synthetic-people", n_users=120, n_items=300, mean_per_user=25, min_per_user=12, rank=3,
    popularity=0.2, sharpness=6.0, from_attributes=1.0, seed=0,
)  # fmt: skip
YARDSTICKS = ["true interactions", "true interactions, blind to popularity", "number of interactions"]
VAE = {"name": "fedvae", "latent": 4, "hidden": [6]}


@pytest.fixture(scope="module")
def parts():
    return split(generate(PEOPLE), SplitSpec())


def run(parts, method, plan="none", rounds=(0,), places=("raw", "wire"), users=120):
    config = ExperimentConfig(
        data=PEOPLE.name, method={"name": method} if isinstance(method, str) else method,
        privacy=PrivacyPlan.parse(plan), rounds=max(rounds) + 1, evaluate_every=max(rounds) + 1,
        taps=TapConfig(places=places, users=users, rounds=rounds),
    )  # fmt: skip
    experiment = Experiment(config, parts)
    return experiment, experiment.run(parts=("test",)).transcript.joined


def by_evidence(rows, attribute="gender"):
    return {(row.evidence, row.tap): row for row in rows if row.attribute == attribute}


@pytest.fixture(scope="module")
def plain(parts):
    return attack_attributes(*run(parts, "fedncf"))


def test_uploads_in_the_open_say_what_true_interactions_say(plain):
    found = by_evidence(plain.rows)
    assert [name for name, tap in found if tap is None] == [*YARDSTICKS, "what stays on the device"]
    true = found["true interactions", None].auc.value
    assert true > 0.75
    for tap in ("raw", "wire"):
        recovered = found["items recovered by rank-1 sign", tap]
        assert recovered.auc.value == pytest.approx(true, abs=0.03)
        assert "clients sample more negatives than they have positives" in recovered.knowledge
        assert found["item rows as sent", tap].auc.value > 0.55
        assert found["blocks without item rows", tap].auc.value < true - 0.05
    kept = found["what stays on the device", None]
    assert kept.auc.lo <= 0.5 <= kept.auc.hi
    assert plain.not_run == []


def test_rows_say_who_and_what(plain):
    assert {(row.attribute, row.classes) for row in plain.rows} == {
        ("gender", "F or M"),
        ("age", "under 35 or 35 or older"),
    }
    for row in plain.rows:
        assert isinstance(row, AttributeRow)
        assert row.n_users == 120
        assert row.knowledge[0] == "the attribute of 75% of the users"
        assert row.auc.lo <= row.auc.value <= row.auc.hi
        assert 0.5 <= row.majority < 1


def test_autoencoders_give_it_away_through_the_last_bias(parts):
    found = by_evidence(attack_attributes(*run(parts, VAE, places=("wire",)), attributes=["gender"]).rows)
    recovered = found["items recovered by decoder bias", "wire"].auc.value
    assert recovered == pytest.approx(found["true interactions", None].auc.value, abs=0.03)
    assert ("blocks without item rows", "wire") in found
    assert ("what stays on the device", None) not in found


def test_noise_of_a_guarantee_leaves_chance_on_the_wire(parts):
    ran = run(parts, "fedncf", "local-laplace:epsilon0=1,clip_norm=1")
    found = by_evidence(attack_attributes(*ran, attributes=["gender"], baselines=False).rows)
    assert found["items recovered by rank-1 sign", "raw"].auc.value > 0.7
    for evidence in ("items recovered by rank-1 sign", "item rows as sent", "blocks without item rows"):
        row = found[evidence, "wire"]
        assert row.auc.lo <= 0.5 <= row.auc.hi


def test_a_sum_belongs_to_nobody(parts):
    said = attack_attributes(*run(parts, "fedncf", "secure-sum:clip_norm=1", places=("wire",)), attributes=["gender"])
    assert {row.tap for row in said.rows} == {None}
    assert [(left.what, left.why) for left in said.not_run] == [("inference of attributes from sums", NO_PERSON)]


def test_rows_behind_shares_are_evidence_too(parts):
    bare = run(parts, "fedncf", "shared-sum:clip_norm=1,padding.kind=no_padding", places=("wire",))
    found = by_evidence(attack_attributes(*bare, attributes=["gender"]).rows)
    assert found["rows that clients send", "support"].auc.value > 0.55
    assert found["rows that clients send", "support"].auc.value < found["true interactions", None].auc.value
    covered = run(parts, "fedncf", "shared-sum:clip_norm=1", places=("wire",))
    assert {row.tap for row in attack_attributes(*covered, attributes=["gender"]).rows} == {None}


def test_several_rounds_are_used_together(parts):
    experiment, tapped = run(parts, "fedncf", "published-noise", rounds=(0, 1), places=("wire",))
    both = by_evidence(attack_attributes(experiment, tapped, attributes=["gender"], baselines=False).rows)
    assert [name for name, _ in both] == [
        "what stays on the device",
        "item rows as sent, 2 rounds",
        "items recovered by rank-1 sign, 2 rounds",
        "blocks without item rows, 2 rounds",
    ]


def test_segments_of_unequal_clients_are_item_rows_and_heads_are_not(parts):
    settings = AS_PUBLISHED.settings | {"aggregation": "contributors"}
    experiment, tapped = run(parts, {"name": "hetefedrec"} | settings, places=("wire",))
    said = by_evidence(attack_attributes(experiment, tapped, attributes=["gender"]).rows)
    assert said["items recovered by rank-1 sign", "wire"].auc.value == pytest.approx(
        said["true interactions", None].auc.value, abs=0.04
    )
    heads = said["blocks without item rows", "wire"]
    blinded = [
        Observation(
            o.tap, o.round, o.users, {n: t if "items" in n else torch.zeros_like(t) for n, t in o.tensors.items()}
        )
        for o in tapped("wire")
    ]
    without = by_evidence(
        attack_attributes(experiment, lambda tap: blinded if tap == "wire" else [], attributes=["gender"]).rows
    )
    assert without["blocks without item rows", "wire"].auc.value == 0.5 != heads.auc.value
    assert without["item rows as sent", "wire"] == said["item rows as sent", "wire"]


def test_only_those_who_were_seen_are_guessed(parts):
    experiment, tapped = run(parts, "fedncf", "none:sampling.kind=fixed,sampling.size=90", places=("wire",))
    said = attack_attributes(experiment, tapped, attributes=["gender"], baselines=False)
    assert {row.n_users for row in said.rows} == {90}


def test_what_cannot_be_asked_is_said(parts):
    nobody = run(replace(parts, attributes=None), "fedncf", places=("wire",), users=60)
    said = attack_attributes(*nobody)
    assert said.rows == []
    assert [left.what for left in said.not_run] == ["inference of gender", "inference of age 35"]
    assert all("says nothing about its users" in left.why for left in said.not_run)
    few = attack_attributes(*run(parts, "fedncf", places=("wire",), users=12), attributes=["gender"])
    assert few.rows == []
    assert f"fewer than two classes have {MIN_PER_CLASS}" in few.not_run[0].why


def test_more_classes_are_told_apart_one_against_the_rest(parts):
    experiment, tapped = run(parts, "fedncf", places=("wire",))
    rows = attack_attributes(experiment, tapped, attributes=["age group", "occupation"]).rows
    true = {row.attribute: row for row in rows if row.evidence == "true interactions"}
    assert set(true) == {"age", "occupation"}
    for row in true.values():
        assert row.auc.value > 0.6
    people = parts.attributes["occupation"].value_counts()
    assert true["occupation"].n_users == people[people >= MIN_PER_CLASS].sum() < 120
    assert true["occupation"].classes == f"{(people >= MIN_PER_CLASS).sum()} occupations"
    assert np.isfinite([row.auc.value for row in rows]).all()
