"""One run of a node, by the node's own ledger: what its users gave, whatever a server says of the rest.

No key is read, nor the record of a run, which holds secrets of its masked sums. Method, settings and quality are the
server's to say and stand in no ledger, so a dossier of a node leaves them to the controller.
"""

import re
from pathlib import Path

from privfed.audit.report.records import GuaranteeRow
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import MU_OF_NOTHING, MU_OF_OTHERS, Datum, Evidence, LedgerHead, cited
from privfed.dossier.ledgers import read_ledger
from privfed.dossier.reading import FileRead, read, read_if_there
from privfed.dossier.sources.run import date_of, plan_words, releases_of
from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import FILE as FEDERATION
from privfed.engines.nodes.policy import FILE as POLICY
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import BOOK, Book
from privfed.privacy import Ledger, PlanError
from privfed.privacy.gaussian_dp import GaussianDp

STATE_BOOK = f"state/{BOOK}"
_LEDGER = re.compile(r"ledger-([A-Za-z0-9._-]{1,100})\.jsonl")


def is_node(folder: Path) -> bool:
    """Whether a folder is a node's: it has a book of its runs, or ledgers of them."""
    return (folder / STATE_BOOK).exists() or bool(ledger_names(folder))


def ledger_names(folder: Path) -> dict[str, str]:
    """Run -> name of its ledger, of all that a node's folder has."""
    if not folder.is_dir():
        return {}
    return {found[1]: found[0] for path in sorted(folder.iterdir()) if (found := _LEDGER.fullmatch(path.name))}


def read_book(folder: Path) -> tuple[Book, FileRead] | None:
    """What a node knows of all its runs; None where it keeps no book.

    Raises:
        DossierError: it is damaged.
    """
    file = read_if_there(folder, STATE_BOOK)
    return None if file is None else (file.record(Book), file)


def node_ledger(folder: Path, run: str, book: Book | None) -> tuple[Ledger, FileRead]:
    """A node's ledger of a run, compared with its book.

    Raises:
        DossierError: it is damaged, or the book has seen other entries.
    """
    file = read(folder, ledger_names(folder)[run])
    ledger = read_ledger(file)
    active = None if book is None else book.active.get(run)
    if active is not None and active.entries:
        if len(ledger.entries) < active.entries:
            raise DossierError(f"{file.name} has lost entries that the node's book has seen: restore it from a copy")
        if len(ledger.entries) == active.entries and ledger.head != active.head:
            raise DossierError(f"{file.name} is not the ledger that the node's book has seen: restore it from a copy")
    return ledger, file


def node_evidence(folder: Path, run: str | None) -> Evidence:
    """What a node's folder says of one run.

    Args:
        folder: of the node.
        run: its name; None where there is a single one.

    Raises:
        DossierError: something is damaged, or there is no such run.
    """
    names = ledger_names(folder)
    if run is None and len(names) != 1:
        raise DossierError(
            f"{folder} has ledgers of {len(names)} runs and a dossier is about one: choose with --setting among "
            f"{', '.join(names) or 'none'}"
        )
    chosen = run or next(iter(names))
    if chosen not in names:
        raise DossierError(f"{folder} has no ledger of the run {chosen[:100]!r}: choose among {', '.join(names)}")
    book = read_book(folder)
    ledger, file = node_ledger(folder, chosen, None if book is None else book[0])
    claim = GuaranteeRow.model_validate(ledger.guarantee(seeded=False).model_dump())
    gaussian = GaussianDp.from_composition(ledger.composition())
    policy, federation = read_if_there(folder, POLICY), read_if_there(folder, FEDERATION)
    source = cited(file, "entries", copied=False)
    files = {POLICY: policy, FEDERATION: federation, STATE_BOOK: None if book is None else book[1]}
    rules = None if policy is None else _policy(folder)
    return Evidence(
        kind="node",
        folder=folder,
        name=f"run {chosen[:12]} of the node in {folder.name}",
        files={name: one for name, one in files.items() if one is not None},
        when=Datum(date_of(file), cited(file, "time of the last change", copied=False)),
        plan=Datum(plan_words(ledger.plan), cited(file, "line 1, plan", copied=False)),
        settings=Datum(ledger.plan.to_dict(), cited(file, "line 1, plan", copied=False)),
        guarantee=Datum(claim, source),
        mu=None if gaussian is None else Datum(gaussian.mu, source),
        mu_missing="" if gaussian else MU_OF_NOTHING if not claim.finite else MU_OF_OTHERS,
        ledger=Datum(LedgerHead(ledger.head, len(ledger.entries), ledger.population), source),
        releases=Datum(releases_of(ledger), source),
        randomness=None if policy is None or rules is None else _randomness(rules, policy),
        policy=None
        if policy is None or rules is None
        else Datum(rules.model_dump(mode="json"), cited(policy, "policy")),
    )


def _policy(folder: Path) -> Policy:
    try:
        return Policy.read(folder / POLICY)
    except (StateError, PlanError) as error:
        raise DossierError(f"{folder / POLICY} cannot be read: {error}") from error


def _randomness(policy: Policy, file: FileRead) -> Datum[str]:
    said = (
        "The policy lets keys of users follow from a seed that the server holds: who holds it can take the noise off"
        if policy.allow_simulation
        else "Keys of users follow from a secret that the node drew from the operating system, and no seed of a server "
        "is accepted"
    )
    return Datum(said, cited(file, "policy.allow_simulation"))
