"""`privfed serve`: the published model of a run, for devices that recommend by themselves."""

from pathlib import Path
from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed serve runs/gram --port 8000, or --export public for any static host"


def serve(
    directory: options.RunDirectory,
    *,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port on this machine; 0 takes a free one.")
    ] = 8000,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Write the same files to a folder, for any static host, and end.",
            show_default=False,
        ),
    ] = None,
    dossier: Annotated[
        Path | None,
        typer.Option(
            "--dossier",
            metavar="DIR",
            help="The dossier of this run (privfed dossier make), which everybody may then read.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Give devices the published model of RUN_DIR, its version, its guarantee and what it was made of.

    Reading only, without TLS, on 127.0.0.1: put a proxy before it. Nothing that is asked for is written down. Numbers
    of quality are served with a dossier only, since no guarantee covers exact ones.
    """
    from privfed.api.loading import load_run
    from privfed.api.publishing import LASTING, PublishedModel
    from privfed.experiment.folder import PUBLISHED

    screen = Screen(as_json, quiet)
    with screen.working("Reading the run"):
        exported = directory / PUBLISHED
        model = PublishedModel.read(exported) if exported.is_dir() else PublishedModel.from_run(load_run(directory))
        model = model if dossier is None else model.with_dossier(dossier, directory)
    if dossier is not None:
        screen.note("the dossier says how good the model is and what attacks found, which the guarantee may not cover")
    size = sum(map(len, model.files.values()))
    told = {"directory": str(directory), "version": model.version, "files": len(model.files), "bytes": size}
    what = f"{len(model.files)} files, {size:,} bytes, version {model.version[:12]}"
    if export is not None:
        model.write(export)
        screen.result(f"{what}, in {export}")
        screen.document(told | {"export": str(export)})
        return
    from privfed.cli.static_server import StaticServer

    with StaticServer(model.files, LASTING, port) as server:
        screen.result(f"{what}, at {server.address}")
        screen.explain("Next: read device/README.md; Ctrl-C ends it")
        screen.document(told | {"address": server.address})
        screen.out.file.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            screen.note("ended")
