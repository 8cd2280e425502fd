"""A ledger read for good: its chain is verified, and nothing is written, not even where a last line was cut short."""

from collections.abc import Mapping
from typing import Any

from privfed.dossier.errors import DossierError
from privfed.dossier.reading import FileRead
from privfed.privacy import Ledger, LedgerError, PlanError, PrivacyPlan
from privfed.privacy.hash_chain import unlink

MAX_POPULATION = 1 << 27
"""Users that a ledger may be about, before anything is counted for each of them."""


def read_ledger(file: FileRead) -> Ledger:
    """The ledger in a file, in memory.

    Raises:
        DossierError: it is damaged, edited, or of another format.
    """
    whole, newline, _ = file.content.rpartition(b"\n")
    lines = whole.decode("utf-8", errors="replace").split("\n") if newline else []
    if not lines:
        raise DossierError(f"{file.name} is empty: no guarantee can be honest without the ledger")
    try:
        header, head = unlink(None, lines[0], f"{file.name}, line 1")
        entries = []
        for number, line in enumerate(lines[1:], start=2):
            entry, head = unlink(head, line, f"{file.name}, line {number}")
            entries.append(entry)
        population = _population(header, file.name)
        ledger = Ledger(PrivacyPlan.from_dict(header.get("plan", {})), population, run=str(header.get("run", "")))
        ledger.load(header | {"entries": entries, "head": head})
    except DossierError:
        raise
    except (LedgerError, PlanError) as error:
        raise DossierError(f"{file.name}: {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DossierError(
            f"{file.name} is no ledger ({type(error).__name__}): bring back the file as it was written"
        ) from error
    return ledger


def _population(header: Mapping[str, Any], name: str) -> int:
    """The users that a ledger is about, bounded before anything is counted for each of them."""
    found = header.get("population")
    if type(found) is int and 0 < found < MAX_POPULATION:
        return found
    raise DossierError(f"{name} is about {found!r:.40} users: bring back the file as it was written")
