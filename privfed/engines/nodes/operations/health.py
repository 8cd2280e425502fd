"""Whether a process is healthy, as `/health` says it: a code for machines, and nothing that only its owner may know."""

import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_PROBE = bytes(4096)


class HealthCode(StrEnum):
    """Why a process is not healthy; the log says more, to those who may read it."""

    FOLDER_NOT_WRITABLE = "folder_not_writable"
    LEDGER_REFUSED = "ledger_refused"
    STATE_REFUSED = "state_refused"
    ROLLED_BACK = "rolled_back"
    NO_ROUND_COMPLETED = "no_round_completed"


@dataclass(frozen=True, slots=True)
class Health:
    """What `/health` answers.

    Attributes:
        role: node or server.
        reason: why it is not healthy; None where it is.
        numbers: counts that help to tell a process that works from one that only lives.
    """

    role: str
    reason: HealthCode | None
    numbers: dict[str, int | float]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason is None

    def document(self) -> dict[str, object]:
        """As JSON has it."""
        status = {"status": "ok"} if self.healthy else {"status": "failing", "reason": self.reason}
        return {**status, "role": self.role, **self.numbers}


def writable(folder: Path) -> bool:
    """Whether a file of a few kilobytes can be written in a folder now: rights, a read-only mount, a full disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_PROBE)
            file.flush()
    except OSError:
        return False
    return True
