"""What an adversary of the implementation finds where noise is wrong, and that honest noise never looks wrong to it."""

import math
from collections import Counter

import numpy as np
import pytest

from attacks import Knowledge, ServerView
from attacks.implementation import (
    ClaimedNoise,
    FloatNoise,
    UntouchedBits,
    correlated_uploads,
    intersect_rounds,
    off_grid,
    repeated_differences,
    repeated_values,
    repeated_windows,
    small_values,
    spare_bits,
)
from attacks.metrics import user_auc

LAWS = ("laplace", "gaussian")


def old_noise(rng, law, scale, shape):
    """Floating-point noise as it is drawn on a device: a float32 draw times a float32 scale."""
    if law == "gaussian":
        return rng.standard_normal(shape).astype(np.float32) * np.float32(scale)
    uniform = ((rng.integers(2**53, size=shape) + 0.5) * 2.0**-53).astype(np.float32)
    logarithm = np.log(uniform.astype(np.float64)).astype(np.float32)
    return logarithm * rng.choice([-1, 1], shape).astype(np.float32) * np.float32(scale)


def grid_noise(rng, law, scale, shape, step):
    """Integer noise: the law's own numbers, rounded to whole steps."""
    draw = rng.laplace(size=shape) if law == "laplace" else rng.standard_normal(shape)
    return np.rint(draw * scale / step) * step


def touched_rows(rng, users=40, items=200, width=32, size=0.02):
    """Uploads before noise, and which of their rows hold anything."""
    touched = rng.random((users, items)) < 0.2
    values = rng.normal(size=(users, items, width)) * size * touched[..., None]
    return values.astype(np.float32), touched


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_noise_alone_is_on_the_lattice_and_noise_plus_a_value_is_not(law, sums):
    rng = np.random.default_rng(3)
    noise = old_noise(rng, law, 1.0, (200_000,))
    scale = 11.3
    alone = (noise.astype(np.float64) * scale).astype(np.float32) if sums else noise * np.float32(scale)
    moved = (alone + np.float32(0.37)).astype(np.float32)
    lattice = FloatNoise(law, scale, sums=sums)
    assert lattice.could_be(alone).mean() >= (1.0 if law == "gaussian" else 0.97)
    assert lattice.could_be(moved).mean() < 0.95
    assert lattice.could_be(np.zeros(3, np.float32)).all()


def test_lattice_is_every_product_and_nothing_else():
    draws = np.arange(2**15, dtype=np.int32) + np.float32(1.0).view(np.int32)
    products = draws.view(np.float32) * np.float32(1.5)
    between = np.arange(products[0].view(np.int32), products[-1].view(np.int32) + 1, dtype=np.int32).view(np.float32)
    found = FloatNoise("gaussian", 1.5).could_be(between)
    np.testing.assert_array_equal(found, np.isin(between, products))
    assert 0 < found.mean() < 1
    np.testing.assert_array_equal(FloatNoise("gaussian", 1.5).could_be(-between), found)


def test_a_candidate_is_told_from_another():
    rng = np.random.default_rng(0)
    known = rng.normal(size=50_000) * 3
    draw = rng.standard_normal(50_000).astype(np.float32).astype(np.float64) * 100.0
    released = (known + draw).astype(np.float32)
    lattice = FloatNoise("gaussian", 100.0, sums=True)
    assert lattice.could_be(released, known).all()
    assert lattice.could_be(released, known + 0.05).mean() < 0.97


def test_a_scale_that_is_a_power_of_two_leaves_no_gaps():
    values = np.random.default_rng(1).normal(size=10_000).astype(np.float32)
    assert FloatNoise("gaussian", 32.0).could_be(values).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="pass a positive"):
        FloatNoise("laplace", scale)
    with pytest.raises(ValueError, match="pass a positive scale"):
        ClaimedNoise("laplace", scale)


def test_one_value_off_the_grid_denies_it():
    step = 2.0**-10
    honest = (np.random.default_rng(0).integers(-(2**30), 2**30, 5_000) * step).astype(np.float32)
    assert not off_grid(honest, step).rejects()
    for wrong in (step / 2, step * (1 + 1e-6), math.nan, math.inf):
        spoilt = honest.astype(np.float64)
        spoilt[17] = wrong
        assert off_grid(spoilt, step).rejects()
        assert off_grid(spoilt, step).where.startswith("1 of 5000")


def test_a_grid_may_be_finer_than_its_ratio_to_a_value_can_be_written():
    values = np.array([1e300, 0.0, 5e-324])
    assert not off_grid(values, 2.0**-1000).rejects() or values[2] / 2.0**-1000 != round(values[2] / 2.0**-1000)
    assert not off_grid(values[:2], 2.0**-1060).rejects()


@pytest.mark.parametrize("step", [0.0, -1.0, 0.3, math.inf, math.nan])
def test_a_step_is_a_power_of_two(step):
    with pytest.raises(ValueError, match="power of two"):
        off_grid(np.zeros(1), step)


def test_spare_bits_are_counted_like_on_paper():
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    values = np.concatenate([values, np.float32([0, -0.0, 1, -1.5, 3 * 2.0**-20, 1 + 2.0**-23])])

    def on_paper(value):
        if value == 0:
            return 24
        top, bottom = abs(float(value)).as_integer_ratio()
        whole = top * 2**200 // bottom
        low, high = (whole & -whole).bit_length() - 1, whole.bit_length() - 1
        return 23 - (high - low)

    assert spare_bits(values).tolist() == [on_paper(value) for value in values]


def test_repeated_values_are_those_that_a_counter_finds():
    rng = np.random.default_rng(0)
    values = (rng.integers(-40, 40, (30, 4)) / 8).astype(np.float32)
    counts = Counter(np.abs(values).ravel().tolist())
    wanted = np.array([counts[abs(v)] > 1 and v != 0 for v in values.ravel().tolist()]).reshape(values.shape)
    np.testing.assert_array_equal(repeated_values(values), wanted)
    np.testing.assert_array_equal(repeated_values(values[3:5], values), wanted[3:5])


@pytest.mark.parametrize("law", LAWS)
def test_old_noise_gives_touched_rows_away_and_grid_noise_does_not(law):
    rng = np.random.default_rng(5)
    values, touched = touched_rows(rng)
    everybody = np.ones_like(touched)
    scale, nobody = 11.0, Knowledge(np.zeros(touched.shape[1]))
    attack = UntouchedBits(FloatNoise(law, scale))
    old = ServerView(0, values + old_noise(rng, law, scale, values.shape))
    assert np.nanmean(user_auc(attack.score(old, nobody), touched, everybody)) > 0.95
    step = 2.0**-12
    whole = np.rint(values / step) * step + grid_noise(rng, law, scale, values.shape, step)
    new = ServerView(0, whole.astype(np.float32))
    for blind in (attack, UntouchedBits()):
        assert abs(np.nanmean(user_auc(blind.score(new, nobody), touched, everybody)) - 0.5) < 0.03


def test_bits_give_rows_away_without_any_knowledge_of_the_sampler():
    rng = np.random.default_rng(6)
    values, touched = touched_rows(rng)
    coarse = rng.laplace(size=values.shape).astype(np.float16).astype(np.float32)
    fine_values = np.rint(rng.laplace(size=values.shape) * 64).astype(np.float32) + values
    for released in (coarse + values, fine_values):
        scores = UntouchedBits().score_rows(released, released)
        assert np.nanmean(user_auc(scores, touched, np.ones_like(touched))) > 0.99


@pytest.mark.parametrize("step", [0.0, 2.0**-8])
@pytest.mark.parametrize("law", LAWS)
def test_honest_noise_of_any_upload_is_large_enough(law, step):
    rng, claim, least = np.random.default_rng(7), ClaimedNoise(law, 3.0, step), 1.0
    for trial in range(60):
        value = rng.normal(size=(4, 30, 8)) * (trial % 3) ** 4
        noise = grid_noise(rng, law, 3.0, value.shape, step) if step else old_noise(rng, law, 3.0, value.shape)
        value = np.rint(value / step) * step if step else value
        least = min(least, small_values(value + noise, claim).p_value)
    assert least > 1e-3


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("fault", ["a row", "an upload", "less", "some numbers", "everything"])
def test_noise_that_is_missing_or_small_is_found(law, fault):
    rng = np.random.default_rng(8)
    noise = old_noise(rng, law, 3.0, (20, 100, 16))
    if fault == "a row":
        noise[3, 7] = 0
    elif fault == "an upload":
        noise[5] = 0
    elif fault == "less":
        noise *= np.float32(0.9)
    elif fault == "some numbers":
        noise[:, :, 3] = 0
    else:
        noise[:] = 0
    claim = ClaimedNoise(law, 3.0)
    value = rng.normal(size=noise.shape).astype(np.float32) * 1e-3
    value[:, ::2] = 0
    found = small_values(noise + value, claim)
    assert found.rejects()
    assert found.statistic > found.threshold
    if fault == "a row":
        assert "row 7 of upload 3" in found.where or "row 7" not in found.where


def test_the_probability_of_small_values_is_that_of_the_law():
    rng = np.random.default_rng(9)
    bounds = np.array([0.01, 0.3, 1.0, 4.0])
    for law in LAWS:
        draws = np.abs(rng.laplace(size=10**6) if law == "laplace" else rng.standard_normal(10**6)) * 2.5
        seen = (draws[:, None] <= bounds).mean(axis=0)
        np.testing.assert_allclose(ClaimedNoise(law, 2.5).max_probability_within(bounds), seen, atol=2e-3)


def test_windows_that_occur_twice_are_found_wherever_they_are():
    rng = np.random.default_rng(10)
    claim = ClaimedNoise("gaussian", 2.0)
    rounds = [rng.standard_normal((6, 64)).astype(np.float32) for _ in range(3)]
    assert not repeated_windows(rounds, claim).rejects()
    rounds[2][4, 8:16] = -rounds[0][1, 40:48]
    found = repeated_windows(rounds, claim)
    assert found.rejects()
    assert found.statistic == 1
    coarse = [np.rint(r) for r in rounds]
    assert not repeated_windows(coarse, ClaimedNoise("gaussian", 2.0, step=1.0)).rejects()


@pytest.mark.parametrize("law", LAWS)
def test_uploads_that_agree_no_more_than_the_clip_lets_them_are_honest(law):
    rng, claim, clip = np.random.default_rng(11), ClaimedNoise(law, 2.0), 30.0
    for _ in range(20):
        same = rng.choice([-1.0, 1.0], 400) * clip / 400
        uploads = same + old_noise(rng, law, 2.0, (12, 400))
        assert correlated_uploads(uploads, claim, largest_sum=clip).p_value > 1e-3


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", ["same", "negated", "half", "shared in part"])
def test_noise_used_twice_is_found_between_uploads(law, kind):
    rng = np.random.default_rng(12)
    uploads = old_noise(rng, law, 2.0, (12, 600)) + rng.normal(size=(12, 600)) * 1e-2
    first, fresh = uploads[2], uploads[9].copy()
    uploads[9] = {"same": first, "negated": -first, "half": first / 2, "shared in part": 0.6 * first + 0.8 * fresh}[
        kind
    ]
    found = correlated_uploads(uploads, ClaimedNoise(law, 2.0), largest_sum=6.0, names=list("abcdefghijkl"))
    assert found.rejects()
    assert found.where == "j agrees with c"
    assert found.statistic > found.threshold


def test_tails_bound_what_is_seen():
    rng = np.random.default_rng(13)
    agreement = np.abs(rng.laplace(size=(200_000, 20)).sum(axis=1))
    from attacks.implementation.repeated_noise import _log_tail, _tail

    for excess in (2.0, 10.0, 20.0):
        assert (agreement > excess).mean() <= 2 * math.exp(_log_tail(excess, 20, ClaimedNoise("laplace", 1.0))) + 1e-3
    for law in LAWS:
        claim = ClaimedNoise(law, 1.0)
        assert _log_tail(_tail(-15.0, 20, claim), 20, claim) == pytest.approx(-15.0)


@pytest.mark.parametrize("law", LAWS)
def test_sums_that_share_noise_are_found_and_growing_sums_are_not(law):
    rng = np.random.default_rng(14)
    claim, values = ClaimedNoise(law, 2.0), np.linspace(0, 1, 3)[:, None] * rng.normal(size=2_000)
    fresh = values + old_noise(rng, law, 2.0, (3, 2_000))
    assert repeated_differences(fresh, claim).p_value > 1e-3
    following = fresh.copy()
    following[2] = fresh[1] + old_noise(rng, law, 2.0, (2_000,))
    assert repeated_differences(following, claim).p_value > 1e-3
    for sign in (1, -1):
        same = values * 0.1 + np.array([[1], [0], [sign]]) * old_noise(rng, law, 2.0, (1, 2_000))
        same[1] = fresh[1]
        found = repeated_differences(same, claim)
        assert found.rejects()
        assert found.where.startswith("release 2 against release 0")


def test_nothing_to_compare_denies_nothing():
    claim = ClaimedNoise("laplace", 1.0)
    assert not repeated_differences(np.zeros((1, 5)), claim).rejects()
    assert not correlated_uploads(np.zeros((1, 5)), claim, largest_sum=1.0).rejects()
    assert not repeated_windows([np.zeros((1, 5))], claim).rejects()
    assert not small_values(np.zeros((0, 3, 4)), claim).rejects()


def test_rows_named_every_time_are_the_true_ones():
    rng = np.random.default_rng(15)
    true = [rng.choice(50, 4, replace=False) for _ in range(10)]
    drawn_anew = [[np.union1d(own, rng.choice(50, 6)) for own in true] for _ in range(8)]
    found = intersect_rounds(drawn_anew, 50)
    members = np.array([np.isin(np.arange(50), own) for own in true])
    assert found.always[members].all()
    assert user_auc(found.scores, members, np.ones_like(members)).min() == 1
    assert found.test.rejects()
    once = [drawn_anew[0]] * 8
    once[3] = [[] if client == 2 else rows for client, rows in enumerate(once[3])]
    assert not intersect_rounds(once, 50).test.rejects()
    assert not intersect_rounds([], 50).test.rejects()


def test_rounds_must_be_about_the_same_clients_and_rows():
    with pytest.raises(ValueError, match="all clients in every round"):
        intersect_rounds([[[1], [2]], [[1]]], 5)
    with pytest.raises(ValueError, match="a table of 5"):
        intersect_rounds([[[1, 5]]], 5)
