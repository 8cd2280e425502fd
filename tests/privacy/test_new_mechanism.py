"""Mechanisms and padding that are defined here run, are recorded, explained, forecast and audited like the library's.

Two mechanisms: noise on the device behind an L1 clip, and noise of the server for users whose upload is replaced by
zero. No line of the library knows of either.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pytest
from pydantic import Field

from privfed.audit.checks.check_run import check_run
from privfed.audit.checks.transcript_ledger import planned_multiplier
from privfed.audit.epsilon.mechanism import audit_mechanism
from privfed.cli.compatibility import fit
from privfed.contracts import Block, ReleaseKind
from privfed.data import Split
from privfed.engines.nodes.policy import Policy
from privfed.experiment import Experiment, RunResult
from privfed.federation import Streams
from privfed.methods import method, methods
from privfed.privacy import Mechanism, Padding, PlanError, PrivacyPlan, forecast, plan_for_target
from privfed.privacy.events import Event, Gaussian, SchemaSummary
from privfed.privacy.mechanisms.base import Neighbours, Noise
from privfed.privacy.mechanisms.clipping import Clip
from privfed.privacy.mechanisms.registry import examples
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.padding.base import SampledPadding, SupportClaim
from privfed.privacy.sampling import Trust
from privfed.setup.config import ExperimentConfig, TapConfig


class L1Gaussian(Mechanism):
    """An L1 clip, which is an L2 clip too, then Gaussian noise on every coordinate, on the device."""

    preset: ClassVar[str] = "l1-gaussian"
    release: ClassVar[ReleaseKind] = "individual"
    kind: Literal["l1_gaussian"] = "l1_gaussian"
    clip_norm: float = Field(gt=0, description="the largest L1 norm of an upload")
    spread: float = Field(gt=0, description="standard deviation over the clip norm")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"l1-gaussian": cls(clip_norm=1.0, spread=2.0)}

    @property
    def clip(self) -> Clip | None:
        return Clip(self.clip_norm, 1)

    @property
    def noise(self) -> Noise | None:
        return Noise("gaussian", self.spread * self.clip_norm, "all")

    @property
    def trust(self) -> Trust:
        return "local"

    @property
    def label(self) -> str:
        return f"L1 Gaussian ({self.spread:g})"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        return Gaussian(noise_multiplier=self.spread / (2 * math.sqrt(schema.share)))

    def requirements(self) -> list[str]:
        return [f"The device clips to L1 norm {self.clip_norm:g}."]

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        return SizedNoise({"spread": 2 * target.unsampled_multiplier()})


class ZeroOutGaussian(Mechanism):
    """Noise of the server on the sum; compared are a user's upload and zero."""

    preset: ClassVar[str] = "zero-out-gaussian"
    preset_fields: ClassVar[Mapping[str, Any]] = {"bound": 1.0}
    release: ClassVar[ReleaseKind] = "total"
    kind: Literal["zero_out_gaussian"] = "zero_out_gaussian"
    bound: float = Field(gt=0, description="the largest L2 norm of an upload")
    z: float = Field(gt=0, description="noise over the bound")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"zero-out-gaussian": cls(bound=1.0, z=1.0)}

    @property
    def clip(self) -> Clip | None:
        return Clip(self.bound, 2)

    @property
    def server_noise_multiplier(self) -> float | None:
        return self.z

    @property
    def noise_over_clip(self) -> float | None:
        return self.z

    @property
    def min_clients(self) -> int:
        return 2

    @property
    def neighbours(self) -> Neighbours:
        return "zero_out_one"

    @property
    def trust(self) -> Trust:
        return "central"

    @property
    def label(self) -> str:
        return "zero-out Gaussian"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        return Gaussian(noise_multiplier=self.z / math.sqrt(schema.share))

    def sum_deviation(self, clients: float) -> float:
        return self.z * self.bound


class FirstItems(SampledPadding):
    """Everybody sends the first rows besides its own."""

    kind: Literal["first_items"] = "first_items"
    rows: int = Field(ge=1, description="number of first rows")
    seed: int = 0

    @property
    def label(self) -> str:
        return f"first {self.rows} rows"

    @property
    def claim(self) -> SupportClaim:
        return SupportClaim(
            padding=self.label, epsilon=math.inf, epsilon_swap=math.inf, sentence="Rows past the first."
        )

    def sample(self, own: Any, known: Any, words: Any, popularity: Any) -> tuple[Any, Any]:
        return own, ~own & ~known & (np.arange(own.shape[1]) < self.rows)


WORDS = {"device": "l1-gaussian:clip_norm=0.7,spread=2", "server": "zero-out-gaussian:bound=0.7,z=1"}
ROWS = "shared-sum:clip_norm=1,padding.kind=first_items,padding.rows=40"
SCHEMA = {"items": Block((9, 2)), "head": Block((3,))}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    Mechanism.register(L1Gaussian)
    Mechanism.register(ZeroOutGaussian)
    Padding.register(FirstItems)
    yield
    Mechanism.remove("l1_gaussian")
    Mechanism.remove("zero_out_gaussian")
    Padding.remove("first_items")


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def trained(parts: Split, words: str, **settings: Any) -> tuple[Experiment, RunResult]:
    config = ExperimentConfig(
        method={"name": "pfedrec", "dim": 4, "negatives": 1, **settings},
        privacy=PrivacyPlan.parse(words),
        rounds=2,
        taps=TapConfig(places=("raw", "wire", "sum"), users=20, rounds=(0, 1)),
    )
    experiment = Experiment(config, parts)
    return experiment, experiment.run(parts=("test",))


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_it_is_parsed_from_words_and_files_and_has_a_name(words: str) -> None:
    plan = PrivacyPlan.parse(words)
    assert PrivacyPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert ExperimentConfig.model_validate({"privacy": plan.to_dict()}).privacy == plan
    assert plan.slug.startswith(plan.mechanism.kind.replace("_", "-"))
    assert plan.mechanism.label in plan.name
    with pytest.raises(PlanError, match=r"mechanism\.clip_nrm is not a known key; did you mean 'clip_norm'"):
        PrivacyPlan.parse("l1-gaussian:clip_nrm=1,spread=2")
    with pytest.raises(PlanError, match="did you mean 'l1-gaussian'"):
        PrivacyPlan.parse("l1-gausian:clip_norm=1")


def test_a_word_is_registered_once() -> None:
    class Other(L1Gaussian):
        pass

    with pytest.raises(PlanError, match=r"'l1_gaussian' is registered already by L1Gaussian"):
        Mechanism.register(Other)


def test_without_registration_no_plan_knows_it() -> None:
    plan = PrivacyPlan.parse(WORDS["device"])
    Mechanism.remove("l1_gaussian")
    with pytest.raises(PlanError, match=r"mechanism\.kind = 'l1_gaussian' is not known"):
        PrivacyPlan.from_dict(plan.to_dict())
    Mechanism.register(L1Gaussian)
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize(("where", "multiplier"), [("device", 1.0), ("server", 1.0)])
def test_a_run_behind_it_is_recorded_explained_and_passes_the_audit_of_runs(
    few_users: Split, where: str, multiplier: float
) -> None:
    experiment, result = trained(few_users, WORDS[where])
    assert {entry.event for entry in result.entries} == {Gaussian(noise_multiplier=multiplier)}
    assert len(result.entries) == 2
    guarantee = result.guarantee
    assert 0 < guarantee.epsilon < math.inf
    assert (guarantee.trust, guarantee.neighbours) == {
        "device": ("local", "replace_one"),
        "server": ("central", "zero_out_one"),
    }[where]
    assert any("changes the odds" in said for said in guarantee.statements)
    assert ("The device clips to L1 norm 0.7." in guarantee.assumptions) == (where == "device")
    checks = {check.name: check for check in check_run(experiment, result)}
    assert "transcript against ledger" in checks
    assert "bits of a release are the same with a user and without" in checks
    assert [check for check in checks.values() if not check.passed] == []


def test_uploads_really_are_clipped_and_noised(few_users: Split) -> None:
    """Large L1 norms shrink to C, and what leaves is off it by noise of the mechanism's deviation."""
    experiment, result = trained(few_users, "l1-gaussian:clip_norm=0.01,spread=100")
    values = np.concatenate([seen.tensors["items"].numpy().ravel() for seen in result.transcript.joined("wire")])
    assert values.std() == pytest.approx(1.0, rel=0.05)
    assert result.guarantee.epsilon == pytest.approx(
        forecast(
            experiment.config.privacy, rounds=2, population=18, up=experiment.server.schema, down=0.0
        ).guarantee.epsilon
    )


def test_it_is_forecast_and_sized() -> None:
    plan = PrivacyPlan.parse(WORDS["device"])
    expected = forecast(plan, rounds=4, population=100, up=SCHEMA, down=0.0, touched_rows={"items": 2.0})
    assert expected.up_bytes_per_client_round == 4 * (18 + 3)
    sized = plan_for_target(plan, 2.0, 4, 100)
    total = forecast(sized, rounds=4, population=100, up=SCHEMA, down=0.0).guarantee.epsilon
    assert total == pytest.approx(2.0, rel=1e-2)
    assert plan.noisy_sums(100).deviation == pytest.approx(1.4 * 10)
    server = PrivacyPlan.parse(WORDS["server"])
    assert server.noisy_sums(100).deviation == 0.7
    assert server.fixed_denominator
    few = server.model_copy(update={"sampling": PrivacyPlan.parse("none:sampling.kind=fixed,sampling.size=1").sampling})
    assert forecast(few, rounds=1, population=100, up=SCHEMA, down=0.0).aborted_share == 1
    with pytest.raises(PlanError, match="its noise cannot be sized"):
        plan_for_target(server, 2.0, 4, 100)


def test_methods_and_nodes_judge_it_by_what_it_does() -> None:
    found = {name: fit(one, examples()["zero-out-gaussian"]) for name, one in methods().items()}
    assert found["pfedrec"].reason is None
    assert found["pfedrec"].unbounded is None
    assert "would see only a sum" in (found["ease"].reason or "")
    assert "whole numbers" in (fit(method("dfmr"), examples()["l1-gaussian"]).reason or "")
    policy = Policy(mechanisms=("l1_gaussian",), min_noise_multiplier=1.5, max_clip_norm=1.0)
    policy.accept_plan("pfedrec", PrivacyPlan.parse(WORDS["device"]), 4, 100, seeded=False)
    with pytest.raises(ValueError, match="noise multiplier of 1"):
        policy.accept_plan("pfedrec", PrivacyPlan.parse("l1-gaussian:clip_norm=1,spread=1"), 4, 100, seeded=False)


@pytest.mark.parametrize(("where", "tap"), [("device", "wire"), ("server", "sum")])
def test_its_noise_is_audited_by_the_definition(where: str, tap: str) -> None:
    """In the simulation and over nodes: the bound stands below the claim, and near it."""
    plan = PrivacyPlan.parse(WORDS[where])
    rows = {row.audited: row for row in audit_mechanism(plan, SCHEMA, 40, draws=400)}
    name = "one upload" if where == "device" else "one upload in a sum"
    assert f"{name} over nodes" in rows
    assert all(row.consistent for row in rows.values())
    assert 0.3 * rows[name].accounted < rows[name].value <= rows[name].accounted
    assert rows[name].tap == tap
    assert planned_multiplier(plan, 0.25) == 2.0


def test_an_engine_that_halves_its_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    normal = Streams.normal_steps
    monkeypatch.setattr(Streams, "normal_steps", lambda self, *address: (normal(self, *address) / 2).round())
    rows = audit_mechanism(PrivacyPlan.parse(WORDS["device"]), SCHEMA, 40, draws=400)
    assert not all(row.consistent for row in rows)


def test_padding_of_ones_own_is_sent_claimed_and_audited(few_users: Split) -> None:
    experiment, result = trained(few_users, ROWS)
    assert experiment.support is not None
    for user in range(18):
        own = set(few_users.train.items_of(user).tolist())
        assert set(experiment.support.items_of(user).tolist()) == own | set(range(40))
    assert result.guarantee.support is not None
    assert result.guarantee.support.padding == "first 40 rows"
    assert "Rows past the first." in result.guarantee.statements
    checks = {check.name: check for check in check_run(experiment, result)}
    assert checks["padding of row names"].passed
    assert checks["padding is the same in every round"].passed
    [row] = audit_mechanism(PrivacyPlan.parse(ROWS), SCHEMA, 18, draws=200)
    assert row.audited == "one item under the padding of rows"
