"""`make`: a folder with everything, written whole or not at all.

index.html, dossier.pdf   two plain pages on top, then every answer, the registry's record, ledgers, environment
answers.json              every question with its answer and all its citations
registry.json             the record of the deployments registry
budget.json               heads of all ledgers, and their sums
sbom.cdx.json             installed distributions, as CycloneDX
evidence/                 the files that answers cite, as they were read, but those that name users
manifest.json             SHA-256 of all of these, which is what is signed
"""

import json
import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import privfed
from privfed.dossier.budget import YearlyBudget, yearly_budget
from privfed.dossier.environment import JUNIT, SBOM, bill_of_materials, environment
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation, Datum
from privfed.dossier.gathering import gather
from privfed.dossier.manifest import Manifest, write_manifest
from privfed.dossier.page.pdf import print_pdf
from privfed.dossier.page.render import render
from privfed.dossier.page.summary import first_sentence
from privfed.dossier.questions import QUESTIONS, Answer, Case, Question, Reply, Unknown
from privfed.dossier.reading import read
from privfed.dossier.registry import registry_record

PAGE, PDF, EVIDENCE = "index.html", "dossier.pdf", "evidence"


@dataclass(frozen=True, slots=True)
class Dossier:
    """What was made.

    Attributes:
        folder: where.
        manifest: of it.
        case: what its answers were made from.
        replies: every question with its answer.
        registry: the registry's record.
        sentence: the first one of the page.
        no_pdf: why there is no PDF; None where there is.
    """

    folder: Path
    manifest: Manifest
    case: Case
    replies: list[tuple[Question, Reply]]
    registry: dict[str, Any]
    sentence: str
    no_pdf: str | None


def make(
    source: Path,
    out: Path,
    *,
    setting: str | None = None,
    past: Sequence[Path] = (),
    budget: float | None = None,
    tests: Path | None = None,
    pdf: bool = True,
    now: datetime | None = None,
) -> Dossier:
    """Make a dossier.

    Args:
        source: folder of a run, an audit or a node.
        out: folder of the dossier, new or empty.
        setting: of an audit, as "method:slug", or run of a node.
        past: folders of runs about the same people.
        budget: epsilon that may be spent on them in a year.
        tests: JUnit report of a run of privfed's tests.
        pdf: whether to print it, too.
        now: the date; None takes the clock's.

    Raises:
        DossierError: the source is damaged, or `out` cannot be written.
    """
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise DossierError(f"a budget of epsilon = {budget:g} was given: it is a number above 0")
    _refuse_used(out)
    made = now or datetime.now(UTC)
    evidence = gather(source, setting)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".dossier-", dir=out.parent) as name:
            folder = Path(name) / "made"
            (folder / EVIDENCE).mkdir(parents=True)
            for key, file in evidence.files.items():
                place = folder / EVIDENCE / key
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(file.content)
            bill = folder / SBOM
            _write(bill, materials := bill_of_materials())
            if tests is not None:
                (folder / EVIDENCE / JUNIT).write_bytes(read(tests.parent, tests.name).content)
            stands = Citation(SBOM, "metadata, components", read(folder, SBOM).sha256)
            allowed = None if budget is None else Datum(budget, stands_for_budget(folder, budget))
            case = Case(
                evidence,
                yearly_budget(evidence, past, str(made.year), allowed),
                environment(materials, stands, tests),
            )
            replies = [(question, question.reply(case)) for question in QUESTIONS]
            registry = registry_record(case)
            _write(folder / "answers.json", {"first": first_sentence(case), "answers": _documents(replies)})
            _write(folder / "registry.json", registry)
            _write(folder / "budget.json", _budget(case.budget))
            page = render(case, replies, registry, made.date().isoformat())
            (folder / PAGE).write_text(page, encoding="utf-8")
            no_pdf = print_pdf(folder / PAGE, folder / PDF) if pdf else "no PDF was made, as asked"
            manifest = write_manifest(folder, about=evidence.name, version=privfed.__version__, now=made)
            _refuse_used(out)
            if out.exists():
                out.rmdir()
            shutil.move(folder, out)
    except OSError as error:
        raise DossierError(f"{out} cannot be written ({error.strerror}): choose another --out") from error
    return Dossier(out, manifest, case, replies, registry, first_sentence(case), no_pdf)


def stands_for_budget(folder: Path, budget: float) -> Citation:
    """Where the bound that was given on the command line stands: in a file of its own."""
    _write(folder / EVIDENCE / "budget-given.json", {"max_epsilon_per_year": budget, "given_by": "--budget"})
    file = read(folder / EVIDENCE, "budget-given.json")
    return Citation(file.name, "max_epsilon_per_year", file.sha256)


def _refuse_used(out: Path) -> None:
    if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise DossierError(f"{out} is not empty: choose another --out, as a signed dossier is never written over")


def _documents(replies: list[tuple[Question, Reply]]) -> list[dict[str, Any]]:
    return [
        {
            "id": question.id,
            "source": question.source.name,
            "article": question.article,
            "topic": question.topic,
            "question": question.wording,
        }
        | _document(reply)
        for question, reply in replies
    ]


def _document(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, Unknown):
        return {"to_be_filled_by": reply.by, "why": reply.why}
    assert isinstance(reply, Answer)
    return {"answer": reply.text, "alarm": reply.alarm, "sources": [asdict(one) for one in reply.sources]}


def _budget(budget: YearlyBudget) -> dict[str, Any]:
    return asdict(budget) | {"left": budget.left}


def _write(path: Path, content: Any) -> None:
    text = json.dumps(_finite(content), indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """The same without numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
