"""Training in a run directory: a forecast before, metrics as they come, ledger and guarantee at the end.

What a run directory holds is in `privfed.experiment.folder`.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from privfed.audit.report import formatting
from privfed.cli.failures import CommandError, InterruptedRunError
from privfed.cli.screen import Screen
from privfed.cli.show import live
from privfed.engines.checkpoint import Checkpoint
from privfed.evaluation import EvaluationError, Part, RoundEvaluation
from privfed.experiment import Experiment, RunResult, TrainingProgress
from privfed.experiment.folder import (
    CHARGES,
    CHECKPOINT,
    EVALUATION,
    GUARANTEE,
    LEDGER,
    METRICS,
    metric_lines,
    write_claims,
    write_text,
)
from privfed.experiment.record_file import RECORD
from privfed.guards.client_guard import BrokenUploadError
from privfed.guards.overflow import refuse_overflow
from privfed.methods import ClientData
from privfed.privacy import Forecast, Ledger, forecast
from privfed.setup import our_variant
from privfed.setup.controls import SILENT
from privfed.setup.evaluation_query import final_queries


def predict(experiment: Experiment) -> Forecast:
    """What the run will cost in privacy and bytes.

    Raises:
        ValueError: a sum does not fit the ring, or the plan does not fit the population.
    """
    config, registered, n_items = experiment.config, experiment.registered, experiment.parts.train.n_items
    program = registered.training.program(experiment.server)
    for query in program:
        refuse_overflow(config.privacy, query.schema, experiment.n_users)
    touched = {}
    if registered.traits.upload != "dense":
        shapes = {name: block.shape for query in program for name, block in query.schema.items()}
        tables = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] == n_items]
        touched = dict.fromkeys(tables, _rows_sent(experiment))
    final = final_queries(config, config.privacy)
    for last in final:
        refuse_overflow(config.privacy, last.schema, experiment.n_users)
    return forecast(
        config.privacy,
        rounds=1 if registered.traits.uploads_once else config.rounds,
        population=experiment.n_users,
        up=[query.schema for query in program],
        down=sum(query.down_bytes for query in program),
        touched_rows=touched,
        extra_queries=registered.training.extra_queries(config.settings()),
        final=final,
    )


def _rows_sent(experiment: Experiment) -> float:
    """Rows that a client sends, on average: those it announced, or its items with their negatives."""
    if experiment.support is not None:
        return float(experiment.support.counts.mean())
    return experiment.registered.training.rows_sent(experiment.config.settings(), _data(experiment))


def _data(experiment: Experiment) -> ClientData:
    return ClientData.from_split(experiment.parts, experiment.config.protocol.negatives)


def warnings(result: RunResult) -> list[str]:
    """What a reader of the result must not miss."""
    lost = result.costs.aborted_rounds
    lines = [f"Warning: {lost} of {result.config.rounds} rounds had too few clients and were aborted."] if lost else []
    lines += [f"Note: {notice}." for notice in result.notices]
    return [*lines, f"Warning: {result.test.warning}"] if result.test.warning else lines


def decisions(result: RunResult) -> list[str]:
    """What the method decided by what had been released to it."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in result.decisions.items())
    return [f"Decided by what had been released already, at no further cost of privacy: {values}."] if values else []


def remarks(experiment: Experiment) -> list[str]:
    """What somebody should know about this method on these data before it trains."""
    examined = experiment.registered.training.examined(experiment.config.settings(), _data(experiment))
    notes = []
    if experiment.processes.size > 1:
        notes.append(
            f"Note: {experiment.processes.size} processes share the clients, so nothing is tapped for attacks."
        )
    if examined is None or len(examined):
        return notes
    return [
        *notes,
        f"Note: the data hold no examinations (views, carts, ...) to learn from, so {experiment.config.method_name} "
        f"learns from the target alone.",
    ]


def variant(experiment: Experiment) -> list[str]:
    """How the model differs from the published one that it is named after."""
    differs = our_variant(experiment.config.method)
    name = formatting.method_name(experiment.config.method_name)
    return [f"Note: {name} is our variant of the published model: {differs}."] if differs else []


def train(
    experiment: Experiment, directory: Path, screen: Screen, *, resume: bool, parts: Sequence[Part], mark: str
) -> RunResult:
    """Train in `directory`, which holds the run's `config.json`; `mark` stands beside the numbers shown live.

    Raises:
        InterruptedRunError: somebody pressed Ctrl-C; everything up to the last checkpoint is kept.
        CommandError: training diverged.
    """
    config = experiment.config
    if resume and ((directory / CHARGES).exists() or Checkpoint.exists(directory / CHECKPOINT)):
        ledger = Ledger.resume(config.privacy, experiment.n_users, directory / CHARGES, run=config.digest())
        screen.result(*([f"Note: {ledger.notice}."] if ledger.notice else []))
    reached = _begin(directory, resume=resume)
    if reached:
        screen.note(f"Continuing after round {reached} of {config.rounds}.")
    first_round: float | None = None
    started = time.perf_counter()
    with screen.progress(f"{config.method_name}{mark}", config.rounds, reached) as advance:

        def progress(t: int, evaluated: RoundEvaluation | None) -> None:
            nonlocal reached, first_round
            reached = t + 1
            if evaluated is not None:
                with (directory / METRICS).open("ab") as file:
                    file.write(metric_lines([evaluated]).encode())
            advance(reached, live(evaluated.results[parts[0]]) if evaluated else "")
            if first_round is None and config.control not in SILENT:
                first_round = time.perf_counter() - started
                left = first_round * (config.rounds - reached)
                screen.note(
                    f"One round took {formatting.seconds(first_round)}: about {formatting.seconds(left)} to go."
                )

        try:
            result = experiment.run(directory, resume=resume, progress=progress, parts=parts)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"stopped after round {reached} of {config.rounds}; to go on: privfed run --out {directory} --resume"
            ) from None
        except (BrokenUploadError, EvaluationError) as error:
            raise CommandError(
                f"training diverged: round {reached + 1} gave NaN or infinity; lower the learning rate "
                f"(privfed methods show {config.method_name} lists them) and start again with another --out"
            ) from error
    write_claims(directory, result, experiment.n_users)
    return result


def files(directory: Path) -> dict[str, str]:
    """What a finished run left, by purpose."""
    names = (RECORD, METRICS, CHARGES, LEDGER, GUARANTEE, EVALUATION, CHECKPOINT, "taps")
    return {name: str(directory / name) for name in names if (directory / name).exists()}


def _begin(directory: Path, *, resume: bool) -> int:
    """Make `metrics.jsonl` say what the checkpoint says, or nothing where there is none; gives the first round."""
    saved = directory / CHECKPOINT
    if not (resume and (directory / CHARGES).exists() and Checkpoint.exists(saved)):
        write_text(directory / METRICS, "")
        return 0
    checkpoint = Checkpoint.load(saved, ranged=True)
    history = [one.evaluation() for one in TrainingProgress.from_checkpoint(checkpoint, saved).history]
    write_text(directory / METRICS, metric_lines(history))
    return checkpoint.next_round
