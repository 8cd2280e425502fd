"""`privfed federation`: keys, signatures and versions of the file that says who takes part."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import device_federation, options
from privfed.cli.failures import CommandError
from privfed.cli.public_keys import public_key
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.engines.nodes.federation_file import FederationFile
    from secure_agg.masking import Identity

app = typer.Typer(
    help="Federations of organisations: keys, the signed file of who takes part, and its next versions.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The operator's, with federation.toml.", show_default=False)
]
OperatorKey = Annotated[
    Path,
    typer.Option("--key", metavar="FILE", help="The operator's identity.key.", show_default=False),
]


@app.command(epilog="Example: privfed federation keys alpha")
def keys(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to make them, new or without keys.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the keys of one party (operator, server or organisation): identity.key stays, identity.pub is for others."""
    from privfed.engines.nodes.administration import PUBLIC_FILE, make_identity

    screen = Screen(as_json, quiet)
    public = make_identity(folder).public.hex()
    screen.document({"folder": str(folder), "public": public})
    screen.result(public)
    screen.explain(f"It is in {folder / PUBLIC_FILE}, too. identity.key beside it never leaves this party.")


@app.command(epilog="Example: privfed federation sign federation --key operator/identity.key")
def sign(folder: Folder, *, key: OperatorKey, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Sign the federation.toml of FOLDER; what was signed never changes, so every change needs a higher version."""
    from privfed.engines.nodes import administration

    _say(folder, administration.sign(_with_federation(folder), _operator(key)), Screen(as_json, quiet))


@app.command(epilog="Example: privfed federation verify alpha --operator operator.pub")
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A party's, or what the operator sent.", show_default=False)
    ],
    *,
    operator: options.PublicKey = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check the signature of a federation, and show who takes part; with --operator also who signed."""
    held = _with_federation(folder)

    from privfed.engines.nodes.federation_file import read_federation

    federation = read_federation(held, None if operator is None else public_key(operator))
    _say(folder, federation, Screen(as_json, quiet), members=True)


@app.command(epilog="Example: privfed federation rotate federation alpha alpha.pub --key operator/identity.key")
def rotate(
    folder: Folder,
    party: Annotated[
        str, typer.Argument(metavar="PARTY", help="Name of an organisation, server or helper.", show_default=False)
    ],
    public: Annotated[
        str, typer.Argument(metavar="KEY", help="Its new public key, or the file of it.", show_default=False)
    ],
    *,
    key: OperatorKey,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sign the next version of a federation, in which PARTY has a new key; comments in the file are lost."""
    from privfed.engines.nodes import administration

    signed = administration.rotate(_with_federation(folder), party, public_key(public), _operator(key))
    _say(folder, signed, Screen(as_json, quiet))


@app.command(epilog="Example: privfed federation revoke federation alpha --key operator/identity.key")
def revoke(
    folder: Folder,
    organisation: Annotated[str, typer.Argument(metavar="ORGANISATION", help="Its name.", show_default=False)],
    *,
    key: OperatorKey,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Sign the next version of a federation, in which ORGANISATION takes no part; comments in the file are lost."""
    from privfed.engines.nodes import administration

    signed = administration.revoke(_with_federation(folder), organisation, _operator(key))
    _say(folder, signed, Screen(as_json, quiet))


@app.command(epilog="Example: privfed federation install received /srv/node --operator operator.pub")
def install(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="What the operator sent.", show_default=False)],
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="Folder of the server or of a node.", show_default=False)
    ],
    *,
    operator: options.PublicKey = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="The party's new identity.key.", show_default="the one in PARTY"),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take over a signed federation at a party, and its new key; then start the party again."""
    from privfed.engines.nodes import administration

    pinned = None if operator is None else public_key(operator)
    installed = administration.install(_with_federation(source), party, pinned, key)
    federation = installed.federation
    screen, name = Screen(as_json, quiet), federation.name_of(installed.seat)
    screen.document({"folder": str(party), "party": name, **_document(federation)})
    screen.result(f"{party} takes part in version {federation.version} as {name}")
    screen.explain("Start it again: a process keeps the version that it began with.")


app.command(epilog=device_federation.EXAMPLE)(device_federation.devices)


def _say(folder: Path, federation: "FederationFile", screen: Screen, *, members: bool = False) -> None:
    from privfed.cli.tables import plain_table

    screen.document({"folder": str(folder), **_document(federation)})
    screen.result(f"{federation.name}, version {federation.version}, is signed")
    if members:
        rows = [("server", federation.server, "")]
        rows += [("helper", federation.helper, "")] if federation.helper else []
        rows += [(o.name, o.key, str(len(federation.users(n)))) for n, o in enumerate(federation.organisations)]
        screen.result(plain_table(f"Digest {federation.digest}", ("party", "key", "users"), rows))
    else:
        screen.explain("Send federation.toml and federation.sig to all parties; each installs them and starts again.")


def _document(federation: "FederationFile") -> dict[str, object]:
    return {"digest": federation.digest, "federation": federation.model_dump(mode="json")}


def _with_federation(folder: Path) -> Path:
    if not (folder / "federation.toml").is_file():
        raise CommandError(f"there is no federation.toml in {folder}: name the folder that has it")
    return folder


def _operator(key: Path) -> "Identity":
    from privfed.engines.nodes.party import read_identity

    return read_identity(key)
