"""Rounded noise has exactly the law of rounded ideal noise, whatever the bits of its words."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp
from scipy import stats

from privfed.federation import Purpose, Streams
from privfed.federation.rounded_noise import further_bits, laplace_steps, normal_steps

DRAWS = 400_000
KEY = bytes(32)
LAWS = {"laplace": (laplace_steps, stats.laplace), "normal": (normal_steps, stats.norm)}


def drawn(name, words, ratio, more=None):
    steps = np.empty(len(words))
    LAWS[name][0](words, np.full(1, ratio), more or further, steps)
    return steps


def further(index, count):
    return further_bits(KEY, index, count)


def uniform(word, index, bits=1024):
    """The uniform number behind a word, to so many further bits."""
    return mp.mpf((int(word) >> 1 << bits) + further(index, bits)) * mp.mpf(2) ** -(63 + bits)


def naive(name, words, ratio):
    """Draws in 1,200-bit arithmetic, one by one."""
    with mp.workprec(1200):
        if name == "laplace":
            sizes = [int(mp.floor(-mp.log(uniform(w, i)) * ratio + 0.5)) for i, w in enumerate(words)]
            return [size if int(w) & 1 else -size for size, w in zip(sizes, words, strict=True)]
        found = []
        for i in range(0, len(words), 2):
            radius, angle = mp.sqrt(-2 * mp.log(uniform(words[i], i))), 2 * mp.pi * uniform(words[i + 1], i + 1)
            found += [int(mp.floor(radius * part(angle) * ratio + 0.5)) for part in (mp.cos, mp.sin)]
        return found


words64 = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 64).flatmap(lambda k: st.integers(0, 3).map(lambda j: min(2**k + j, 2**64 - 1))),
    st.integers(0, 2**20).map(lambda j: 2**64 - 1 - j),
)


@pytest.mark.parametrize("name", LAWS)
@settings(deadline=None)
@given(words=st.lists(words64, min_size=2, max_size=6), exponent=st.floats(-3, 40))
@example(words=[0, 0], exponent=20.0)
@example(words=[1, 2**64 - 1], exponent=20.0)
@example(words=[2**64 - 1, 2**63], exponent=39.0)
def test_every_draw_is_that_of_exact_arithmetic(name, words, exponent):
    words = np.array(words[: len(words) // 2 * 2], np.uint64)
    ratio = 2.0**exponent
    found = drawn(name, words, ratio)
    assert found.tolist() == naive(name, words.tolist(), ratio)


def test_a_word_on_a_half_integer_is_decided_by_its_further_bits():
    """-log(u) r = k + 1/2 inside the cell of one word: its further bits put it on either side."""
    ratio, k = 2.0**30, 12_345
    with mp.workprec(400):
        cell = int(mp.floor(mp.exp(-(k + mp.mpf(1) / 2) / ratio) * mp.mpf(2) ** 63))
    word = np.array([cell << 1 | 1], np.uint64)
    sides = {drawn("laplace", word, ratio, lambda i, n, fill=fill: fill << (n - 8))[0] for fill in range(256)}
    assert sides == {k, k + 1}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("size", [0.01, 1.0, 13.8])
def test_words_near_half_integers_are_decided_as_by_exact_arithmetic(name, size):
    """Of -log(u), the fraction of a step next to k + 1/2 that float arithmetic cannot tell apart."""
    ratio, words = 2.0**36, []
    reach = size if name == "laplace" else (2 * size) ** 0.5
    with mp.workprec(400):
        for place in range(40):
            k, aside = mp.floor(reach * ratio) - place, mp.mpf(place - 20) * mp.mpf(2) ** -13
            near = (k + mp.mpf(1) / 2 + aside) / ratio
            uniform_number = mp.exp(-near if name == "laplace" else -(near**2) / 2)
            # An angle of zero, whose cosine is 1.
            words += [int(uniform_number * mp.mpf(2) ** 63) << 1, 0]
    assert drawn(name, np.array(words, np.uint64), ratio).tolist() == naive(name, words, ratio)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("ratio", [0.2, 1.0, 4.7])
def test_frequencies_are_those_of_the_rounded_law(name, ratio):
    words = np.random.default_rng(5).integers(0, 2**64, DRAWS, np.uint64)
    found, law = drawn(name, words, ratio), LAWS[name][1]
    reach = int(4 * ratio) + 1
    edges = np.arange(-reach, reach + 2) - 0.5
    wanted = np.diff([0.0, *law(scale=ratio).cdf(edges), 1.0]) * DRAWS
    counts = np.histogram(found, [-np.inf, *edges, np.inf])[0]
    kept = wanted > 20
    assert kept.sum() >= 2
    assert stats.chisquare(counts[kept], wanted[kept] * counts[kept].sum() / wanted[kept].sum()).pvalue > 1e-4
    assert counts[~kept].sum() == pytest.approx(wanted[~kept].sum(), abs=5 * np.sqrt(wanted[~kept].sum() + 1))


@pytest.mark.parametrize("name", LAWS)
def test_a_fine_grid_shows_the_continuous_law(name):
    words = np.random.default_rng(6).integers(0, 2**64, DRAWS, np.uint64)
    steps, law = drawn(name, words, 2.0**20), LAWS[name][1]
    assert (steps == np.rint(steps)).all()
    assert not np.signbit(steps[steps == 0]).any()
    assert stats.kstest(steps * 2.0**-20, law.cdf).pvalue > 1e-3
    pairs = steps.reshape(-1, 2)
    for power in (1, 2):
        assert abs(np.corrcoef(*(np.abs(pairs.T) ** power))[0, 1]) < 5 / np.sqrt(DRAWS / 2)


@pytest.mark.parametrize("law", ["laplace_steps", "normal_steps"])
def test_draws_depend_on_their_own_address_only(law):
    streams = Streams.from_seed(11)
    draw = getattr(streams, law)
    together = draw(Purpose.NOISE, 1, 2, [3, 4, 5], 9, 2.0**20).clone()
    for row, user in enumerate([3, 4, 5]):
        assert draw(Purpose.NOISE, 1, 2, [user], 9, 2.0**20)[0].equal(together[row])
        assert draw(Purpose.NOISE, 1, 2, [user], 4, 2.0**20)[0].equal(together[row, :4])
    ratios = np.where(np.arange(9) % 2, 2.0**20, 0.0) * np.ones((3, 1))
    mixed = draw(Purpose.NOISE, 1, 2, [3, 4, 5], 9, ratios)
    assert mixed[:, 1::2].equal(together[:, 1::2])
    assert not mixed[:, ::2].any()
