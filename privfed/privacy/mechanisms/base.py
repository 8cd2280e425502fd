"""The interface of a privacy mechanism: everything that guards, ledger, reports, audit and refusals ask of one.

A plan is not a free product of fields: it names one mechanism, and trust, neighbours, noise scale and claims follow
from that. Each file of this package holds one: its settings, its event for the ledger, the sentences of its guarantee,
its forecast of bytes and noise, and what it refuses. To add one, write a file with a subclass of `Mechanism` and
register it (`privfed.privacy.mechanisms.registry`); nothing outside this package asks which class a mechanism is of.

A mechanism says where it acts by what it has, each None where it has none:

| property | who acts | on what |
|---|---|---|
| `clip` | the device | its upload |
| `noise` | the device | its upload |
| `noisy_steps` | the device | the steps of its local training |
| `server_noise_multiplier`, `adaptive_clip` | the server | the sum of clipped uploads |
| `masking`, and `noise_shares` in it | the devices together | a sum in a ring that only all of them open |
| `secret_sharing` | devices and aggregators | sums of shares, row by row |

Mechanisms that cannot give a finite epsilon are part of the table on purpose. They are what papers publish, and a
report has to be able to run them and say plainly that epsilon is infinite, and why.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import Clipped, MethodProfile, NoisySteps, ReleaseKind, Schema
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Event, Gaussian, SchemaSummary, Shares, Unbounded
from privfed.privacy.mechanisms.clipping import CONFIG, AdaptiveClip, Clip
from privfed.privacy.mechanisms.masking import Masking, NoiseShares
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise, Target
from privfed.privacy.padding.base import SupportClaim
from privfed.privacy.registry import Family
from privfed.privacy.sampling import Sampling, Trust
from privfed.privacy.upload_bits import numbers_bytes

Law = Literal["laplace", "gaussian"]
Coordinates = Literal["all", "touched"]
Neighbours = Literal["replace_one", "add_or_remove_one", "zero_out_one"]
Unit = Literal["user", "interaction"]

ClipNorm = Annotated[float, Field(gt=0, description="the largest norm an upload may have after clipping")]

TOUCHED_ROWS_ONLY = (
    "only the rows a client touched carry noise: the untouched rows stay exactly as they were, which shows "
    "without any doubt which rows were touched"
)


@dataclass(frozen=True, slots=True)
class Noise:
    """Independent noise per coordinate; `scale` is Laplace's scale or Gaussian's standard deviation."""

    law: Law
    scale: float
    coordinates: Coordinates

    @property
    def deviation(self) -> float:
        """Standard deviation of a coordinate."""
        return self.scale * (math.sqrt(2) if self.law == "laplace" else 1.0)


class Mechanism(Family):
    """What happens to an upload before it is released.

    Attributes:
        preset: name on the command line.
        preset_fields: settings that the preset has unless told otherwise.
        noise_setting: setting that `size_noise` finds, which a plan may leave out and give `epsilon` instead; None
            where there is none.
        noise_falls: whether there is less noise the larger that setting is.
        protects: whether it does anything to an upload, or to what uploads are made of or seen as.
        clipped: what its clip norm bounds, by which a method's default is chosen; None where nothing is clipped.
    """

    model_config = CONFIG
    members: ClassVar[dict[str, type[Any]]] = {}
    preset: ClassVar[str]
    preset_fields: ClassVar[Mapping[str, Any]] = {}
    noise_setting: ClassVar[str | None] = None
    noise_falls: ClassVar[bool] = False
    protects: ClassVar[bool] = True
    clipped: ClassVar[Clipped | None] = None

    if TYPE_CHECKING:
        # A class or a setting gives these; declared at run time they would be settings of every mechanism.
        @property
        def kind(self) -> str:
            """Word that tells mechanisms apart in files."""

        @property
        def release(self) -> ReleaseKind:
            """What the server receives: each upload, or only their sum."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Mapping[str, Self]:
        """Ready examples, by the words that name them on the command line: what tables of compatibility try."""

    # What guards do ---------------------------------------------------------------------------------------------------

    @property
    def clip(self) -> Clip | None:
        """How an upload is clipped on the device."""
        return None

    @property
    def adaptive_clip(self) -> AdaptiveClip | None:
        """How the server moves the clip norm from round to round; None where it is fixed."""
        return None

    @property
    def noise(self) -> Noise | None:
        """The noise that each upload gets on the device."""
        return None

    @property
    def noisy_steps(self) -> NoisySteps | None:
        """The noise inside local training; None where devices train as they like and the upload is protected."""
        return None

    @property
    def server_noise_multiplier(self) -> float | None:
        """Standard deviation, over the clip norm, of Gaussian noise that the server adds to the sum."""
        return None

    @property
    def masking(self) -> Masking | None:
        """How uploads become elements of a ring whose masked sum is opened; None where they are not masked."""
        return None

    @property
    def secret_sharing(self) -> SecretSharing | None:
        """How uploads are shared between aggregators; None where they are not."""
        return None

    @property
    def min_clients(self) -> int:
        """Number of clients without which a sum is not opened; 0 where any number will do."""
        return 0

    @property
    def noise_shares(self) -> NoiseShares | None:
        """The share of integer noise that each client adds inside a masked sum."""
        return None if self.masking is None else self.masking.noise

    @property
    def adds_noise(self) -> bool:
        """Whether what is released carries noise that a guard adds: on uploads, on their sum, or in shares."""
        return self.noise is not None or self.server_noise_multiplier is not None or self.noise_shares is not None

    @property
    def dense(self) -> bool:
        """Whether noise covers every coordinate of an upload, so that nothing of it can be left out."""
        return self.noisy_steps is not None or (self.noise is not None and self.noise.coordinates == "all")

    @property
    def target(self) -> Target | None:
        """What settings that are still open are chosen by; None where all are given, as in every plan that runs."""
        return None

    def with_clip_norm(self, norm: float, of_median: float) -> "Mechanism":
        """The same with this clip norm where it is open, and a placeholder for its noise where that is open.

        Args:
            norm: fixed, or where a norm that follows those of the run begins.
            of_median: over the median norm, where it follows.

        Raises:
            PlanError: the mechanism cannot follow norms, or does not take this one.
        """
        del norm, of_median
        return self

    # What is claimed --------------------------------------------------------------------------------------------------

    @property
    def unit(self) -> Unit:
        """Whose data a guarantee is about: everything one user uploads, unless said otherwise."""
        return "user"

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds a guarantee compares: one user's upload replaced by any other, unless said otherwise."""
        return "replace_one"

    @property
    def trust(self) -> Trust:
        """Whom the guarantee asks to trust; `none` where there is no guarantee that could."""
        return "none"

    @property
    @abstractmethod
    def label(self) -> str:
        """Short human name for tables."""

    @property
    @abstractmethod
    def unbounded_reason(self) -> str | None:
        """Why epsilon is infinite, or None where it is finite."""

    @property
    def support_claim(self) -> SupportClaim | None:
        """What the rows that uploads name say about single items; None where no rows are seen by themselves."""
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        """The event that a query of real blocks is for the ledger, of a mechanism that bounds something.

        It reads the noise that guards really add and the clip that they really apply, not an epsilon that someone asked
        for.

        Args:
            schema: summary of the query's blocks.
            max_cohort: number of clients that a round can have, for whose sum a ring must have room.
        """
        del schema, max_cohort
        return Unbounded(reason=f"no accounting is known for the mechanism {self.kind}")

    @property
    def tier_refusal(self) -> str | None:
        """Why people cannot choose budgets of their own under it, as a clause after a colon; None where they can."""
        return "it adds no Gaussian noise to a sum of clipped uploads: choose central-gaussian or distributed-gaussian"

    def weighted_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Event:
        """The event of `event` for somebody whose clipped upload is multiplied by `weight`, in (0, 1].

        Never less than what the rounding of noised sums makes of so short an upload.
        """
        del schema, max_cohort, weight
        return Unbounded(reason=f"no accounting of weighted uploads is known for the mechanism {self.kind}")

    @property
    def account_refusal(self) -> str | None:
        """Why several releases cannot share one account under it, as a clause after a colon; None where they can."""
        return "it adds no Gaussian noise to a sum of clipped uploads: choose central-gaussian or distributed-gaussian"

    def account_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Gaussian | Shares:
        """What all `schema.refreshes` releases of an account are together, for somebody of this weight.

        Given what was released before, two worlds differ in release t by a vector u_t, and devices see to it that the
        squared norms of all u_t add up to the squared bound of a single query, surely. As divergences of independent
        noise add up and depend on |u_t|^2 alone, it is one release whose vector is all u_t, one after the other.
        """
        del schema, max_cohort, weight
        raise PlanError(f"no accounts are known for the mechanism {self.kind}")

    # What its readers are told ----------------------------------------------------------------------------------------

    def requirements(self) -> list[str]:
        """What devices and server have to do for epsilon to be true."""
        return []

    def unit_statements(self, epsilon: float) -> list[str]:
        """What has to be said of the unit of a guarantee, before all else."""
        del epsilon
        return []

    def composition_statements(self) -> list[str]:
        """What has to be said of one upload, next to the epsilon of all."""
        return []

    def unbounded_statements(self, max_cohort: int, *, seeded: bool) -> list[str]:
        """What is hidden and shown where epsilon is infinite.

        Args:
            max_cohort: number of clients that a round can have.
            seeded: whether randomness follows from a seed that someone holds.
        """
        del max_cohort, seeded
        return []

    # What it will cost ------------------------------------------------------------------------------------------------

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float], upload_bits: int | None = None) -> float:
        """Bytes of one client's upload in one query.

        Args:
            schema: blocks of the query.
            sent_rows: for tables that are sent row by row, number of rows that a client sends; others are sent whole.
            upload_bits: bits of a number, where the plan rounds uploads.
        """
        return numbers_bytes(schema, {} if self.dense else sent_rows, upload_bits)

    def sum_deviation(self, clients: float) -> float:
        """Standard deviation of the noise on every weighted coordinate of a sum of so many uploads."""
        return 0.0 if self.noise is None else self.noise.deviation * math.sqrt(clients)

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        """Settings with which no user exceeds the target.

        Raises:
            PlanError: something is missing that the size depends on.
            NotImplementedError: this mechanism's noise cannot be sized.
        """
        raise NotImplementedError

    def following_norms(self, of_median: float) -> Mapping[str, Any]:
        """Settings with which the clip norm follows the norms of a run, for a stated part of the budget.

        Args:
            of_median: the clip norm over the median norm.

        Raises:
            PlanError: nobody could count them under noise.
        """
        del of_median
        raise PlanError(
            f"clip_norm = 'auto' follows a noisy count of a trusted server, which {self.preset} does not have: give a "
            "clip_norm, or leave it out for the method's default"
        )

    # What it refuses --------------------------------------------------------------------------------------------------

    @property
    def protects_integers(self) -> bool:
        """Whether uploads of whole numbers get all of this protection: clip and noise act on real blocks only."""
        return False

    def refuse_sampling(self, sampling: Sampling) -> None:
        """Refuse a sampling rule that this mechanism cannot be accounted with.

        Raises:
            PlanError: it does not fit, and why.
        """

    def refuse_cohort(self, max_cohort: int) -> None:
        """Refuse rounds of at most so many clients.

        Raises:
            PlanError: none of them would ever be opened.
        """

    def refusal(self, method: MethodProfile) -> str | None:
        """Why a method cannot run behind this mechanism, as a clause after a colon; None where it can."""
        if method.release == "individual" and self.release == "total":
            return f"its server needs {method.reads}, and would see only a sum"
        if method.integers and not self.protects_integers:
            return (
                "its uploads are whole numbers that have to arrive exactly, which clip and noise would leave as they "
                "are: choose none, secure-sum or shared-sum"
            )
        if method.cross_user_dependence is not None and self.unbounded_reason is None:
            return f"it bounds what a user's own upload changes: {method.cross_user_dependence}"
        if method.shares_account and self.unbounded_reason is None and self.account_refusal is not None:
            return f"its releases share one account, which this mechanism cannot keep, as {self.account_refusal}"
        return None

    @property
    def node_refusal(self) -> str | None:
        """Why nodes, which add up their users' uploads before anything leaves, cannot run it; None where they can."""
        return None

    # How it is audited ------------------------------------------------------------------------------------------------

    @property
    def noise_law(self) -> Law | None:
        """Law of the noise on uploads or sums; None where there is none, and where it only adds up from shares."""
        if self.noise is not None:
            return self.noise.law
        return None if self.server_noise_multiplier is None else "gaussian"

    @property
    def noise_over_clip(self) -> float | None:
        """Scale of the noise over the clip norm, whoever adds it; None without noise or without a clip."""
        return None if self.noise is None or self.clip is None else self.noise.scale / self.clip.norm
