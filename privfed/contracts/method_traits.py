"""What a privacy plan must know of a method before it accepts a run; needs no torch."""

from dataclasses import dataclass
from typing import Literal

from privfed.contracts.simulation import ReleaseKind


@dataclass(frozen=True, slots=True)
class MethodTraits:
    """Fixed properties of a method, whatever its settings.

    Attributes:
        release: what the server needs: every upload under a pseudonym, or only sums.
        upload: what a client sends: named `rows` of a table, whole (`dense`) tables, or `counts`.
        integers: whether all uploads are whole numbers, which no clip or noise protects.
        interaction_level: whether every step of the clients can train as `Call.noisy_steps` says, with a bound and
            noise for single interactions.
        public_target: whether the problem declares training items of the target behaviour public, so that the server
            has them and only examinations are private.
        uploads_once: whether clients are queried in the first round only.
        shares_account: whether its releases share an account of what leaves each device (`Block.refreshes`).
    """

    release: ReleaseKind
    upload: Literal["rows", "dense", "counts"]
    integers: bool = False
    interaction_level: bool = False
    public_target: bool = False
    uploads_once: bool = False
    shares_account: bool = False
