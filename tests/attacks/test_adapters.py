"""Adapters run the packages' own mechanisms: right numbers without noise, captured randomness, known faults found."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest

from attacks.empirical import epsilon_from_mu
from attacks.mechanism.inputs import read_example
from attacks.mechanism.release import CapturedRelease, untouched_randomness

ROWS = np.random.default_rng(3).normal(size=(4, 6))
CLIPPED = ROWS / np.maximum(1, np.linalg.norm(ROWS, axis=1, keepdims=True))
SEEDS = (1, 1, 2)


def adapter(name, *packages):
    for package in packages or (name,):
        pytest.importorskip(package)
    return importlib.import_module(f"attacks.mechanism.adapters.{name}")


def replayed(release, rows=ROWS):
    """Outputs under the same seed twice and under another one, through the audit's own capture."""
    example = read_example(rows, (), 0, 1, 0)
    with untouched_randomness():
        return CapturedRelease(release, example).trials(example.columns, SEEDS).numbers


def follows_its_seed(numbers):
    return (numbers[0] == numbers[1]).all() and (numbers[0] != numbers[2]).any()


@pytest.mark.parametrize(
    ("name", "make", "distribution"),
    [
        ("flower", lambda m: m.fixed_clipping(1.0), "flwr"),
        ("nvflare", lambda m: m.svt(), "nvflare"),
        ("opacus", lambda m: m.step(1.0), "opacus"),
        ("pfl", lambda m: m.laplace(1.0), "pfl"),
        ("jax_privacy", lambda m: m.step(1.0), "jax_privacy"),
        ("opake", lambda m: m.step(1.0), "opake"),
    ],
)
def test_a_package_that_is_missing_is_one_sentence(monkeypatch, name, make, distribution):
    for loaded in [key for key in sys.modules if key.split(".")[0] in {distribution, "jax"}]:
        monkeypatch.delitem(sys.modules, loaded)
    for missing in {distribution, *(["jax"] if name == "jax_privacy" else [])}:
        monkeypatch.setitem(sys.modules, missing, None)
    module = importlib.import_module(f"attacks.mechanism.adapters.{name}")
    with pytest.raises(ImportError, match=f"pip install {distribution}"):
        make(module)


@pytest.mark.parametrize("side", ["server", "client"])
def test_flower_clips_and_averages(side):
    release = adapter("flower", "flwr").fixed_clipping(0.0, side=side)
    assert np.allclose(release(ROWS, None)[0], CLIPPED.mean(axis=0))


def test_flower_samples_clients_by_its_own_draw():
    numbers = replayed(adapter("flower", "flwr").fixed_clipping(0.0, clients=1))
    assert all(np.isclose(number, CLIPPED).all(axis=1).any() for number in numbers)


def test_noise_of_flower_follows_the_audits_seed():
    flower = adapter("flower", "flwr")
    for release in (flower.fixed_clipping(1.0), flower.adaptive_clipping(1.0, count_noise=1.0)):
        assert follows_its_seed(replayed(release))


def test_flower_gives_up_a_round_that_its_accountant_cannot_count():
    flower = adapter("flower", "flwr")
    unequal = {"update": ROWS, "examples": np.array([2, 1, 1, 1])}
    with pytest.raises(ValueError, match="equal client weights"):
        flower.fixed_clipping(1.0, accountant=True)(unequal, None)


def test_metrics_of_flowers_adaptive_mod_hold_the_share_of_clipped_updates():
    release = adapter("flower", "flwr").adaptive_clipping(1.0, count_noise=1.0, side="client", metrics=True)
    assert release(ROWS, None)["metrics"] == {"norm_bit": np.mean(np.linalg.norm(ROWS, axis=1) > 1)}


def test_the_classical_formula_of_flowers_local_mod_fails_at_large_epsilon():
    flower = adapter("flower", "flwr")
    for claimed in (1.0, 20.0):
        noise = replayed(flower.local_dp(claimed, 1e-5, sensitivity=2.0), np.zeros((1, 10_000)))[0].std()
        assert (epsilon_from_mu(2 / noise, 1e-5) > claimed) == (claimed > 10)


@pytest.mark.parametrize("clipping", ["flat", "adaptive", "ghost"])
def test_a_step_of_opacus_is_the_mean_of_clipped_rows(clipping):
    import torch

    released = adapter("opacus").step(0.0, clipping=clipping, batch=4)(torch.tensor(ROWS).float(), None)
    assert np.allclose(-np.concatenate(parameters(released), axis=1)[0], CLIPPED.mean(axis=0), atol=1e-5)


def test_a_step_of_opacus_clips_each_layer():
    import torch

    released = adapter("opacus").step(0.0, clipping="per_layer", batch=4)(torch.tensor(ROWS).float(), None)
    for at, half in enumerate((ROWS[:, :3], ROWS[:, 3:])):
        clipped = half / np.maximum(1, np.linalg.norm(half, axis=1, keepdims=True) * 2**0.5)
        assert np.allclose(-parameters(released)[at], clipped.mean(axis=0), atol=1e-5)


def parameters(released):
    return [value.detach().numpy() for name, value in released.items() if name.startswith("parameter")]


@pytest.mark.parametrize("secure_mode", [False, True])
def test_noise_of_opacus_follows_the_audits_seed(secure_mode):
    import torch

    rows = torch.tensor(ROWS).float()
    assert follows_its_seed(replayed(adapter("opacus").step(1.0, secure_mode=secure_mode), rows))


def test_filters_of_nvflare_keep_what_they_say_and_count_their_budget():
    nvflare = adapter("nvflare")
    assert nvflare.svt_claim(10, epsilon=1.0, epsilon_release=2.0, steps=2).epsilon == 6.0
    sent = nvflare.percentile(percentile=0, gamma=0.5)(ROWS[:1], None)[0]["update"]
    assert np.allclose(sent, ROWS[0].clip(-0.5, 0.5))
    assert nvflare.svt(scalar=True)(ROWS[:1], None)[0]["scalar"] == ROWS[0, 0]
    assert follows_its_seed(replayed(nvflare.svt(fraction=0.5), ROWS[:1]))


def test_pfl_sums_clipped_updates_and_its_joint_mechanism_repeats_its_noise():
    pfl = adapter("pfl")
    total = replayed(pfl.gaussian(1e4, 1e-5))
    assert np.allclose(total, CLIPPED.sum(axis=0), atol=0.5)
    assert follows_its_seed(total)
    joint = replayed(pfl.joint_gaussian(1.0, 1e-5))
    noise = joint - replayed(pfl.joint_gaussian(1e9, 1e-5))
    assert np.allclose(noise[:, :3], noise[:, 3:], rtol=1e-3)


def test_a_step_of_jax_privacy_keeps_its_claim():
    made = adapter("jax_privacy")
    rows = ROWS.astype(np.float32)
    assert np.allclose(made.step(0.0)(rows, np.random.default_rng(0)), CLIPPED.sum(axis=0), atol=1e-5)
    assert follows_its_seed(replayed(made.step(1.0), rows))


def test_a_step_of_opake_is_the_sum_of_clipped_rows():
    import torch

    made = adapter("opake")
    rows = torch.tensor(ROWS).float()
    assert np.allclose(made.step(0.0)(rows, torch.Generator()), CLIPPED.sum(axis=0), atol=1e-4)
    assert follows_its_seed(replayed(made.step(1.0), rows))


def test_claims_are_those_of_the_packages_accountants():
    flower, opacus = adapter("flower", "flwr"), adapter("opacus")
    for claim in (flower.claim(2.0, 8), opacus.claim(2.0), adapter("opake", "torch").claim(2.0)):
        assert 1.99 < claim.epsilon < 2.2
    assert replace(flower.claim(2.0, 8), neighbours="zero_out").sentence().endswith("zero out")


def test_banded_noise_of_pfl_is_replayed_whoever_takes_part():
    pfl = adapter("pfl", "pfl", "torch")
    release = pfl.banded(1.0, 4, 4)
    alone, two = (replayed(release, ROWS[:n]) for n in (1, 2))
    assert follows_its_seed(alone)
    # Rounds after the first have noise alone.
    assert np.allclose(alone[:, 6:], two[:, 6:])
    assert np.allclose((two - alone)[:, :6], CLIPPED[1], atol=1e-5)
    assert pfl.banded_claim(1.0, 4, 2).epsilon > pfl.banded_claim(1.0, 4, 4).epsilon > 0


def test_correlated_noise_of_opake_is_added_in_every_round():
    torch = pytest.importorskip("torch")
    opake = adapter("opake", "opake", "opake.dpftrl")
    rows = torch.from_numpy(ROWS).float()
    still = replayed(opake.correlated(1e-9, 4, 2, 2), rows).reshape(3, 4, 6)
    assert np.allclose(still[:, ::2], CLIPPED.sum(axis=0), atol=1e-5)
    assert np.allclose(still[:, 1::2], 0, atol=1e-5)
    assert follows_its_seed(replayed(opake.correlated(1.0, 4, 2, 2), rows))
    once, twice = (opake.correlated_claim(2.0, 4, separation, 2).epsilon for separation in (4, 2))
    assert 0 < once < twice
