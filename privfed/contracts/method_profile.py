"""What a privacy mechanism has to know of a method to say whether the two go together."""

from dataclasses import dataclass

from privfed.contracts.simulation import ReleaseKind


@dataclass(frozen=True, slots=True)
class MethodProfile:
    """The properties of a method, as it is set, on which a mechanism's refusals depend.

    Attributes:
        release: what its server needs: every upload under a pseudonym, or only sums.
        reads: what its server learns by design, as a noun phrase.
        integers: whether all that is uploaded are whole numbers, which no clip or noise covers.
        interaction_level: whether its training steps can bound and noise the gradient of every single interaction.
        whole_tables: whether clients upload whole tables, and not the rows of their own items.
        shares_account: whether its releases share an account of what leaves each device.
        cross_user_dependence: how one user's data decide over what other users upload; None where they do not.
    """

    release: ReleaseKind
    reads: str
    integers: bool = False
    interaction_level: bool = False
    whole_tables: bool = False
    shares_account: bool = False
    cross_user_dependence: str | None = None
