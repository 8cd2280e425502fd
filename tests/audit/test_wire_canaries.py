"""Secrets on the wire of a real method: nothing is read where there is noise, everything where it is missing."""

from dataclasses import replace

import pytest
import torch

from privfed.audit.epsilon.canaries import CanaryError
from privfed.audit.epsilon.wire_canaries import audit_wire_canaries
from privfed.guards import ClientGuard
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig

LAPLACE = "local-laplace:epsilon0=8,clip_norm=1"
GAUSSIAN = "local-gaussian:noise_multiplier=1,clip_norm=1"
WIRE = ClientGuard.protect


def row(split, words, k=40, method="gpfedrec"):
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": method}, privacy=PrivacyPlan.parse(words), rounds=2, seed=4
    )
    (found,) = audit_wire_canaries(config, split, k)
    return found


@pytest.mark.parametrize("words", [LAPLACE, GAUSSIAN, GAUSSIAN + ",clipping=per_block", LAPLACE + ",upload_bits=8"])
def test_noise_hides_secrets(small_split, words):
    found = row(small_split, words)
    assert (found.value, found.consistent, found.tap, found.unit) == (0, True, "wire", "upload")
    assert found.largest_deniable > 100


def bare(self, updates, call, positions, out=None, steps=None):
    return updates.materialise(positions, out)


def as_if(change):
    return lambda self, updates, call, *more, **how: WIRE(self, updates, change(call), *more, **how)


@pytest.mark.parametrize(
    ("fidelity", "where"),
    [
        (bare, "in round 1"),
        (lambda self, u, call, *more, **how: (bare if call.round else WIRE)(self, u, call, *more, **how), "in round 2"),
        (as_if(lambda call: replace(call, round=0)), "less that of round 1"),
        (as_if(lambda call: replace(call, clients=torch.zeros_like(call.clients))), "less that of another canary"),
    ],
)
def test_what_leaves_without_fresh_noise_is_denied_at_any_claim(monkeypatch, small_split, fidelity, where):
    monkeypatch.setattr(ClientGuard, "protect", fidelity)
    found = row(small_split, LAPLACE)
    assert not found.consistent
    assert found.value > 100
    assert where in found.worst_case


def test_a_method_that_only_needs_sums_is_read_as_well(monkeypatch, small_split):
    assert row(small_split, LAPLACE, method="fedmf").consistent
    monkeypatch.setattr(ClientGuard, "protect", bare)
    assert not row(small_split, LAPLACE, method="fedmf").consistent


def test_what_cannot_be_tested_is_refused(small_split, few_users):
    with pytest.raises(CanaryError, match="at least 10"):
        row(few_users, LAPLACE)
    with pytest.raises(CanaryError, match="claims nothing"):
        row(small_split, "local-laplace:clip_norm=1,epsilon0=1,clip_order=2")
    # What is sent in the place of training has none of the noise inside it.
    with pytest.raises(CanaryError, match="single interactions"):
        row(small_split, "interaction-dpsgd:noise_multiplier=1,clip_norm=1", method="pfedrec")
    with pytest.raises(CanaryError, match="trains no real numbers"):
        row(small_split, LAPLACE, method="popularity")
