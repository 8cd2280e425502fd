"""`privfed dossier`: a folder that a data protection officer can file, sign and verify."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import options
from privfed.cli.failures import CONTRADICTED, CommandError
from privfed.cli.public_keys import public_key
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.dossier.signature import Role

app = typer.Typer(
    help="A folder about a run, an audit or a node, for a data protection officer to file: made, signed, verified.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of 'dossier make'.", show_default=False)]


@app.command(epilog="Example: privfed dossier make runs/private-gram --out dossier --budget 8")
def make(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run, an audit or a node.", show_default=False)],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write it, new or empty.")] = Path(
        "dossier"
    ),
    setting: Annotated[
        str | None,
        typer.Option(
            "--setting",
            metavar="NAME",
            help="Which setting of an audit (METHOD:PLAN, as in its list), or which run of a node.",
            show_default="the only one",
        ),
    ] = None,
    past: Annotated[
        list[Path] | None,
        typer.Option(
            "--past",
            metavar="FOLDER",
            help="Runs about the same people whose releases were published: a run, a node, or a folder of runs. May be "
            "given several times.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="E",
            help="Epsilon that may be spent on these people in a year; of a node, its policy says it.",
            show_default=False,
        ),
    ] = None,
    tests: Annotated[
        Path | None,
        typer.Option(
            "--tests",
            metavar="FILE",
            help="What 'pytest --junitxml FILE' wrote of privfed's tests.",
            show_default=False,
        ),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf/--no-pdf", help="Print it by Chromium, too, where that is.")] = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Gather what FOLDER recorded into answers that cite it: registry record, NIST SP 800-226, EDPB 28/2024, DPIA.

    What no record says is refused by name: "to be filled by: controller". A run that guarantees nothing gets a dossier,
    too, whose first sentence says so.
    """
    from privfed.dossier.making import PAGE, PDF
    from privfed.dossier.making import make as made_of
    from privfed.dossier.questions import Answer

    screen = Screen(as_json, quiet)
    with screen.working("Gathering"):
        made = made_of(source, out, setting=setting, past=past or (), budget=budget, tests=tests, pdf=pdf)
    answers = [reply for _, reply in made.replies if isinstance(reply, Answer)]
    bad = sum(reply.alarm for reply in answers)
    fields = made.registry["fields"]
    filled = sum(bool(field["filled"]) for field in fields)
    screen.document(
        {
            "directory": str(out),
            "page": str(out / PAGE),
            "pdf": None if made.no_pdf else str(out / PDF),
            "about": made.manifest.about,
            "first": made.sentence,
            "questions": len(made.replies),
            "answered": len(answers),
            "alarms": bad,
            "registry_fields": len(fields),
            "registry_filled": filled,
            "left": made.case.budget.left,
            "files": dict(made.manifest.files),
        }
    )
    screen.result(made.sentence)
    screen.explain(
        f"{len(answers)} of {len(made.replies)} questions are answered, {bad} of them with bad news; {filled} of "
        f"{len(fields)} fields of the registry are filled. Who has to fill the rest stands on the second page.",
        *([] if made.no_pdf is None else [f"Note: {made.no_pdf}."]),
    )
    screen.result(f"The page: {out / PAGE}")
    screen.explain(f"Next: read it; privfed dossier sign {out} --role engineer --key FILE")


@app.command(epilog="Example: privfed dossier sign dossier --role officer --key officer/identity.key")
def sign(
    folder: Folder,
    *,
    role: Annotated[str, typer.Option("--role", metavar="engineer|officer", help="As what.", show_default=False)],
    key: Annotated[
        Path,
        typer.Option("--key", metavar="FILE", help="An identity.key of 'federation keys'.", show_default=False),
    ],
    days: Annotated[int, typer.Option("--days", metavar="N", help="Until the signature expires.")] = 365,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sign the manifest of a dossier in a role, with date and expiry; what was changed since then is not signed."""
    from privfed.dossier import signature
    from privfed.engines.nodes.party import read_identity

    signed = signature.sign(folder, _role(role), read_identity(key), days=days)
    screen = Screen(as_json, quiet)
    screen.document({"directory": str(folder), **signed.model_dump(mode="json")})
    screen.result(f"{folder} is signed by the {signed.role} until {signed.expires:%Y-%m-%d}")
    screen.explain(f"Others verify it with {signed.public}, which they have from you and not from this folder.")


@app.command(epilog="Example: privfed dossier verify dossier --key engineer=engineer.pub --key officer=officer.pub")
def verify(
    folder: Folder,
    *,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="ROLE=KEY",
            help="A role that has to have signed, with its public key or the file of it. May be given several times.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check that a dossier is what was signed, by whom, and that no signature has expired.

    The exit code is 1 where a file was changed, added or is missing, or a signature is missing, of another key or role,
    or out of date; each is told by name.
    """
    from privfed.dossier.signature import ROLES, problems_of

    given: dict[Role, bytes] = {}
    for text in keys or ():
        name, equals, key = text.partition("=")
        if not equals or _role(name) in given:
            raise CommandError(f"--key {text[:80]!r} was given: write a role once, as in --key officer=officer.pub")
        given[_role(name)] = public_key(key)
    problems = problems_of(folder, given)
    screen = Screen(as_json, quiet)
    screen.document({"directory": str(folder), "verified": not problems, "roles": list(given), "problems": problems})
    for problem in problems:
        screen.result(f"Not verified: {problem}.")
    if problems:
        raise typer.Exit(CONTRADICTED)
    screen.result(f"{folder} is what the {' and the '.join(given)} signed")
    if unasked := [role for role in ROLES if role not in given]:
        screen.explain(f"Not checked, for want of a key: the {' and the '.join(unasked)}.")


def _role(name: str) -> "Role":
    from privfed.dossier.signature import ROLES

    for role in ROLES:
        if role == name:
            return role
    raise CommandError(f"the role {name[:40]!r} is not known: use one of {', '.join(ROLES)}")
