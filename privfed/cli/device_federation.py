"""`privfed federation devices`: one run over people's own devices, and the model that they may download."""

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.engines.nodes.devices.run import DeviceRun, DevicesResult
    from privfed.engines.nodes.http_transport import HttpTransport
    from privfed.experiment.folder import DevicesRecord
    from privfed.setup.config import ExperimentConfig

EXAMPLE = "Example: privfed federation devices server --items items.csv --epsilon 2 --out runs/devices"
_PAUSE = 0.2


def devices(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="Folder of the server.", show_default=False)],
    *,
    items: Annotated[
        Path,
        typer.Option(
            "--items", metavar="FILE", help="The catalogue, a csv: item, title, genres, year.", show_default=False
        ),
    ],
    epsilon: Annotated[
        float, typer.Option("--epsilon", metavar="E", help="Total that nobody's data may exceed.", show_default=False)
    ],
    method: Annotated[
        str, typer.Option("--method", metavar="private-gram|popularity", help="What devices compute.")
    ] = "private-gram",
    histories: Annotated[
        str,
        typer.Option(
            "--histories",
            metavar="long|short",
            help="Of private-gram: whether people have many items, more than some 25, or few.",
        ),
    ] = "short",
    honest: Annotated[
        int | None,
        typer.Option(
            "--honest",
            metavar="N",
            help="The fewest honest people in a sum: their noise has to be enough.",
            show_default="half of all",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the run, new or empty.")] = Path(
        "runs/devices"
    ),
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port on this machine; 0 takes a free one.")
    ] = 8001,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="Where devices reach it, which is written into invitations.",
            show_default="this machine",
        ),
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            metavar="URL",
            help="A web page that may take part, as https://example.org. May be given several times.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="S", min=0, help="Seconds for which to wait for all devices.")
    ] = 600.0,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds in which devices answer.")
    ] = 60.0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a method over the devices of a federation in which every organisation is one person.

    It writes an invitation for each device, waits for them, and has them add up noisy sums; each charges its own
    budget. The model is in DIR, for 'privfed serve DIR' and 'privfed dossier make DIR'. Without TLS, on 127.0.0.1: put
    a proxy before it.
    """
    from privfed.api.publishing import catalogue
    from privfed.engines.nodes.devices.invitations import invite, tokens_of
    from privfed.engines.nodes.devices.run import DeviceRun, require_devices
    from privfed.engines.nodes.devices.terms import device_epsilon
    from privfed.engines.nodes.http_transport import HttpTransport
    from privfed.engines.nodes.party import Party
    from privfed.engines.nodes.party_data import catalogue_alone, read_catalogue
    from privfed.engines.simulation import TooFewClientsError
    from privfed.experiment.folder import CHARGES

    server = Party.load(party)
    require_devices(server)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise CommandError(f"{out} is not empty: choose another --out")
    frame = read_catalogue(items, server.federation.items)
    screen, people = Screen(as_json, quiet), server.federation.population
    config = _config(_settings(method, histories), epsilon, people, server.federation.corrupt, honest)
    out.mkdir(parents=True, exist_ok=True)
    run = DeviceRun.prepare(config, catalogue_alone(frame, people, "devices"), server, out / CHARGES)
    own = device_epsilon(run.queries, run.guard.plan.delta)
    tokens = tokens_of(party, people)
    with HttpTransport(tokens, port=port, origins=origins or ()) as transport:
        named = catalogue(frame.index, frame)
        place = invite(party, server, tokens, address or transport.address, named["ids"])
        least = run.guard.plan.mechanism.min_clients
        screen.explain(
            f"By its own sum each device counts epsilon {own:.3g}: its budget needs room for that.",
            f"Waiting for {people} devices at {transport.address}; their invitations are in {place}",
        )
        present = _wait_for(transport, people, wait)
        if present < least:
            (out / CHARGES).unlink()
            raise CommandError(f"{present} of {people} devices called, and the noise is sized for {least}: wait longer")
        record = begun(run)
        record.write(out)
        try:
            with screen.working("Adding up"):
                result = run.train(transport, timeout)
        except TooFewClientsError as aborted:
            raise CommandError(f"the run was aborted: {aborted}; what {out / CHARGES} names was opened") from aborted
    version, guarantee = finish(out, record, result, named), result.guarantee
    screen.document(
        {
            "directory": str(out), "version": version, "joined": result.joined,
            "device_epsilon": own,
            "guarantee": guarantee.model_dump(mode="json"),
            "incidents": [[one.node, one.stage, one.reason] for one in result.incidents],
        }
    )  # fmt: skip
    screen.result(f"{result.joined} devices took part: epsilon {guarantee.epsilon:.3g} at delta {guarantee.delta:g}")
    screen.explain(f"Next: privfed dossier make {out}; privfed serve {out}")


def finish(out: Path, record: "DevicesRecord", result: "DevicesResult", items: Mapping[str, Any]) -> str:
    """Write what came of a run, the record of its end last; returns the version of the model."""
    from privfed.api.publishing import PublishedModel
    from privfed.experiment.folder import GUARANTEE, PUBLISHED, write_json

    about = {"data": record.federation, "synthetic": False, "terms": None}
    model = PublishedModel.from_assembly(result.assembly, 1, result.guarantee, items, about)
    model.write(out / PUBLISHED)
    write_json(out / GUARANTEE, result.guarantee.model_dump(mode="json"))
    unused = Counter(one.stage for one in result.incidents)
    ended = {"ended": _now(), "joined": result.joined, "summed": result.summed, "unused": dict(unused)}
    record.model_copy(update=ended).write(out)
    return model.version


def begun(run: "DeviceRun") -> "DevicesRecord":
    """The record of a run that is about to be announced."""
    from privfed.experiment.folder import DevicesRecord

    federation = run.party.federation
    return DevicesRecord(
        run=run.guard.ledger.run, config=run.assembly.config.model_dump(mode="json"), federation=federation.name,
        version=federation.version, sha256=federation.digest, people=federation.population, items=federation.items,
        started=_now(),
    )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _settings(method: str, histories: str) -> dict[str, Any]:
    """A method that devices compute, every query of which is known beforehand."""
    from privfed.engines.nodes.devices.terms import PRIVATE_GRAM, STEPS

    if method not in STEPS:
        raise CommandError(f"--method {method[:40]!r} was given, and devices compute {' or '.join(STEPS)}: give one")
    if histories not in ("long", "short"):
        raise CommandError(f"--histories {histories[:40]!r} was given: write long or short")
    return {"name": method} | ({"histories": histories, "min_items": 0} if method == PRIVATE_GRAM else {})


def _config(
    method: dict[str, Any], epsilon: float, people: int, corrupt: int, honest: int | None
) -> "ExperimentConfig":
    from privfed.privacy import configure
    from privfed.setup.config import ExperimentConfig
    from privfed.setup.target_plan import plan_for_epsilon

    fewest = max(1, people // 2) if honest is None else honest
    config = configure(ExperimentConfig, {"method": method, "rounds": 1, "data": "devices"})
    words = f"distributed-gaussian:n_min_honest={fewest},colluding={corrupt}"
    plan = plan_for_epsilon(epsilon, config.registered(), people, plan=words)
    return config.model_copy(update={"privacy": plan})


def _wait_for(transport: "HttpTransport", people: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while (present := len(transport.nodes())) < people and time.monotonic() < end:
        time.sleep(_PAUSE)
    return present
