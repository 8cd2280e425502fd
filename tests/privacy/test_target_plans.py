"""Plans that ask for an epsilon: what they say, what they refuse, and that nothing runs before they are sized."""

import numpy as np
import pytest

from privfed.federation import Streams
from privfed.guards import ClientGuard
from privfed.privacy import Ledger, Mechanism, PlanError, PrivacyPlan, SchemaSummary, forecast
from privfed.privacy.mechanisms.clipping import AUTO_SHARE, MedianClip
from privfed.privacy.mechanisms.sizing import Target
from privfed.privacy.mechanisms.unsized import UnsizedPlanError

SIZABLE = {
    "local-laplace": "",
    "local-gaussian": "",
    "interaction-dpsgd": "",
    "central-gaussian": "",
    "distributed-gaussian": ",n_min_honest=40",
}


@pytest.mark.parametrize(("name", "words"), SIZABLE.items())
@pytest.mark.parametrize("clip_norm", ["", ",clip_norm=2"])
def test_every_mechanism_with_noise_takes_a_target(name: str, words: str, clip_norm: str) -> None:
    plan = PrivacyPlan.parse(f"{name}:epsilon=8{words}{clip_norm}")
    assert plan.target is not None
    assert (plan.target.epsilon, plan.target.clip) == (8.0, "given" if clip_norm else "default")
    assert plan.delta == 1e-5
    assert "for epsilon 8" in plan.name
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan


def test_the_table_of_targets_is_complete() -> None:
    assert {m.preset for m in Mechanism.members.values() if m.noise_setting is not None} == set(SIZABLE)


def test_a_target_is_written_in_any_of_its_places() -> None:
    plan = PrivacyPlan.parse("central-gaussian:epsilon=8,clip_norm=2")
    assert PrivacyPlan.parse("central-gaussian:target_epsilon=8,clip_norm=2") == plan
    assert PrivacyPlan.named("central-gaussian", epsilon=8, clip_norm=2) == plan
    mechanism = {"kind": "central_gaussian", "clip_norm": 2}
    assert PrivacyPlan.from_dict({"mechanism": mechanism, "epsilon": 8}) == plan
    assert PrivacyPlan.from_dict({"mechanism": mechanism, "target_epsilon": 8}) == plan
    assert PrivacyPlan.from_dict({"epsilon": 8}) == PrivacyPlan.parse("central-gaussian:epsilon=8")


def test_two_targets_are_two_plans() -> None:
    slugs = {PrivacyPlan.parse(f"central-gaussian:epsilon={epsilon}").slug for epsilon in (1, 8)}
    assert len(slugs) == 2


def test_a_plan_with_its_noise_has_no_target() -> None:
    assert PrivacyPlan.parse("central-gaussian:clip_norm=1,noise_multiplier=2").target is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "central-gaussian:epsilon=8,noise_multiplier=2",
            "epsilon = 8 decides noise_multiplier, and noise_multiplier = 2",
        ),
        ("local-laplace:epsilon=8,epsilon0=1", "epsilon = 8 decides epsilon0, and epsilon0 = 1 was given"),
        ("secure-sum:epsilon=8", "cannot be reached with secure-sum, which has no noise"),
        ("none:epsilon=8", "cannot be reached with none, which has no noise"),
        ("clip:epsilon=8", "choose one of local-laplace, local-gaussian"),
        (
            "local-laplace:epsilon=8,clip_norm=1,clip_order=2",
            "cannot be reached with local-laplace: uploads are clipped",
        ),
        ("central-gaussian:epsilon=0", "epsilon = 0 is not allowed: it must be greater than 0"),
        ("central-gaussian:epsilon=inf", "epsilon = 'inf' is not allowed: it must be a finite number"),
        ("central-gaussian:epsilon=eight", "epsilon = 'eight' is not allowed: it must be a valid number"),
        ("central-gaussian:epsilon=8,target_epsilon=8", "the same target given twice"),
        ("central-gaussian:epsilon=8,clp_norm=2", "clp_norm is not a known key; did you mean 'clip_norm'?"),
        ("central-gaussian:epsilon=8,sampling.kind=fixed,sampling.size=3", "cohorts of a fixed size"),
        ("local-laplace:epsilon=8,clip_norm=auto", "a trusted server, which local-laplace does not have"),
        (
            "distributed-gaussian:epsilon=8,n_min_honest=9,clip_norm=auto",
            "a trusted server, which distributed-gaussian",
        ),
        ("central-gaussian:epsilon=8,clip_norm=auto,adaptive.quantile=0.3", "follows norms by itself"),
        ("central-gaussian:epsilon=8,clip_norm=auto,clipping=per_block", "follows the joint norm"),
    ],
)
def test_what_cannot_be_sized_is_refused_in_one_sentence(words: str, told: str) -> None:
    with pytest.raises(PlanError) as refused:
        PrivacyPlan.parse(words)
    assert told in str(refused.value)
    assert not str(refused.value).startswith("mechanism: ")
    assert "\n" not in str(refused.value)
    assert ". " not in str(refused.value)


@pytest.mark.parametrize("words", [f"{name}:epsilon=8{more}" for name, more in SIZABLE.items()])
def test_nothing_runs_before_a_plan_is_sized(words: str) -> None:
    plan = PrivacyPlan.parse(words)
    with pytest.raises(UnsizedPlanError, match="leaves its noise or clip norm open"):
        ClientGuard(plan, Streams.from_seed(0))
    members = np.arange(50)
    with pytest.raises(UnsizedPlanError):
        Ledger(plan, 50).record(
            cohort_id=0, round=0, step="train", index=0, schema=SchemaSummary(("items",)), participants=members
        )
    with pytest.raises(UnsizedPlanError):
        forecast(plan, rounds=2, population=50, up={}, down=1.0)
    for name in ("unprotected", "fixed_denominator"):
        with pytest.raises(UnsizedPlanError):
            getattr(plan, name)
    with pytest.raises(UnsizedPlanError):
        plan.noisy_sums(50)


def test_what_protects_is_never_inherited_from_the_interface() -> None:
    """The interface's own answers mean no protection: an unsized plan must not give them."""
    mechanism = PrivacyPlan.parse("central-gaussian:epsilon=8").mechanism
    for name in (
        "clip", "adaptive_clip", "noise", "noisy_steps", "server_noise_multiplier", "adds_noise", "dense", "noise_law",
        "noise_over_clip",
    ):  # fmt: skip
        with pytest.raises(UnsizedPlanError):
            getattr(mechanism, name)


def test_the_counts_of_auto_cost_their_share() -> None:
    """Sum and count together cost what the noise multiplier says, the count one part in twenty of mu^2."""
    mechanism = PrivacyPlan.named("central-gaussian", clip_norm=1, noise_multiplier=3, of_median=0.5).mechanism
    adaptive = mechanism.adaptive_clip
    assert isinstance(adaptive, MedianClip)
    assert adaptive.counted_over_clip == 2.0
    total, count = 3.0**-2, (2 * adaptive.count_noise) ** -2
    assert count == pytest.approx(AUTO_SHARE * total)
    assert mechanism.server_noise_multiplier is not None
    assert mechanism.server_noise_multiplier**-2 + count == pytest.approx(total)


def test_auto_may_stand_beside_a_given_noise() -> None:
    plan = PrivacyPlan.parse("central-gaussian:noise_multiplier=2,clip_norm=auto")
    assert plan.target == Target(None, "auto", "upload")


def test_a_plan_that_follows_no_median_is_written_as_before() -> None:
    """Noise is addressed by these words."""
    plan = PrivacyPlan.parse("central-gaussian:noise_multiplier=2,clip_norm=1")
    assert list(plan.to_dict()["mechanism"]) == [
        "clip_norm", "clipping", "block_norms", "kind", "noise_multiplier", "adaptive",
    ]  # fmt: skip
