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
Items = Annotated[
    Path,
    typer.Option(
        "--items", metavar="FILE", help="csv of the catalogue, in the order that all parties share.", show_default=False
    ),
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


@app.command(epilog="Example: privfed federation users /srv/node --table sales.csv --items items.csv")
def users(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="Folder of the node.", show_default=False)],
    *,
    table: Annotated[
        Path, typer.Option("--table", metavar="FILE", help="Its own users' interactions.", show_default=False)
    ],
    items: Items,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="WORD", help="Behaviour to recommend, where rows name several."),
    ] = None,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    time_column: options.TimeColumn = None,
    rating_column: options.RatingColumn = None,
    behaviour_column: options.BehaviourColumn = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the users of an organisation, from its own table, into its node's folder.

    Each gets a number that the federation file gives the organisation, and keeps it when the command is repeated with a
    later table. Repeat it between runs, not during one.
    """
    from privfed.data import load
    from privfed.engines.nodes import party_data
    from privfed.engines.nodes.federation_file import SERVER_SEAT
    from privfed.engines.nodes.party import Party

    node, screen = Party.load(party), Screen(as_json, quiet)
    federation, name = node.federation, node.federation.name_of(node.seat)
    if node.seat in (SERVER_SEAT, federation.helper_seat):
        raise CommandError(f"{party} is the {name}'s, which hosts nobody: name the folder of an organisation's node")
    frame = party_data.read_catalogue(items, federation.items)
    columns = options.columns(user_column, item_column, time_column, rating_column, behaviour_column)
    own = load(table, columns=columns, progress=screen.note)
    known = party_data.read_numbers(party)
    numbers = party_data.numbered(own.user_ids, federation.users(node.seat), known)
    new = len(numbers) - len(known)
    data = party_data.own_users(own, frame, numbers, federation, node.seat, target)
    # Numbers first: whoever is in the data has one.
    party_data.write_numbers(party, numbers)
    data.save(party)
    held = len(data.parts.train) + len(data.parts.valid) + len(data.parts.test)
    counts = {"users": own.n_users, "new": new, "interactions": held}
    screen.document({"folder": str(party), "organisation": name, **counts})
    screen.result(
        f"{name} has {own.n_users:,} users ({new:,} of them new) for {len(data.users):,} numbers, and {held:,} "
        "interactions"
    )
    screen.explain(
        f"Who has which number is in {party / party_data.NUMBERS}: keep it, and give it to nobody. Next: "
        f"{party / 'node.toml'}, and start the node."
    )


@app.command(epilog="Example: privfed federation catalogue /srv/server --items items.csv --out /srv/catalogue")
def catalogue(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="Folder of the server.", show_default=False)],
    *,
    items: Items,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where to write it: data of run.toml.", show_default=False)
    ],
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write what a server knows of the data, the list of items, for its runs; it is nobody's history."""
    from privfed.engines.nodes.federation_file import read_federation
    from privfed.engines.nodes.party_data import catalogue_alone, read_catalogue

    federation, screen = read_federation(_with_federation(party)), Screen(as_json, quiet)
    frame = read_catalogue(items, federation.items)
    catalogue_alone(frame, federation.population, federation.name).save(out)
    screen.document({"folder": str(out), "items": federation.items, "users": federation.population})
    screen.result(f"{out} has {federation.items:,} items for a federation of {federation.population:,} users")


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
