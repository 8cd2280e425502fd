"""`AuditConfig`: everything that decides what an audit measures; `privfed.audit.grid` runs it."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.audit.report.records import POPULARITY
from privfed.contracts import Fidelity
from privfed.data import SplitSpec
from privfed.evaluation import HONEST, EvaluationSettings, Protocol
from privfed.methods import method as registered
from privfed.privacy import PrivacyPlan
from privfed.setup import MethodTable
from privfed.setup.config import AuditTapConfig, ExperimentConfig, TapConfig, measures_privately
from privfed.setup.controls import Control

CANARIES = 200
"""Clients of a second training where nobody says how many."""


class Variant(BaseModel):
    """One method behind one plan.

    Attributes:
        method: its name and settings.
        privacy: the plan.
        rounds: rounds of its runs; null takes the audit's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: MethodTable
    privacy: PrivacyPlan
    rounds: int | None = Field(None, ge=1)

    @property
    def key(self) -> tuple[str, str]:
        """What its runs are told apart by: the method and the plan's slug."""
        return str(self.method.get("name", "")), self.privacy.slug


class AuditConfig(BaseModel):
    """A grid on one data set under one protocol: methods x plans x seeds, or single variants x seeds.

    Attributes:
        data: name of a data set or path.
        split: how held-out items are chosen.
        protocol: how utility is measured.
        methods: name and settings of each method.
        plans: the privacy settings to compare, for every method.
        variants: methods behind plans of their own, instead of `methods` and `plans`.
        rounds: rounds of every run.
        seeds: one run per seed.
        evaluate_every: rounds between evaluations; null evaluates ten times.
        taps: what attacks may see.
        attributes: whether to guess gender, age and occupation of the audited users, where the data say them.
        canaries: clients of a second training of every noised run, from which the epsilon of a whole person is
            estimated, or, where single uploads are released, people of a few more rounds whose uploads spell secrets; 0
            trains none. 1,000 give the epsilon of a whole person within some 15 %.
        controls: controls to run beside every method (`privfed.setup.controls`), once for each seed; devices that
            train alone take longest, so they are to be named.
        evaluation: how quality is measured behind plans that bound a whole user and add noise to sums; elsewhere, as
            for popularity, it stays exact, since an audit is a simulation that sees everything.
        memory_limit_gib: bound on the update buffers of one run.
        device: where runs train; attacks read copies on the processor.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = "ml-100k"
    split: SplitSpec = SplitSpec()
    protocol: Protocol = HONEST
    methods: tuple[MethodTable, ...] = ()
    plans: tuple[PrivacyPlan, ...] = ()
    variants: tuple[Variant, ...] = ()
    rounds: int = Field(40, ge=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    evaluate_every: int | None = Field(None, ge=1)
    taps: AuditTapConfig | TapConfig = AuditTapConfig()
    attributes: bool = False
    canaries: int = Field(CANARIES, ge=0)
    controls: tuple[Control, ...] = ("untrained", "shuffled")
    evaluation: EvaluationSettings = EvaluationSettings()
    memory_limit_gib: float | None = Field(None, gt=0, allow_inf_nan=False)
    fidelity: Fidelity = "exact"
    device: str = "cpu"

    @classmethod
    def for_method(
        cls,
        method: str,
        data: str = "ml-100k",
        rounds: int = 40,
        seeds: int = 1,
        **fields: Any,
    ) -> Self:
        """The default grid of one method: no privacy mechanism, the published noise, and two sound local budgets.

        A method of whole numbers, which noise does not cover, gets secret sharing under three kinds of padding instead.
        """
        plans = (
            tuple(PrivacyPlan.parse(words) for words in PADDED_PLANS)
            if method and registered(method).traits.integers
            else (
                PrivacyPlan.named("none"),
                PrivacyPlan.named("published-noise"),
                PrivacyPlan.named("local-laplace", epsilon0=8.0, clip_norm=DEFAULT_CLIP_NORM),
                PrivacyPlan.named("local-laplace", epsilon0=1.0, clip_norm=DEFAULT_CLIP_NORM),
            )
        )
        return cls(
            data=data,
            methods=({"name": method},),
            rounds=rounds,
            seeds=tuple(range(seeds)),
            **({"plans": plans} | fields),
        )

    @model_validator(mode="after")
    def _is_a_grid(self) -> Self:
        if bool(self.variants) == bool(self.methods or self.plans) or bool(self.methods) != bool(self.plans):
            raise ValueError(
                f"{len(self.methods)} methods, {len(self.plans)} plans and {len(self.variants)} variants are no "
                "grid: give methods and plans, or variants alone"
            )
        keys = [variant.key for variant in self.grid()]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            name, slug = twice[0]
            raise ValueError(
                f"{name} behind {slug} is there twice with different settings, and its runs could not be told apart: "
                "leave one out, or audit them in two folders"
            )
        return self

    def grid(self) -> list[Variant]:
        """Every method behind every plan, or the variants, each once; popularity, which is always there, aside."""
        pairs = self.variants or [
            Variant(method=method, privacy=plan) for method in self.methods for plan in self.plans
        ]
        different = [variant for index, variant in enumerate(pairs) if variant not in pairs[:index]]
        return [variant for variant in different if variant.key[0] != POPULARITY]

    def cells(self) -> list[ExperimentConfig]:
        """One experiment per cell; popularity needs one round and no privacy mechanism, and comes first."""
        baseline = Variant(method={"name": POPULARITY}, privacy=PrivacyPlan.named("none"), rounds=1)
        grid = [
            (variant.method, variant.privacy, variant.rounds or self.rounds) for variant in (baseline, *self.grid())
        ]
        return [
            ExperimentConfig(
                data=self.data,
                split=self.split,
                method=method,
                privacy=plan,
                protocol=self.protocol,
                rounds=rounds,
                seed=seed,
                evaluate_every=self.evaluate_every if rounds > 1 else None,
                taps=self.taps.of_run() if rounds > 1 else self.taps.of_run(rounds=(0,)),
                memory_limit_gib=self.memory_limit_gib,
                fidelity=self.fidelity,
                device=self.device,
                evaluation=self.evaluation if measures_privately(plan) else EvaluationSettings(),
            )
            for seed in self.seeds
            for method, plan, rounds in grid
        ]


PADDED_PLANS = (
    "none",
    "shared-sum",
    "shared-sum:padding.kind=fake_items,padding.rho=1",
    "shared-sum:padding.kind=randomised_response,padding.epsilon=2",
)
"""The default grid of a method that uploads whole numbers."""

DEFAULT_CLIP_NORM = 1.0
"""L1 bound of an upload in the default grid: fixed before any run, the same for every budget."""
