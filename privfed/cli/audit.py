"""`privfed audit`: a grid of methods, plans and seeds, attacked and reported on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import early, layers, options, policy
from privfed.cli.failures import CONTRADICTED, CommandError, InterruptedRunError
from privfed.cli.importing import importing
from privfed.cli.screen import Screen
from privfed.experiment.record_file import RECORD

ROUNDS = 20
"""Rounds of the default grid, which is to be done within three minutes on two cores."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privfed.audit.config import AuditConfig
    from privfed.audit.report.records import AuditReport
    from privfed.cli.directory import DirectoryRecord
    from privfed.data import Split
    from privfed.setup.config import ExperimentConfig

EXAMPLE = (
    "Example: privfed audit. One's own data, one's own question: privfed audit shop.csv --method fedvae --epsilon 8"
)


def audit(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA|EXPERIMENT.toml]",
            help="What to audit on: a data set by name or path, as for --data; or a TOML file with methods, plans, "
            "rounds, seeds, data, split, protocol, taps.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the report.")] = Path("audit"),
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="A method to audit; may be given several times.",
            show_default="gpfedrec:published and private-gram",
        ),
    ] = None,
    data: options.Data = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="Rounds of every run.", show_default="40")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="S", help="Runs with seeds 0 to S - 1.", show_default="1"),
    ] = None,
    privacy: Annotated[
        list[str] | None,
        typer.Option(
            "--privacy",
            metavar="WORDS",
            help="A privacy plan in words (see privfed run --help); may be given several times.",
            show_default="none, published noise, local Laplace at epsilon0 = 8 and 1",
        ),
    ] = None,
    epsilon: Annotated[list[float] | None, options.Epsilon] = None,
    protocol: options.Protocol = None,
    controls: Annotated[
        str | None,
        typer.Option(
            "--controls",
            metavar="NAMES",
            help="What every method has to beat besides popularity: no-communication, shuffled or untrained, several "
            "between commas, all or none; each is one more training.",
            show_default="untrained,shuffled",
        ),
    ] = None,
    settings: options.Settings = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Runs at the same time.", show_default="one per core"),
    ] = None,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    time_column: options.TimeColumn = None,
    rating_column: options.RatingColumn = None,
    behaviour_column: options.BehaviourColumn = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
    fail_if: policy.FailIf = None,
    policy_file: policy.PolicyFile = None,
) -> None:
    """Train every method behind every plan, attack what the server saw, and write one report.

    By default it compares GPFedRec as published, the same behind local noise, and private-gram at epsilon 8 and 1.
    Popularity is always included.

    Writes report.json, runs.csv, index.html and charts/ to --out. The exit code is 1 when the numbers
    contradict a claim, or a threshold is broken. An audit that was stopped continues when the same command is
    given again.
    """
    early.refuse_unknown(method or [], data, privacy or [], protocol)

    from privfed.cli import audit_settings, directory
    from privfed.cli import settings as read
    from privfed.cli.within_epsilon import DEFAULT_EPSILONS, PUBLISHED, audited_within, default_grid

    screen = Screen(as_json, quiet)
    file, named = (experiment, None) if experiment is not None and experiment.suffix == ".toml" else (None, experiment)
    if named is not None and data is not None:
        raise CommandError(f"data are named twice, {named} and --data {data}: leave one out")
    policy.refuse_unreadable(fail_if, policy_file)
    flags: layers.Layer = {
        "data": data if named is None else str(named),
        "rounds": rounds,
        "seeds": seeds,
        "protocol": protocol,
        "controls": None if controls is None else _controls(controls),
        "device": device,
        "methods": method,
        "plans": privacy,
        "columns": options.columns(user_column, item_column, time_column, rating_column, behaviour_column),
    }
    layer = layers.read_file(file)
    flags = {key: value for key, value in flags.items() if value is not None}
    by_default = not {"methods", "plans", "variants"} & (layer.keys() | flags.keys())
    if by_default:
        flags = {"rounds": ROUNDS, "canaries": 0} | layer | flags | {"methods": [PUBLISHED], "plans": ["none"]}
    elif epsilon and not {"plans", "variants"} & (layer.keys() | flags.keys()):
        flags["plans"] = ["none"]
    config, source = audit_settings.audit_config(layer, flags, [layers.read_setting(text) for text in settings or ()])

    with importing():
        from privfed.audit.grid import AuditProgress, audit_steps, run_audit
        from privfed.cli.show import card_line, split_line
        from privfed.data import split

    interactions = read.load_data(source, screen)
    config = config.model_copy(update=read.fitted_to(source, config.split, interactions))
    if by_default or epsilon:
        grid = default_grid if by_default else audited_within
        with screen.working("Sizing noise"):
            config = grid(epsilon or DEFAULT_EPSILONS, config, interactions)
    record = directory.DirectoryRecord(
        kind="audit",
        config=config.model_dump(mode="json"),
        columns=source.columns,
        data_sha256=interactions.card.sha256,
    )
    _refuse_another_audit(out, record)
    cells, parts = config.cells(), split(interactions, config.split)
    _check([cell for cell in cells if cell.seed == config.seeds[0]], parts, screen)
    directory.claim(out)
    screen.explain(
        f"Data: {card_line(interactions.card)}",
        split_line(parts, interactions),
        f"Protocol: {config.protocol.sentence()}",
        runs_sentence(config, len(cells)),
        "",
    )
    record.write(out)
    with screen.progress("audit", audit_steps(cells)) as advance:

        def progress(sign: AuditProgress) -> None:
            rounds = sign.text.startswith("round ")
            last = rounds and len(set(sign.text.removeprefix("round ").split(" of "))) == 1
            advance(
                sign.done_steps, f"{sign.cell}: {sign.text}" if screen.err.is_terminal or last or not rounds else ""
            )

        try:
            report = run_audit(config, interactions, out, workers=workers, progress=progress)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                "stopped; finished runs are kept, so give the same command again to go on"
            ) from None
    failures = policy.broken(report, fail_if, policy_file)
    _tell(screen, out, report, config.protocol.sentence(), failures, synthetic=interactions.card.synthetic)
    if report.contradictions or failures:
        raise typer.Exit(CONTRADICTED)


def _controls(names: str) -> list[str]:
    """The controls that a list between commas names."""
    from privfed.setup.controls import CONTROLS

    named: dict[str, list[str]] = {"all": [*CONTROLS], "none": []}
    return named.get(names, [name.strip() for name in names.split(",")])


def _check(cells: "Sequence[ExperimentConfig]", parts: "Split", screen: Screen) -> None:
    """Assemble and forecast every run, so that what cannot be run is refused before anything is trained."""
    from privfed.cli.training import predict
    from privfed.experiment import Experiment
    from privfed.experiment.baseline import held_out

    for cell in cells:
        with screen.working(f"Checking {cell.method_name} behind {cell.privacy.name}"):
            trial = Experiment(cell, parts)
            held_out(trial)
            predict(trial)


def runs_sentence(config: "AuditConfig", runs: int) -> str:
    """How many runs there will be, of which methods and under which plans."""
    methods = dict.fromkeys(variant.key[0] for variant in config.grid())
    plans = dict.fromkeys(variant.privacy.name for variant in config.grid())
    if not methods:
        return f"Runs: {runs}, of popularity alone, which every audit has as a row."
    return f"Runs: {runs}, for {', '.join(methods)} and popularity under: {'; '.join(plans)}."


def _refuse_another_audit(out: Path, record: "DirectoryRecord") -> None:
    """Refuse a folder that holds something else than an audit with these settings.

    Raises:
        CommandError: it does.
    """
    from privfed.audit.config import AuditConfig
    from privfed.cli import directory
    from privfed.cli.settings import first_difference
    from privfed.privacy import configure

    if not (out / RECORD).exists():
        directory.refuse_foreign(out, "audit")
        return
    former = directory.DirectoryRecord.read(out, "audit")
    begun = former.model_copy(update={"config": configure(AuditConfig, former.config).model_dump(mode="json")})
    if other := first_difference(begun.model_dump(mode="json"), record.model_dump(mode="json")):
        raise CommandError(f"{out} holds an audit with {other}: choose another --out")


def _tell(
    screen: Screen, out: Path, report: "AuditReport", protocol: str, failures: list[str], *, synthetic: bool
) -> None:
    """What was measured, what contradicts a claim, and where the page is."""
    from privfed.cli.show_audit import audit_table, statement_lines
    from privfed.evaluation import UNCOUNTED

    page = out / "index.html"
    screen.explain(*statement_lines(report, synthetic=synthetic), "")
    screen.result(
        audit_table(report, synthetic=synthetic),
        *([f"Protocol: {protocol}", UNCOUNTED] if screen.quiet else []),
    )
    for contradiction in report.contradictions:
        screen.result(f"Contradicted: {contradiction.text}")
    for failure in failures:
        screen.result(f"Failed: {failure}")
    screen.result(*policy.closing(report, out, page))
    screen.document(
        {
            "directory": str(out),
            "page": str(page),
            "report": str(out / "report.json"),
            "synthetic": synthetic,
            "protocol": protocol,
            "verdict": report.verdict,
            "advice": report.advice,
            "failures": failures,
            "statements": [statement.model_dump(mode="json") for statement in report.statements],
            "contradictions": [c.model_dump(mode="json") for c in report.contradictions],
            "cells": [cell.model_dump(mode="json") for cell in report.aggregates],
        }
    )
