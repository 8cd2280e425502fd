"""What a loader made of a source: what it took for what, what it left aside, and what a person should know."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from privfed.data.errors import DataWarning


@dataclass(frozen=True)
class Reading:
    """How a data set was read.

    Attributes:
        recognised: What was taken for what, one phrase for each file or column.
        ignored: What was left aside and why, one phrase each.
        notes: Sentences that a person should see before using the data.
    """

    recognised: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(self.recognised + other.recognised, self.ignored + other.ignored, self.notes + other.notes)

    def announce(self, listener: Callable[[str], None] | None = None) -> None:
        """Give every note to `listener`, or warn where nobody listens."""
        for note in self.notes:
            if listener is None:
                warnings.warn(note, DataWarning, stacklevel=3)
            else:
                listener(note)
