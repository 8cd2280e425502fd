"""A ledger read for good: its chain is verified, and nothing is written, not even where a last line was cut short."""

from privfed.dossier.errors import DossierError
from privfed.dossier.reading import FileRead
from privfed.privacy import Ledger, LedgerError, PlanError, PrivacyPlan
from privfed.privacy.hash_chain import unlink

MAX_POPULATION = 1 << 31


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
        population = header.get("population")
        if type(population) is not int or not 0 < population < MAX_POPULATION:
            raise DossierError(f"{file.name} is about {population!r:.40} users: bring back the file as it was written")
        ledger = Ledger(PrivacyPlan.from_dict(header.get("plan", {})), population, run=str(header.get("run", "")))
        ledger.load(header | {"entries": entries, "head": head})
    except (LedgerError, PlanError) as error:
        raise DossierError(f"{file.name}: {error}") from error
    return ledger
