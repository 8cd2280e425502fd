"""`SharedSum`: additive shares between aggregators that do not collude, with the rows that uploads name padded."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import MethodProfile, ReleaseKind, Schema
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Mechanism
from privfed.privacy.mechanisms.clipping import Clip, L2ClipNorm
from privfed.privacy.mechanisms.masking import MIN_SUMMED
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from privfed.privacy.padding.base import SupportClaim
from privfed.privacy.padding.full_support import FullSupport
from privfed.privacy.padding.registry import AnyPadding
from privfed.privacy.sampling import Trust

_SEEDED_SHARES = (
    "This is a simulation: shares follow from the run's seed and padding from a seed of its own, so whoever holds "
    "these reads every upload and tells padding from true rows. A deployment draws its keys from the operating system."
)


class SharedSum(Mechanism):
    """Additive shares between aggregators that do not collude: values are hidden, rows as far as padding hides them.

    Clients send tables row by row, so an upload is as long as the history and its padding, not as the catalogue; rows
    with few clients are not opened. Integer blocks travel exactly. Real ones need a clip, for the room they take.
    """

    preset: ClassVar[str] = "shared-sum"
    release: ClassVar[ReleaseKind] = "total"
    kind: Literal["shared_sum"] = "shared_sum"
    aggregators: Literal[2, 3] = Field(default=2, description="how many hold shares; one of them must be honest")
    padding: AnyPadding = Field(
        default=FullSupport(), description="which rows of a table a client sends besides its own"
    )
    min_cohort: int = Field(
        default=MIN_SUMMED,
        ge=2,
        description="clients without which a row, or a round, is not opened",
    )
    bits: Literal[32, 64] = Field(default=64, description="width of a ring element: 32 or 64")
    clip_norm: L2ClipNorm | None = Field(
        default=None, description="the largest L2 norm of an upload's real blocks; integers need none"
    )

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"shared-sum": cls(clip_norm=1.0)}

    @property
    def clip(self) -> Clip | None:
        return None if self.clip_norm is None else Clip(self.clip_norm, 2)

    @property
    def secret_sharing(self) -> SecretSharing:
        return SecretSharing(self.aggregators, self.bits, self.min_cohort, self.padding, self.clip_norm)

    @property
    def protects_integers(self) -> bool:
        return True

    @property
    def trust(self) -> Trust:
        return "distributed"

    @property
    def label(self) -> str:
        return f"shares between {self.aggregators} ({self.padding.label}, at least {self.min_cohort} clients a row)"

    @property
    def min_clients(self) -> int:
        return self.min_cohort

    @property
    def unbounded_reason(self) -> str | None:
        return (
            "secret sharing hides single uploads but their exact sums are opened, and a sum without noise bounds "
            "nothing about any one of them"
        )

    @property
    def support_claim(self) -> SupportClaim:
        return self.padding.claim

    def unbounded_statements(self, max_cohort: int, *, seeded: bool) -> list[str]:
        del max_cohort
        return [
            f"What is hidden are the values of single uploads, as long as one of {self.aggregators} aggregators "
            f"keeps its shares to itself. Sums are opened row by row where {self.min_cohort} clients or more send "
            "the row, with a value or without; clients who pool what they know subtract their own. Where a behaviour "
            "is public, its clients count, although everybody knows who they are.",
            "Aggregators see which rows each client names, who takes part in every query, how many clients send each "
            "row, and so which rows are suppressed.",
            "Sums of rounds whose clients differ in few of them can be subtracted: where the others' values stand "
            "still, what is left is about those few, whatever number of clients a sum needs at least. Many exact sums "
            "over the same few clients may be solved together for what each of them sent.",
            self.padding.claim.sentence,
            *([_SEEDED_SHARES] if seeded else []),
        ]

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float], upload_bits: int | None = None) -> float:
        del upload_bits
        return self.secret_sharing.upload_bytes(schema, sent_rows)

    def refuse_cohort(self, max_cohort: int) -> None:
        if self.min_clients > max_cohort:
            raise PlanError(
                f"min_cohort = {self.min_clients} needs rounds of as many clients, and a round can have "
                f"{max_cohort}, so none would ever be released: use at most {max_cohort}"
            )

    def refusal(self, method: MethodProfile) -> str | None:
        if method.whole_tables and self.padding.sampler is not None:
            return "it sends whole tables, so there are no rows to pad: choose padding.kind = 'full_support'"
        return super().refusal(method)

    @property
    def node_refusal(self) -> str | None:
        return (
            "shares between aggregators need aggregators that see which rows each single client sends, and nodes "
            "add up their users before anything leaves: use secure_sum, which sums the same elements"
        )
