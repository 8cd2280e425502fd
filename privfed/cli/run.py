"""`privfed run`: train one method behind one plan, in a folder that a killed run can continue from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import early, layers, options
from privfed.cli.failures import CommandError
from privfed.cli.importing import importing
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privfed.cli.directory import DirectoryRecord
    from privfed.cli.layers import Layer
    from privfed.data import Interactions
    from privfed.experiment import Experiment, RunResult
    from privfed.privacy import Forecast
    from privfed.setup.config import ExperimentConfig

EXAMPLE = (
    "Example: privfed run private-gram --epsilon 1. A plan in words: privfed run gpfedrec --data ml-100k --rounds 100 "
    "--privacy local-laplace:epsilon0=1,clip_norm=1 --out runs/laplace"
)


def run(
    method: Annotated[
        str | None,
        typer.Argument(
            metavar="METHOD",
            help="What to train (privfed methods), with a preset as in gpfedrec:published; or my_file.py:METHOD.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the run.", show_default="runs/METHOD")
    ] = None,
    data: options.Data = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            metavar="N",
            help="Rounds to train.",
            show_default="100; where clients upload once, 1, or the 16 or 30 that training by the server takes",
        ),
    ] = None,
    refreshes: Annotated[
        int | None,
        typer.Option(
            "--refreshes",
            metavar="K",
            help="Publish running totals K times a year, a round each, for the epsilon of one release: private-gram. "
            "Lists are noise, below popularity, until items are on its head.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="S", help="Seed of parameters, sampling and noise.", show_default="0"),
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            "--privacy",
            metavar="WORDS",
            help="The privacy plan in words: none, clip, published-noise, local-laplace, local-gaussian, "
            "interaction-dpsgd, central-gaussian, secure-sum, shared-sum or distributed-gaussian, then a colon and its "
            "fields between commas, as in the example below; epsilon=8 in the place of its noise sizes the noise for "
            "the whole run; delta, upload_bits, sampling.kind, sampling.rate and sampling.size may stand there too.",
            show_default="none",
        ),
    ] = None,
    epsilon: Annotated[float | None, options.Epsilon] = None,
    tiers: Annotated[str | None, options.Tiers] = None,
    protocol: options.Protocol = None,
    control: Annotated[
        str | None,
        typer.Option(
            "--control",
            metavar="NAME",
            help="Run a control instead, which METHOD has to beat: no-communication (every device trains alone), "
            "shuffled (histories that say nothing) or untrained.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file with any of these fields.", show_default=False),
    ] = None,
    settings: options.Settings = None,
    boost: options.Boost = None,
    private_evaluation: Annotated[
        bool,
        typer.Option(
            "--private-evaluation",
            help="Measure quality by a noisy sum that epsilon covers too, and compute no exact metric; "
            "--set evaluation.mu=0.05 sets how much of the budget it takes (in mu).",
        ),
    ] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from",
            metavar="RUN",
            help="Folder of a finished private-gram run on the same data and split: public parameters start from what "
            "it published (fedvae, feddae, hetefedrec, fair).",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")
    ] = False,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    time_column: options.TimeColumn = None,
    rating_column: options.RatingColumn = None,
    behaviour_column: options.BehaviourColumn = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
    client_state: options.ClientState = "memory",
) -> None:
    """Train METHOD behind a privacy plan; write metrics, ledger, guarantee, checkpoint and taps to --out.

    Before training it says what the run will cost in privacy, bytes and time; at the end, how good it is compared with
    popularity (for predicted ratings, with their means) and what is guaranteed.
    """
    early.refuse_unknown([method] if method else [], data, [privacy] if privacy else [], protocol)
    _refuse_flags(out, resume=resume, epsilon=epsilon, tiers=tiers)
    file, numbers, changes = _read(
        config, {"rounds": rounds, "seed": seed}, settings or (), None if refreshes else method
    )

    from privfed.cli import directory
    from privfed.cli import settings as read
    from privfed.experiment.folder import CLIENT_STATE
    from privfed.setup.controls import SILENT, control_sentence

    flags: Layer = {
        "data": data,
        **numbers,
        "privacy": None if epsilon or tiers else privacy,
        "protocol": protocol,
        "control": control,
        "device": device,
        "evaluation": {"private": True} if private_evaluation else None,
        "columns": options.columns(user_column, item_column, time_column, rating_column, behaviour_column),
        "method": None if method is None else read.method_table(method, refreshes),
    }
    record = directory.DirectoryRecord.read(out, "run") if resume and out else None
    given = [
        read.of_the_method(file, method, changes),
        {key: value for key, value in flags.items() if value is not None},
        *changes,
        *(layers.read_boost(text) for text in boost or ()),
    ]
    chosen, source = read.run_config([*_defaults(record), *given])
    out = out or directory.free_folder(chosen.method_name)
    begun = _begun(record, out)

    with importing():
        from privfed.cli import start, training
        from privfed.cli.show import card_line, forecast_lines, split_line, synthetic_mark
        from privfed.compute.processes import Processes
        from privfed.data import split
        from privfed.experiment import Experiment
        from privfed.experiment.baseline import held_out
        from privfed.setup.sizing import size

    processes = Processes.launched()
    screen = Screen(as_json and processes.first, quiet or not processes.first)
    with processes.in_turn():
        interactions = read.load_data(source, screen)
    chosen = chosen.model_copy(update=read.fitted_to(source, chosen.split, interactions))
    parts = split(interactions, chosen.split)
    chosen, choices = size(_within(epsilon, tiers, privacy, chosen, parts.train.n_users), parts)
    if begun is not None and (other := read.first_difference(begun, chosen.model_dump(mode="json"))):
        raise CommandError(f"{out} was begun with {other}: resume it as it was, or choose another --out")
    if record is None:
        record = directory.DirectoryRecord(
            kind="run",
            config=chosen.model_dump(mode="json"),
            columns=source.columns,
            data_sha256=interactions.card.sha256,
        )
    record.check_data(interactions, out)
    with screen.working(f"Setting {chosen.method_name} up: first parameters, and padding where the plan has some"):
        experiment = Experiment(
            chosen, parts, processes=processes,
            client_state={"memory": None, "disk": out / CLIENT_STATE}.get(client_state, Path(client_state)),
        )  # fmt: skip
    origin = start.begin(experiment, start_from, out if resume else None, record, screen)
    evaluated = held_out(experiment)
    if not processes.first:
        experiment.run(out, resume=resume, parts=evaluated)
        experiment.storage.remove()
        return
    forecast = training.predict(experiment)
    directory.claim(out)
    screen.explain(
        f"Data: {card_line(interactions.card)}",
        split_line(parts, interactions),
        f"Protocol: {chosen.protocol.sentence()}",
        f"Plan: {chosen.privacy.name} (fidelity: {chosen.fidelity})",
        *([control_sentence(chosen.control)] if chosen.control else []),
        *choices,
        *([] if chosen.control in SILENT else forecast_lines(forecast)),
        *training.remarks(experiment),
        *training.variant(experiment),
        "",
    )
    with directory.held(out, new=begun is None):
        start.keep(experiment, out, origin, screen)
        record.write(out)
        result = training.train(
            experiment, out, screen, resume=resume, parts=evaluated,
            mark=synthetic_mark(synthetic=interactions.card.synthetic),
        )  # fmt: skip
    experiment.storage.remove()
    _tell(screen, out, experiment, interactions, result, forecast, origin)


def _read(
    config: Path | None, numbers: dict[str, int | None], settings: "Sequence[str]", method: str | None
) -> "tuple[Layer, Layer, list[Layer]]":
    """Layers of the file, of numbers and of `--set`, without plain mistakes."""
    from privfed.cli.early_settings import refuse_settings

    file, changes = layers.read_file(config), [layers.read_setting(text) for text in settings]
    given = {name: value for name, value in numbers.items() if value is not None}
    refuse_settings(method, [file, given, *changes])
    return file, given, changes


def _refuse_flags(out: Path | None, *, resume: bool, epsilon: float | None, tiers: str | None) -> None:
    """Refuse flags that cannot be meant, alone or together.

    Raises:
        CommandError: a run of no folder is continued, or noise is to be sized for two totals.
        PlanError: the tiers cannot be read.
    """
    if resume and out is None:
        raise CommandError("--resume continues the run of a folder, and none is named: add --out DIR")
    if epsilon is not None and tiers is not None:
        raise CommandError(
            f"--epsilon {epsilon:g} is for everybody and --tiers {tiers} for each tier: give one of them"
        )
    if tiers is not None:
        from privfed.privacy.configuring import configure
        from privfed.privacy.tiers import BudgetTiers, read_tiers

        configure(BudgetTiers, read_tiers(tiers))


def _within(
    epsilon: float | None, tiers: str | None, privacy: str | None, config: "ExperimentConfig", population: int
) -> "ExperimentConfig":
    """The same run behind a plan for `--epsilon` or `--tiers`, where one is given; noise is sized with the rest."""
    from privfed.setup.target_plan import plan_for_epsilon, plan_for_tiers

    configured = config.privacy if config.privacy.mechanism.protects else None
    if tiers is not None:
        plan = plan_for_tiers(tiers, config.registered(), population, plan=privacy or configured)
    elif epsilon is not None:
        plan = plan_for_epsilon(epsilon, config.registered(), population, plan=privacy or configured)
    else:
        return config
    return config.model_copy(update={"privacy": plan})


def _begun(record: "DirectoryRecord | None", out: Path) -> "Layer | None":
    """What the run of a folder was begun with; None for a new one, whose folder must hold nothing else."""
    from privfed.cli.directory import refuse_foreign

    if record is not None:
        return record.experiment().model_dump(mode="json")
    refuse_foreign(out, "run")
    return None


def _defaults(record: "DirectoryRecord | None") -> "list[Layer]":
    """Settings below those that are given: of the run that is resumed, and nothing tapped where processes share it."""
    from privfed.compute.launched import launched_processes

    resumed: list[Layer] = []
    if record is not None:
        resumed.append(record.config | ({"columns": record.columns} if record.columns else {}))
    return [*resumed, *([{"taps": {"places": []}}] if launched_processes() > 1 else [])]


def _tell(
    screen: Screen,
    out: Path,
    experiment: "Experiment",
    interactions: "Interactions",
    result: "RunResult",
    forecast: "Forecast",
    origin: "dict[str, str] | None",
) -> None:
    """How good the run is beside popularity, what is guaranteed, and which files there are."""
    from privfed.audit.report import formatting
    from privfed.audit.report.records import POPULARITY
    from privfed.cli import training
    from privfed.cli.closing import closing_lines, next_step
    from privfed.cli.show import beyond_lines, choice_lines, guarantee_box, utility_table
    from privfed.experiment.baseline import popularity
    from privfed.experiment.folder import write_evaluation
    from privfed.experiment.gain import gain_over_popularity
    from privfed.setup import our_variant
    from privfed.setup.controls import CONTROLS, SILENT

    chosen, synthetic = experiment.config, interactions.card.synthetic
    name = chosen.method_name + (f" ({CONTROLS[chosen.control]})" if chosen.control else "")
    popular = popularity(chosen, experiment.parts, result.test)
    gain = gain_over_popularity(experiment, result.selected)
    write_evaluation(out, result, popular, gain, interactions.card, experiment.parts.describe())
    baselines = result.test.baselines if popular is None else {POPULARITY: popular.metrics}
    rounds_done = result.selected.round + 1
    screen.result(
        *choice_lines(result.test),
        utility_table(name, result.test, baselines, rounds=rounds_done, synthetic=synthetic),
        *([f"Protocol: {chosen.protocol.sentence()}"] if screen.quiet else []),
        *([] if chosen.control in SILENT else [guarantee_box(result.guarantee)]),
    )
    screen.result(*training.warnings(result))
    screen.explain(*beyond_lines(result.test), *training.decisions(result))
    files = training.files(out)
    up, down = formatting.volume(result.costs.up_bytes), formatting.volume(result.costs.down_bytes)
    screen.explain(f"Traffic as counted: {up} up and {down} down in the whole run.")
    screen.explain(f"Files: {', '.join(files)} in {out}")
    screen.result(*closing_lines(name, result, popular, synthetic=synthetic))
    screen.explain(f"Next: {next_step(out, result, popular)}")
    screen.document(
        {
            "directory": str(out),
            "config": chosen.model_dump(mode="json"),
            "data": interactions.card.model_dump(mode="json"),
            "synthetic": synthetic,
            "split": experiment.parts.describe(),
            "protocol": chosen.protocol.sentence(),
            "plan": chosen.privacy.name,
            "control": chosen.control,
            "our_variant": our_variant(chosen.method),
            "start_from": origin,
            "forecast": None if chosen.control in SILENT else forecast.model_dump(mode="json"),
            "selected_round": result.selected.round,
            "utility": {part: r.model_dump(mode="json") for part, r in result.selected.results.items()},
            "popularity": None if popular is None else popular.model_dump(mode="json"),
            "guarantee": result.guarantee.model_dump(mode="json"),
            "fidelity": chosen.fidelity,
            "aborted_rounds": result.costs.aborted_rounds,
            "clipped_fraction": result.clipped_fraction,
            "decisions": result.decisions,
            "notices": list(result.notices),
            "cpu_seconds": result.cpu_seconds,
            "up_bytes": result.costs.up_bytes,
            "down_bytes": result.costs.down_bytes,
            "files": files,
        }
    )
