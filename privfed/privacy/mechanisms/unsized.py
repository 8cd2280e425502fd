"""`Unsized`: a mechanism whose noise or clip norm is still open, as somebody asks for who knows an epsilon.

`epsilon` in the place of the noise, no clip norm beside it, or the clip norm `auto`, leave settings open. Where a run
is assembled (`privfed.setup.sizing`) they are chosen for the method, its queries, the rounds, the sampling and the
population, and the mechanism that was asked for takes this one's place. Until then nothing can run: what a guard, the
ledger or a forecast would read here raises.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NoReturn, Self

from pydantic import BaseModel, Field, SerializeAsAny, model_serializer

from privfed.contracts import MethodProfile, NoisySteps, ReleaseKind
from privfed.privacy.configuring import configure
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Event, SchemaSummary
from privfed.privacy.mechanisms.base import Mechanism, Neighbours, Noise, Unit
from privfed.privacy.mechanisms.clipping import CONFIG, FOLLOWED, MOVING_UNIT, AdaptiveClip, Clip
from privfed.privacy.mechanisms.masking import Masking
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise, Target
from privfed.privacy.padding.base import SupportClaim
from privfed.privacy.sampling import Sampling, Trust
from privfed.privacy.wording import number

EPSILON, CLIP_NORM, AUTO = "epsilon", "clip_norm", "auto"
_PLACEHOLDER = 1.0


class UnsizedPlanError(PlanError):
    """Something was asked of a plan whose noise or clip norm has not been chosen yet."""


class _Epsilon(BaseModel):
    """The target alone, so that a bad one is answered in the words of every other setting."""

    model_config = CONFIG
    epsilon: float = Field(gt=0, description="total that no user may exceed in the whole run")


class Unsized(Mechanism):
    """A mechanism with open settings; see the module.

    Attributes:
        template: the mechanism with placeholders in the place of what is open.
        epsilon: total for which noise is sized; None where the noise was given.
        clip_norm_from: who chooses the clip norm.
    """

    preset: ClassVar[str] = "unsized"
    template: SerializeAsAny[Mechanism]
    epsilon: float | None
    clip_norm_from: Literal["given", "default", "auto"]

    @classmethod
    def leaves_open(cls, settings: Mapping[str, Any]) -> bool:
        """Whether these settings of a mechanism leave its noise or its clip norm open."""
        return settings.get(EPSILON) is not None or settings.get(CLIP_NORM) == AUTO

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The mechanism that settings with a target describe.

        Raises:
            PlanError: the target cannot be reached, or stands beside the noise that it decides.
            ValidationError: as for the same settings without a target.
        """
        settings = {key: value for key, value in settings.items() if value is not None}
        epsilon = settings.pop(EPSILON, None)
        member = Mechanism.members.get(str(settings.get("kind")))
        if member is None:
            # Refused, in a sentence that names the kinds there are.
            return cls(template=Mechanism.parse(settings), epsilon=None, clip_norm_from="given")
        if epsilon is not None:
            epsilon = configure(_Epsilon, {EPSILON: epsilon}).epsilon
            if member.noise_setting is None:
                raise PlanError(
                    f"epsilon = {epsilon:g} cannot be reached with {member.preset}, which has no noise that could be "
                    f"sized for it: choose one of {_sizable()}"
                )
            if member.noise_setting in settings:
                raise PlanError(
                    f"epsilon = {epsilon:g} decides {member.noise_setting}, and {member.noise_setting} = "
                    f"{settings[member.noise_setting]!r} was given beside it: leave one of the two out"
                )
            settings[member.noise_setting] = _PLACEHOLDER
        clip: Literal["given", "default", "auto"] = "given"
        if settings.get(CLIP_NORM, AUTO) == AUTO:
            clip = "auto" if CLIP_NORM in settings else "default"
            settings[CLIP_NORM] = _PLACEHOLDER
        unsized = cls(template=Mechanism.parse(settings), epsilon=epsilon, clip_norm_from=clip)
        if epsilon is not None and (reason := unsized.template.unbounded_reason) is not None:
            raise PlanError(f"epsilon = {epsilon:g} cannot be reached with {member.preset}: {reason}")
        if clip == "auto":
            unsized.with_clip_norm(_PLACEHOLDER, _PLACEHOLDER)
        return unsized

    @model_serializer
    def _as_given(self) -> dict[str, Any]:
        # Open settings are written as null, so that these settings laid over older ones leave none of those behind.
        settings = dict.fromkeys(type(self.template).model_fields) | self.template.model_dump(mode="json")
        if self.epsilon is not None:
            settings |= {str(self.template.noise_setting): None, EPSILON: self.epsilon}
        if self.clip_norm_from != "given":
            settings[CLIP_NORM] = AUTO if self.clip_norm_from == "auto" else None
        return settings

    def with_clip_norm(self, norm: float, of_median: float) -> Mechanism:
        if self.clip_norm_from == "given":
            return self.template
        followed = self.template.following_norms(of_median) if self.clip_norm_from == "auto" else {}
        return configure(type(self.template), {**self.template.model_dump(mode="json"), CLIP_NORM: norm, **followed})

    @property
    def target(self) -> Target:
        return Target(self.epsilon, self.clip_norm_from, self.template.clipped)

    # What is known before noise is sized ------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        return self.template.kind

    @property
    def release(self) -> ReleaseKind:
        return self.template.release

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {}

    @property
    def label(self) -> str:
        wanted = [
            *([] if self.epsilon is None else [f"for epsilon {number(self.epsilon)}"]),
            *(["C by the norms of the run"] if self.clip_norm_from == "auto" else []),
        ]
        return f"{self.template.preset} ({', '.join(wanted)})"

    @property
    def unit(self) -> Unit:
        return self.template.unit

    @property
    def neighbours(self) -> Neighbours:
        return self.template.neighbours

    @property
    def trust(self) -> Trust:
        return self.template.trust

    @property
    def unbounded_reason(self) -> str | None:
        return self.template.unbounded_reason

    @property
    def support_claim(self) -> SupportClaim | None:
        return self.template.support_claim

    @property
    def min_clients(self) -> int:
        return self.template.min_clients

    @property
    def protects_integers(self) -> bool:
        return self.template.protects_integers

    @property
    def node_refusal(self) -> str | None:
        return self.template.node_refusal

    @property
    def tier_refusal(self) -> str | None:
        return FOLLOWED if self.clip_norm_from == "auto" else self.template.tier_refusal

    @property
    def account_refusal(self) -> str | None:
        return MOVING_UNIT if self.clip_norm_from == "auto" else self.template.account_refusal

    def refuse_sampling(self, sampling: Sampling) -> None:
        self.template.refuse_sampling(sampling)

    def refuse_cohort(self, max_cohort: int) -> None:
        self.template.refuse_cohort(max_cohort)

    def refusal(self, method: MethodProfile) -> str | None:
        if method.shares_account and self.unbounded_reason is None and self.clip_norm_from == "auto":
            return super().refusal(method)
        return self.template.refusal(method)

    # What nothing may read before -------------------------------------------------------------------------------------

    def _open(self) -> NoReturn:
        raise UnsizedPlanError(
            f"the plan {self.label!r} leaves its noise or clip norm open, and they are chosen where a run is "
            "assembled: take the plan of the assembled run, or give the numbers"
        )

    @property
    def clip(self) -> Clip | None:
        self._open()

    @property
    def adaptive_clip(self) -> AdaptiveClip | None:
        self._open()

    @property
    def noise(self) -> Noise | None:
        self._open()

    @property
    def noisy_steps(self) -> NoisySteps | None:
        self._open()

    @property
    def server_noise_multiplier(self) -> float | None:
        self._open()

    @property
    def masking(self) -> Masking | None:
        # Whether uploads are masked at all is known, and decides what a plan can be combined with.
        return None if self.template.masking is None else self._open()

    @property
    def secret_sharing(self) -> SecretSharing | None:
        return None if self.template.secret_sharing is None else self._open()

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        del schema, max_cohort
        self._open()

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        del target
        self._open()


def _sizable() -> str:
    return ", ".join(other.preset for other in Mechanism.members.values() if other.noise_setting is not None)
