"""Plans: derived noise, the table of mechanisms, round trips, and one-sentence errors."""

import math
import re
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privfed.privacy.configuring import configure, explain
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Empty, Exact, Laplace, SchemaSummary, Unbounded
from privfed.privacy.mechanisms.base import Noise
from privfed.privacy.mechanisms.clipping import Clip
from privfed.privacy.mechanisms.local_laplace import LocalLaplace
from privfed.privacy.plan import PrivacyPlan, event_for
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson

REAL = SchemaSummary(real=("items",))
PLAUSIBLE = st.floats(min_value=1e-3, max_value=1e3)


def laplace(**changes):
    return PrivacyPlan.named("local-laplace", **{"epsilon0": 1.0, "clip_norm": 5.0, **changes})


WORDS = [
    ("none", "none", "unprotected"),
    ("none:release=total", "none (only the sum is seen)", "unprotected-release-total"),
    ("clip:clip_norm=5", "clip only (L1 <= 5)", "clip-only-clip-norm-5"),
    ("clip:clip_norm=5,order=2", "clip only (L2 <= 5)", "clip-only-clip-norm-5-order-2"),
    ("published-noise", "published noise (Laplace 0.3, unclipped)", "unclipped-noise-scale-0.3"),
    (
        "published-noise:scale=0.1,law=gaussian,coordinates=touched",
        "published noise (Gaussian 0.1, unclipped, touched rows only)",
        "unclipped-noise-scale-0.1-law-gaussian-coordinates-touched",
    ),
    (
        "local-laplace:epsilon0=1,clip_norm=5",
        "local Laplace (eps0 = 1 per upload, C = 5)",
        "local-laplace-clip-norm-5-epsilon0-1",
    ),
    (
        "local-laplace:epsilon0=0.5, clip_norm=5, sampling.kind=fixed, sampling.size=94, delta=1e-6",
        "local Laplace (eps0 = 0.5 per upload, C = 5), fixed 94, delta 1e-06",
        "local-laplace-clip-norm-5-epsilon0-0.5-fixed-size-94-delta-1e-06",
    ),
    (
        "local-laplace:epsilon0=1,clip_norm=5,clip_order=2",
        "local Laplace (eps0 = 1 per upload, C = 5, clipped in L2: no guarantee)",
        "local-laplace-clip-norm-5-epsilon0-1-clip-order-2",
    ),
]


@pytest.mark.parametrize(("words", "name", "slug"), WORDS)
def test_words_give_the_plan_its_name_and_slug(words, name, slug):
    plan = PrivacyPlan.parse(words)
    assert plan.name == name
    assert plan.slug == slug
    assert re.fullmatch(r"[a-z0-9.+-]+", plan.slug)
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
    assert PrivacyPlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_reads_from_toml():
    text = """
    delta = 1e-6
    mechanism = { kind = "local_laplace", clip_norm = 2, epsilon0 = 0.5 }
    sampling = { kind = "poisson", rate = 0.1 }
    """
    plan = PrivacyPlan.from_dict(tomllib.loads(text))
    assert plan.mechanism == LocalLaplace(clip_norm=2, epsilon0=0.5)
    assert plan.sampling == Poisson(rate=0.1)
    assert plan.delta == 1e-6


def test_defaults():
    plan = laplace()
    assert plan.sampling == All()
    assert plan.delta == 1e-5
    assert plan.neighbours == "replace_one"
    assert PrivacyPlan.named("published-noise").mechanism.scale == 0.3


def test_plans_are_frozen():
    plan = laplace()
    with pytest.raises(ValidationError):
        plan.delta = 0.1
    with pytest.raises(ValidationError):
        plan.mechanism.epsilon0 = 100.0


@pytest.mark.parametrize(
    ("words", "clip", "noise", "trust"),
    [
        ("none", None, None, "none"),
        ("clip:clip_norm=3,order=2", Clip(3.0, 2), None, "none"),
        ("published-noise:scale=0.1", None, Noise("laplace", 0.1, "all"), "none"),
        ("local-laplace:epsilon0=2,clip_norm=3", Clip(3.0, 1), Noise("laplace", 3.0, "all"), "local"),
        (
            "local-laplace:epsilon0=2,clip_norm=3,clip_order=2,coordinates=touched",
            Clip(3.0, 2),
            Noise("laplace", 3.0, "touched"),
            "local",
        ),
    ],
)
def test_what_the_guards_read(words, clip, noise, trust):
    mechanism = PrivacyPlan.parse(words).mechanism
    assert (mechanism.clip, mechanism.noise, mechanism.trust) == (clip, noise, trust)


@settings(max_examples=50, deadline=None)
@given(PLAUSIBLE, PLAUSIBLE, st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_derived_noise_keeps_epsilon0_for_any_two_clipped_uploads(clip_norm, epsilon0, dimension, seed):
    """The log density ratio of two clipped uploads never exceeds epsilon0, which is the definition."""
    mechanism = LocalLaplace(clip_norm=clip_norm, epsilon0=epsilon0)
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, dimension))
    a *= clip_norm / np.abs(a).sum()
    b *= clip_norm / np.abs(b).sum()
    seen = a + rng.laplace(scale=mechanism.noise_scale, size=dimension)
    ratio = (np.abs(seen - b) - np.abs(seen - a)).sum() / mechanism.noise_scale
    assert ratio <= epsilon0 * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(PLAUSIBLE, PLAUSIBLE)
def test_the_bound_is_reached_by_opposite_uploads(clip_norm, epsilon0):
    """+C against -C on one coordinate has log ratio exactly epsilon0, so no smaller scale would do."""
    mechanism = LocalLaplace(clip_norm=clip_norm, epsilon0=epsilon0)
    ratio = (abs(2 * clip_norm + clip_norm) - abs(2 * clip_norm - clip_norm)) / mechanism.noise_scale
    assert ratio == pytest.approx(epsilon0, rel=1e-12)


def test_the_wrong_norm_really_breaks_the_bound():
    """Two uploads of L2 norm C in 100 dimensions: under the plan's noise their ratio is ten epsilon0."""
    mechanism = LocalLaplace(clip_norm=1.0, epsilon0=1.0, clip_order=2)
    upload = np.full(100, 0.1)
    seen = 2 * upload
    ratio = (np.abs(seen + upload) - np.abs(seen - upload)).sum() / mechanism.noise_scale
    assert ratio == pytest.approx(10.0)
    assert isinstance(event_for(laplace(clip_order=2), REAL, 10), Unbounded)


@settings(max_examples=50, deadline=None)
@given(PLAUSIBLE, PLAUSIBLE)
def test_the_recorded_mechanism_is_the_noise_over_the_distance(clip_norm, epsilon0):
    plan = laplace(clip_norm=clip_norm, epsilon0=epsilon0)
    mechanism = event_for(plan, REAL, 10)
    assert isinstance(mechanism, Laplace)
    assert mechanism.pure_epsilon == pytest.approx(epsilon0, rel=1e-12)
    assert mechanism.scale_over_sensitivity * 2 * clip_norm == pytest.approx(plan.mechanism.noise.scale, rel=1e-12)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        ("none", "without clipping and without noise"),
        ("none:release=total", "sum alone bounds nothing"),
        ("clip:clip_norm=1", "no noise is added"),
        ("published-noise", "not clipped"),
        ("published-noise:law=gaussian,coordinates=touched", "not clipped"),
        ("published-noise:coordinates=touched", "untouched rows stay exactly"),
        ("local-laplace:epsilon0=1,clip_norm=1,clip_order=2", "clipped in the L2 norm"),
        ("local-laplace:epsilon0=1,clip_norm=1,coordinates=touched", "which rows were touched"),
    ],
)
def test_mechanisms_that_bound_nothing_say_why(words, because):
    mechanism = event_for(PrivacyPlan.parse(words), REAL, 10)
    assert isinstance(mechanism, Unbounded)
    assert because in mechanism.reason


@pytest.mark.parametrize("words", [w for w, _, _ in WORDS])
def test_integer_blocks_are_never_free_and_only_an_empty_schema_is(words):
    plan = PrivacyPlan.parse(words)
    assert isinstance(event_for(plan, SchemaSummary(), 10), Empty)
    assert event_for(plan, SchemaSummary(integer=("counts",)), 10) == Exact(blocks=("counts",))
    mixed = event_for(plan, SchemaSummary(real=("items",), integer=("counts",)), 10)
    assert isinstance(mixed, Exact | Unbounded)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda e, c, o, k, s, d: laplace(epsilon0=e, clip_norm=c, clip_order=o, coordinates=k, sampling=s, delta=d),
            st.sampled_from([1, 1.5, 0.1, 1 / 3]),
            st.sampled_from([1, 1.5, 11]),
            st.sampled_from([1, 2]),
            st.sampled_from(["all", "touched"]),
            st.sampled_from([All(), Poisson(rate=0.1), Poisson(rate=1 / 3), Fixed(size=10), Epoch(size=10)]),
            st.sampled_from([1e-5, 1e-6]),
        ),
        min_size=2,
        max_size=2,
    )
)
def test_different_plans_have_different_slugs_and_names(plans):
    one, other = plans
    assert (one == other) == (one.slug == other.slug) == (one.name == other.name)


SENTENCES = [
    ("local-laplace:epsilon0=-1,clip_norm=5", ["mechanism.epsilon0 = -1", "greater than 0"]),
    ("local-laplace:epsilon0=0,clip_norm=5", ["mechanism.epsilon0 = 0", "greater than 0"]),
    ("local-laplace:epsilon0=1", ["mechanism.clip_norm is missing", "epsilon0 means nothing"]),
    ("local-laplace:epsilon0=1,clip_norm=0", ["mechanism.clip_norm = 0", "greater than 0"]),
    ("local-laplace:epsilon0=inf,clip_norm=1", ["mechanism.epsilon0 = 'inf'", "finite"]),
    ("local-laplace:epsilon0=nan,clip_norm=1", ["mechanism.epsilon0 = 'nan'", "finite"]),
    ("local-laplace:epsilon0=1e-40,clip_norm=1", ["epsilon0 = 1e-40", "noise scale"]),
    ("local-laplace:epsilon0=one,clip_norm=1", ["mechanism.epsilon0 = 'one'", "number"]),
    ("local-laplace:epsilon0=1,clip_norm=1,clip_order=3", ["mechanism.clip_order = 3", "1 or 2"]),
    (
        "local-laplace:epsilonn=1,clip_norm=1",
        ["mechanism.epsilonn is not a known key", "did you mean 'epsilon0'"],
    ),
    ("local-laplace:epsilon0=1,clip_norm=1,delta=2", ["delta = 2", "less than 1"]),
    ("local-laplace:epsilon0=1,clip_norm=1,delta=0", ["delta = 0", "0.0000000001"]),
    ("local-laplace:epsilon0=1,epsilon0=2,clip_norm=1", ["epsilon0 is given twice"]),
    ("local-laplace:epsilon0", ["'epsilon0' is not of the form key=value"]),
    ("local-laplace:epsilon0=1,clip_norm=1,sampling.kind=poison", ["sampling.kind = 'poison'", "'poisson'"]),
    ("local-laplace:epsilon0=1,clip_norm=1,sampling.rate=0.1", ["sampling.kind is missing", "all, poisson"]),
    ("none:sampling.kind=poisson,sampling.rate=1.5", ["sampling.rate = 1.5", "less than or equal to 1"]),
    ("none:sampling.kind=fixed,sampling.size=0", ["sampling.size = 0", "greater than or equal to 1"]),
    ("none:release=sum", ["mechanism.release = 'sum'", "'individual' or 'total'"]),
    ("none:epsilon0=1", ["mechanism.epsilon0 is not a known key"]),
    ("published-noise:scale=-0.3", ["mechanism.scale = -0.3", "greater than 0"]),
    ("published-noise:law=gauss", ["mechanism.law = 'gauss'", "did you mean 'gaussian'"]),
    (
        "lokal-laplace:epsilon0=1",
        ["'lokal-laplace' is not known", "did you mean 'local-laplace'", "published-noise"],
    ),
]


@pytest.mark.parametrize(("words", "parts"), SENTENCES)
def test_bad_words_are_answered_in_one_sentence(words, parts):
    with pytest.raises(PlanError) as caught:
        PrivacyPlan.parse(words)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "mechanism is missing"),
        ({"mechanim": {"kind": "unprotected"}}, "mechanim is not a known key; did you mean 'mechanism'?"),
        ({"mechanism": {}}, "mechanism.kind is missing"),
        (
            {"mechanism": {"kind": "laplace"}},
            "mechanism.kind = 'laplace' is not known; did you mean 'local_laplace'?",
        ),
        ({"mechanism": 3}, "mechanism = 3 is not allowed"),
    ],
)
def test_bad_dictionaries_are_answered_in_one_sentence(data, part):
    with pytest.raises(PlanError) as caught:
        PrivacyPlan.from_dict(data)
    assert str(caught.value).startswith(part)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    learning_rate: float = Field(gt=0, description="step size of the user vector")


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner
    many: list[Inner] = []


def test_explain_serves_any_configuration():
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": {"learning_rat": 1}})
    assert explain(caught.value) == explain(caught.value, Outer)
    assert explain(caught.value).startswith("inner.learning_rat is not a known key; did you mean 'learning_rate'?")
    assert explain(caught.value).endswith("(and 1 more problem)")
    with pytest.raises(PlanError, match=r"^many\[1\]\.learning_rate = 0 .*\(step size of the user vector\)$"):
        configure(Outer, {"inner": {"learning_rate": 1}, "many": [{"learning_rate": 1}, {"learning_rate": 0}]})


def test_noise_scale_is_always_usable():
    for clip_norm, epsilon0 in [(1e308, 1e-5), (1e-40, 1e10)]:
        with pytest.raises(PlanError, match="noise scale"):
            laplace(clip_norm=clip_norm, epsilon0=epsilon0)
    assert math.isfinite(laplace(clip_norm=1e10, epsilon0=1e-10).mechanism.noise_scale)
