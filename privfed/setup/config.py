"""`ExperimentConfig`: everything that decides a run's result."""

import hashlib
import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from privfed.contracts import Fidelity
from privfed.data import SplitSpec
from privfed.evaluation import EvaluationSettings, Protocol
from privfed.methods import method
from privfed.privacy import PrivacyPlan, configure
from privfed.setup.controls import Control
from privfed.setup.method_settings import MethodTable

if TYPE_CHECKING:
    from privfed.federation import Streams
    from privfed.methods import Method, MethodConfig

TapPlace = Literal["raw", "wire", "sum", "model"]

_MOST = 2**63 - 1
"""What tensors are counted by."""


def _gpfedrec() -> dict[str, JsonValue]:
    return {"name": "gpfedrec"}


class TapConfig(BaseModel):
    """What to copy for attacks, and what is arranged before training so that they can be measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: tuple[TapPlace, ...] = Field(
        ("wire",),
        description="raw, wire, sum, model; empty taps nothing, and wire is the sum where a plan hides single uploads",
    )
    users: int = Field(100, ge=1, description="audited users, sampled by the seed")
    rounds: tuple[int, ...] | None = Field(
        None, description="rounds to tap, from 0; null taps four rounds spread over the run"
    )
    inclusion: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the audited users' training items that a fair random bit keeps or drops before training, "
        "so that attacks can be held against epsilon",
    )
    training_oracles: bool = Field(
        default=False,
        description="copy what the server sent, too, so that attacks can repeat local training with guessed histories",
    )
    shadows: int = Field(
        0,
        ge=0,
        description="further trainings with other inclusion bits, from which attacks learn how members score; 0 does "
        "without",
    )

    def of_run(self, **changes: Any) -> "TapConfig":
        """As one run of an audit has it, with some fields changed."""
        return TapConfig.model_validate(self.model_dump() | changes)

    @model_validator(mode="after")
    def _shadows_have_inclusion_bits(self) -> Self:
        if self.shadows and not self.inclusion:
            raise ValueError(
                f"shadows = {self.shadows} trains with other inclusion bits, and inclusion = 0 samples none: set "
                "inclusion, such as 0.2, or shadows = 0"
            )
        return self


class AuditTapConfig(TapConfig):
    """The same as an audit has it where it is not told otherwise: every place, and inclusion bits."""

    places: tuple[TapPlace, ...] = Field(
        ("raw", "wire", "sum", "model"), description=TapConfig.model_fields["places"].description
    )
    inclusion: float = Field(0.2, ge=0, lt=1, description=TapConfig.model_fields["inclusion"].description)


class ExperimentConfig(BaseModel):
    """Everything that decides a run's result.

    Attributes:
        data: name of a data set or path.
        split: how held-out items are chosen.
        method: name of the method and its settings, in one table or in a word, `gpfedrec:published`.
        privacy: the privacy plan.
        protocol: how utility is measured.
        rounds: rounds to train.
        seed: seed of the simulation: initial parameters, sampling, noise (a simulation's noise is seeded).
        evaluate_every: rounds between evaluations; null evaluates ten times, or every round where the protocol
            selects by validation.
        checkpoint_every: rounds between checkpoints of a run directory.
        taps: what to copy for attacks.
        chunk: clients trained together; null chooses.
        memory_limit_gib: bound on update buffers; null sets none.
        fidelity: how closely messages are simulated: `analytic` draws all Gaussian noise at once, `exact` every
            client's own, `protocol` runs the real masking protocol too, `two-servers` adds between two servers.
        device: where tensors live: `cpu`, `cuda`, `cuda:1`, ... (docs/results/performance.md, "On a GPU").
        deterministic: on a GPU, take only kernels that give the same bits every time; the CPU's always do.
        boost: behaviour -> standard deviations of a user's scores that its own items of this behaviour gain when its
            device ranks; nothing is sent, and training is as without it (`privfed.evaluation.boost`).
        control: a control to run instead of the method as it is (`privfed.setup.controls`); null runs the method.
        evaluation: whether quality is measured exactly, or by a noisy sum that the ledger counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = "ml-100k"
    split: SplitSpec = SplitSpec()
    method: MethodTable = Field(default_factory=_gpfedrec)
    privacy: PrivacyPlan = Field(default_factory=lambda: PrivacyPlan.named("none"))
    protocol: Protocol = Protocol()
    rounds: int = Field(100, ge=1, le=_MOST)
    seed: int = Field(0, ge=0)
    evaluate_every: int | None = Field(None, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    taps: TapConfig = TapConfig()
    chunk: int | None = Field(None, ge=1, le=_MOST)
    memory_limit_gib: float | None = Field(None, gt=0, allow_inf_nan=False)
    fidelity: Fidelity = "exact"
    device: str = "cpu"
    deterministic: bool = True
    boost: dict[str, float] = Field(default_factory=dict)
    control: Control | None = None
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def method_name(self) -> str:
        """The method's name as it was chosen, with its preset."""
        return str(self.method.get("name", ""))

    def decides(self) -> dict[str, JsonValue]:
        """Everything that decides the result; the processor is no choice, an accelerator's arithmetic is another."""
        fields = self.model_dump(mode="json")
        if self.device == "cpu":
            del fields["device"], fields["deterministic"]
        for name in ("boost", "control"):
            if not fields[name]:
                del fields[name]
        if not self.evaluation.private:
            del fields["evaluation"]
        if not self.protocol.precision:
            del fields["protocol"]["precision"]
        return fields

    def digest(self) -> str:
        """SHA-256 of everything that decides the result: the ledger's name for this run's noise."""
        canonical = json.dumps(self.decides(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def streams(self) -> "Streams":
        """Keys of the simulation, from its seed; those of noise also from everything else that decides its releases.

        How many rounds there are, how they are chunked, watched and evaluated decides no release. What an audit drops
        by inclusion bits does.
        """
        from privfed.federation import Streams

        released = self.model_dump(mode="json", include={"data", "split", "method", "privacy"})
        released["negatives"] = self.protocol.model_dump(mode="json")["negatives"]
        released["dropped"] = [self.taps.inclusion, self.taps.users] if self.taps.inclusion else None
        if self.control is not None:
            released["control"] = self.control
        if self.evaluation.private:
            # Its round follows the last one of training, and would meet the noise of a longer run there.
            released["evaluation"] = [self.evaluation.model_dump(mode="json"), self.rounds]
        return Streams.from_seed(self.seed, json.dumps(released, sort_keys=True))

    def computing(self) -> AbstractContextManager[None]:
        """Make tensors on the run's device. Raises DeviceError where it cannot be used."""
        from privfed.compute.devices import computing_on, usable

        return computing_on(usable(self.device), deterministic=self.deterministic)

    def registered(self) -> "Method":
        """The method. Raises UnknownMethodError when there is none of that name."""
        return method(self.method_name)

    def settings(self) -> "MethodConfig":
        """The method's settings, validated."""
        fields = {key: value for key, value in self.method.items() if key != "name"}
        return configure(self.registered().config, fields)

    def evaluated(self, t: int) -> bool:
        """Whether round `t` is evaluated; the last round always is."""
        every = self.evaluate_every
        if every is None:
            every = 1 if self.protocol.select == "best_valid" else max(1, self.rounds // 10)
        return (t + 1) % every == 0 or t + 1 == self.rounds

    def tapped_rounds(self) -> frozenset[int]:
        """Rounds to tap: the configured ones, or four spread over the run (round 0 of a method that uploads once)."""
        if self.taps.rounds is not None:
            return frozenset(self.taps.rounds)
        if self.registered().traits.uploads_once:
            return frozenset({0})
        return frozenset(max(0, round(self.rounds * share) - 1) for share in (0.25, 0.5, 0.75, 1.0))


def measures_privately(plan: PrivacyPlan) -> bool:
    """Whether quality can be measured under a plan: it bounds a whole user, and noise is added to a sum."""
    mechanism = plan.mechanism
    return mechanism.unbounded_reason is None and mechanism.trust != "local" and mechanism.unit == "user"
