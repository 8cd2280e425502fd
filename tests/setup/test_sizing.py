"""Noise and clip norm that a target leaves open: every method behind every mechanism that can be sized."""

from typing import Any

import numpy as np
import pytest

from privfed.audit.checks.neighbours import rerun_on_neighbours, sampled_users
from privfed.cli.compatibility import EXAMPLES
from privfed.contracts import Block, refreshes_of
from privfed.data import Split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.guards.server_guard import ServerGuard
from privfed.methods import method, methods, preset
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.privacy.mechanisms.clipping import AUTO_SHARE
from privfed.privacy.refusals import method_refusal, refuse_unprotected_blocks
from privfed.setup import sizing
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.method_settings import method_settings
from privfed.setup.refusals import method_profile
from privfed.setup.sizing import size
from privfed.setup.target_plan import delta_for

EPSILON, ROUNDS = 8.0, 3
CLIPPED = {
    "central-gaussian": "",
    "central-gaussian, sampled": ",sampling.kind=poisson,sampling.rate=0.5",
    "local-gaussian": "",
    "local-laplace": "",
    "interaction-dpsgd": "",
}
AUTO = f"central-gaussian:epsilon={EPSILON:g},clip_norm=auto"


def config_of(name: str, words: str, **fields: Any) -> ExperimentConfig:
    settings = {"name": name, **SETTINGS.get(name, {})}
    return ExperimentConfig(
        data="synthetic-tests", method=settings, privacy=PrivacyPlan.parse(words), taps=TapConfig(places=()),
        **{"rounds": ROUNDS} | fields,
    )  # fmt: skip


def words_of(label: str, more: str = ",clip_norm=1") -> str:
    return f"{label.partition(',')[0]}:epsilon={EPSILON:g}{more}{CLIPPED[label]}"


CASES = [
    (name, label)
    for name in methods()
    for label in CLIPPED
    if method_refusal(PrivacyPlan.parse(words_of(label)), method_profile(method(name))) is None
]
SETTINGS = {"private-gram-year": {"min_items": 0}}
"""Of so few people no item stands out, and pairs are asked for all the same."""


def spent(config: ExperimentConfig, parts: Split) -> float:
    return Experiment(config, parts).run(parts=()).guarantee.epsilon


@pytest.mark.parametrize(("name", "label"), CASES)
def test_the_guarantee_is_the_target_and_wastes_nothing(name: str, label: str, small_split: Split) -> None:
    assert 0.99 * EPSILON <= spent(config_of(name, words_of(label)), small_split) <= EPSILON


@pytest.mark.parametrize("name", ["fedmf", "private-gram"])
def test_shares_of_noise_are_sized_too(name: str, small_split: Split) -> None:
    words = f"distributed-gaussian:epsilon={EPSILON:g},clip_norm=1,n_min_honest=30"
    assert 0.99 * EPSILON <= spent(config_of(name, words, rounds=1), small_split) <= EPSILON


@pytest.mark.parametrize("epsilon", np.geomspace(0.3, 16, 30).round(2))
def test_every_target_finds_the_queries_that_follow_from_its_own_noise(epsilon: float, small_split: Split) -> None:
    config = config_of("private-gram", f"central-gaussian:epsilon={epsilon}", rounds=1)
    assert 0.99 * epsilon <= spent(config, small_split) <= epsilon


@pytest.mark.parametrize("sought", [(1.5, 1.25), (1.25, 1.5)])
def test_noise_that_goes_round_ends_with_enough(
    small_split: Split, monkeypatch: pytest.MonkeyPatch, sought: tuple[float, float]
) -> None:
    asks_follow_noise(monkeypatch, dict(zip(sought, reversed(sought), strict=True)) | {0.0: sought[0]})
    assert size(config_of("fedmf", "central-gaussian:epsilon=2"), small_split).config.privacy == noisy(1.5)


def test_noise_that_never_suffices_for_its_own_queries_is_refused(
    small_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks_follow_noise(monkeypatch, {float(z): z + 1.0 for z in range(20)})
    with pytest.raises(PlanError, match="no noise for the queries that fedmf makes under that noise: give noise_mult"):
        size(config_of("fedmf", "central-gaussian:epsilon=2"), small_split)


def noisy(multiplier: float) -> PrivacyPlan:
    return PrivacyPlan.parse(f"central-gaussian:clip_norm=1,noise_multiplier={multiplier}")


def asks_follow_noise(monkeypatch: pytest.MonkeyPatch, needed: dict[float, float]) -> None:
    """Queries under a noise multiplier need the one that is given for it; the first plan, that of 0."""

    def sized(plan: PrivacyPlan, *_: Any, program: list[Any], **__: Any) -> PrivacyPlan:
        return noisy(needed[program[0].get("z", 0.0)])

    monkeypatch.setattr(sizing, "plan_for_target", sized)
    monkeypatch.setattr(sizing, "_program", lambda config, parts, plan: [{"z": plan.mechanism.noise_multiplier}])


def test_the_table_holds_every_method_that_noise_can_protect() -> None:
    assert len(CASES) > 45
    assert len({name for name, _ in CASES}) > 15


@pytest.mark.parametrize("name", methods())
def test_a_method_says_whether_its_releases_share_an_account(name: str, small_split: Split) -> None:
    registered = method(name)
    experiment = Experiment(config_of(name, "none"), small_split)
    schemas = [query.schema for query in registered.training.program(experiment.server)]
    assert registered.traits.shares_account == any(refreshes_of(schema) > 1 for schema in schemas)


YEAR = {"popularity": Block((5,), refreshes=3)}


@pytest.mark.parametrize(
    "plan",
    [
        *(PrivacyPlan(mechanism=mechanism) for mechanism in EXAMPLES.values()),
        PrivacyPlan.parse("central-gaussian:noise_multiplier=1,clip_norm=1,clipping=per_block"),
        PrivacyPlan.parse("central-gaussian:noise_multiplier=1,clip_norm=1,sampling.kind=poisson,sampling.rate=0.5"),
    ],
    ids=lambda plan: plan.mechanism.kind,
)
def test_a_year_is_refused_before_it_is_built_where_its_queries_would_be(plan: PrivacyPlan) -> None:
    """One list of reasons decides the listing of methods, what set-up says, and what becomes of a schema."""
    reason = method_refusal(plan, method_profile(method("private-gram-year")))
    if reason is None:
        refuse_unprotected_blocks(plan, YEAR)
    elif "share one account" in reason:
        with pytest.raises(PlanError, match="share one account") as refused:
            refuse_unprotected_blocks(plan, YEAR)
        assert str(refused.value).partition(": ")[2] in reason
    else:
        assert plan.mechanism.unit == "interaction"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (AUTO, "follows the data, and an account is in units of one: give a clip_norm"),
        ("local-gaussian:epsilon=8,clip_norm=1", "adds no Gaussian noise to a sum of clipped uploads: choose"),
        ("distributed-gaussian:epsilon=8,clip_norm=1,n_min_honest=30", None),
        ("central-gaussian:epsilon=8,clip_norm=1", None),
    ],
)
def test_a_plan_with_a_target_says_so_before_it_is_sized(words: str, why: str | None) -> None:
    reason = method_refusal(PrivacyPlan.parse(words), method_profile(method("private-gram-year")))
    assert (reason is None) if why is None else (reason is not None and why in reason)


def test_an_extra_query_of_the_first_round_is_paid_from_the_target(small_split: Split) -> None:
    config = config_of("feddae", words_of("central-gaussian"))
    prior = config.model_copy(update={"method": {"name": "feddae", "popularity_prior": True}})
    without, beside = (size(one, small_split).config.privacy.mechanism for one in (config, prior))
    assert beside.noise_over_clip > without.noise_over_clip
    assert 0.99 * EPSILON <= spent(prior, small_split) <= EPSILON


def test_the_run_has_the_sized_plan_everywhere(small_split: Split) -> None:
    experiment = Experiment(config_of("fedmf", "central-gaussian:epsilon=8"), small_split)
    plan = experiment.config.privacy
    assert plan.target is None
    assert plan.mechanism.clip is not None
    assert plan.mechanism.clip.norm == method("fedmf").clip_norms[0].norm
    given = PrivacyPlan.from_dict(plan.to_dict())
    assert Experiment(experiment.config.model_copy(update={"privacy": given}), small_split).config == experiment.config
    result = experiment.run(parts=())
    assert result.config.privacy == plan
    assert experiment.choices[0].startswith("Epsilon 8 at delta 1e-05 needs noise_multiplier = ")
    assert experiment.choices[0].endswith(" over 3 rounds of everybody.")
    assert experiment.choices[1].startswith("Clip norm 20, the default of fedmf: between ")


def test_a_given_plan_is_left_alone(small_split: Split) -> None:
    config = config_of("fedmf", "central-gaussian:clip_norm=1,noise_multiplier=2")
    experiment = Experiment(config, small_split)
    assert experiment.config is config
    assert experiment.choices == ()


def test_more_rounds_need_more_noise(small_split: Split) -> None:
    few, many = (size(config_of("fedmf", words_of("local-gaussian"), rounds=n), small_split) for n in (2, 8))
    assert many.config.privacy.mechanism.noise_over_clip == pytest.approx(
        2 * few.config.privacy.mechanism.noise_over_clip, rel=1e-3
    )


def test_every_default_says_where_it_comes_from() -> None:
    for name, registered in methods().items():
        bounded = [default.clipped for default in registered.clip_norms]
        assert len(bounded) == len(set(bounded)), name
        for default in registered.clip_norms:
            assert default.norm > 0
            assert default.of_median > 0
            assert len(default.ground.split()) > 8


def test_a_preset_has_the_clip_norm_of_its_own_uploads(small_split: Split) -> None:
    default, published = (
        Experiment(config_of(name, "central-gaussian:epsilon=8"), small_split)
        for name in ("fedlightgcn", "fedlightgcn:published")
    )
    median = preset("fedlightgcn:published").upload_norms["upload"]
    assert published.config.privacy.mechanism.clip.norm == float(f"{median / 2:.2g}")
    assert published.config.privacy.mechanism.clip.norm != default.config.privacy.mechanism.clip.norm
    said = " ".join(published.choices)
    assert "the default of fedlightgcn:published: 0.5 of the median norm of first uploads with these settings" in said


@pytest.mark.parametrize(
    ("method_of", "words", "said"),
    [
        ({"name": "fedmf"}, "central-gaussian:epsilon=8", False),
        ({"name": "fedmf", "dim": 32, "lr": 0.5}, "central-gaussian:epsilon=8", True),
        ({"name": "fedlightgcn:published", "lr": 0.5}, "central-gaussian:epsilon=8", True),
        ({"name": "fedlightgcn:published"}, "central-gaussian:epsilon=8", False),
        ({"name": "fedmf", "lr": 0.5}, "central-gaussian:epsilon=8,clip_norm=1", False),
        ({"name": "private-gram", "rank": 32}, "central-gaussian:epsilon=8", False),
    ],
)
def test_settings_changed_since_a_clip_norm_was_found_are_named(
    method_of: dict[str, Any], words: str, said: bool, small_split: Split
) -> None:
    config = config_of("fedmf", words).model_copy(update={"method": method_settings(method_of)})
    choices = " ".join(Experiment(config, small_split).choices)
    assert ("It was found with other settings (lr changed since), so it may not fit." in choices) == said


def test_every_method_that_noise_on_sums_protects_has_a_default() -> None:
    central = PrivacyPlan.parse("central-gaussian:epsilon=8").mechanism
    for name, registered in methods().items():
        if registered.traits.release == "total" and central.refusal(method_profile(registered)) is None:
            assert "upload" in {default.clipped for default in registered.clip_norms}, name


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("private-gram", AUTO, "private-gram uploads once: give a clip_norm, or leave it out"),
        (
            "pfedrec",
            "interaction-dpsgd:epsilon=8",
            "clip_norm is missing, and pfedrec has no default for interaction-dpsgd",
        ),
        ("ials", "local-gaussian:epsilon=8", "clip_norm is missing, and ials has no default"),
        ("fedmf", "distributed-gaussian:epsilon=8,n_min_honest=90", "n_min_honest = 90"),
    ],
)
def test_what_setting_up_refuses(name: str, words: str, told: str, small_split: Split) -> None:
    with pytest.raises(PlanError, match=told):
        Experiment(config_of(name, words), small_split)


# clip_norm = auto -----------------------------------------------------------------------------------------------------


def test_auto_is_paid_for_inside_the_guarantee(small_split: Split) -> None:
    """The ledger records sum and count of every query as one release, whose two parts are in the stated ratio."""
    experiment = Experiment(config_of("fedmf", AUTO), small_split)
    result = experiment.run(parts=())
    assert 0.99 * EPSILON <= result.guarantee.epsilon <= EPSILON
    mechanism = result.config.privacy.mechanism
    assert mechanism.adaptive_clip is not None
    assert mechanism.server_noise_multiplier is not None
    count, noise = (2 * mechanism.adaptive_clip.count_noise) ** -2, mechanism.server_noise_multiplier**-2
    assert count / (count + noise) == pytest.approx(AUTO_SHARE)
    assert [entry.event.noise_multiplier for entry in result.entries] == pytest.approx(  # type: ignore[union-attr]
        [(count + noise) ** -0.5] * ROUNDS
    )
    assert any("5% of the budget" in line for line in result.guarantee.assumptions)
    assert "median" in experiment.choices[1]


FAR = {"name": "fedmf", "lr": 1e-3, "item_lr_factor": 10.0}


def test_auto_finds_the_median_from_far_away(small_split: Split) -> None:
    """With little noise the clip norm ends near the stated part of the median norm, wherever it began."""
    plan = PrivacyPlan.named("central-gaussian", clip_norm=0.5, noise_multiplier=0.05, of_median=0.5)
    config = config_of("fedmf", "none").model_copy(update={"privacy": plan, "method": FAR})
    experiment = Experiment(config, small_split)
    norms: list[Any] = []
    simulation = Simulation(experiment.clients, plan, 45, experiment.streams, Ledger(plan, 45))
    simulation.observers.append(lambda *seen: norms.append((seen[1].round, seen[3].norms(2))))
    for t in range(14):
        simulation.run(experiment.server, t)
    last = [values for t, values in norms if t == 13]
    median = float(sum(values.median() for values in last) / len(last))
    assert simulation.server_guard.clip_norms["train"] == pytest.approx(0.5 * median, rel=0.25)


def test_neighbours_agree_about_auto(small_split: Split) -> None:
    config = Experiment(config_of("fedmf", AUTO), small_split).config
    found = rerun_on_neighbours(config, small_split, sampled_users(small_split, 2, 0), 2)
    counted = [one for one in found if one.what == "the count behind the clip norm"]
    assert counted
    assert all(one.holds for one in found)


def test_the_replay_finds_a_median_that_is_counted_without_noise(
    small_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = ServerGuard.add_noise_

    def exact(self: ServerGuard, sums: Any, cohort: Any, step: str, *rest: Any, **more: Any) -> None:
        now, adaptive = self.clip_norm(step), self.plan.mechanism.adaptive_clip
        former(self, sums, cohort, step, *rest, **more)
        if now is not None and adaptive is not None:
            share = (more["within"] - more["members"] / 2) / cohort.expected + 0.5
            self.clip_norms[step] = adaptive.follow(now, share, cohort.round)

    monkeypatch.setattr(ServerGuard, "add_noise_", exact)
    config = Experiment(config_of("fedmf", AUTO), small_split).config
    found = rerun_on_neighbours(config, small_split, sampled_users(small_split, 2, 0), 2)
    assert any("has no noise of its own" in one.what for one in found if not one.holds)


def test_streams_follow_the_sized_plan(small_split: Split) -> None:
    """Noise is addressed by the plan that runs, so asking for it by epsilon or by number gives the same run."""
    asked = Experiment(config_of("fedmf", words_of("central-gaussian")), small_split)
    given = Experiment(asked.config, small_split)
    assert isinstance(asked.streams, Streams)
    states = [one.run(parts=()).server.state() for one in (asked, given)]
    assert all(bool((states[0][name] == states[1][name]).all()) for name in states[0])


def test_a_single_user_has_no_delta_of_the_population() -> None:
    with pytest.raises(
        PlanError, match=r"users\^-1.1 unless it is given, which guarantees nothing to 1 user: set a delta"
    ):
        delta_for(1)
