"""The audit itself: every method behind every plan with every seed, trained, attacked and reported.

Cells run in worker processes, one thread each. A finished cell is kept in the output folder, so an audit that was
killed continues where it stopped. Popularity is always a row.
"""

import math
import multiprocessing
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue

import privfed
from attacks import Knowledge as AttackerKnowledge
from attacks import ServerView, Targets
from attacks.membership import RankOneSign
from attacks.metrics import user_auc
from privfed.audit.attack_runs.attack_run import attack_taps
from privfed.audit.attack_runs.attributes import attack_attributes
from privfed.audit.attack_runs.supports import attack_supports
from privfed.audit.checks.check_run import check_run
from privfed.audit.config import AuditConfig
from privfed.audit.controls import ControlRun, check_controls, compared, first_of_groups, group, run_controls
from privfed.audit.epsilon.canaries import CanaryError, audit_canaries
from privfed.audit.epsilon.mechanism import audit_mechanism
from privfed.audit.epsilon.wire_canaries import audit_wire_canaries
from privfed.audit.publish import publish
from privfed.audit.report import formatting
from privfed.audit.report.conclusions import conclude
from privfed.audit.report.records import (
    POPULARITY,
    AuditReport,
    EmpiricalRow,
    GuaranteeRow,
    Interval,
    LedgerLine,
    ListsRow,
    NotRun,
    ProtocolUsed,
    Run,
    SelfCheck,
    Setting,
    TimeRow,
    TrafficRow,
    UtilityRow,
    config_sha256,
    write_report,
)
from privfed.compute.devices import HOST, usable
from privfed.data import Interactions, Split, split
from privfed.evaluation import EvaluationResult, RoundEvaluation
from privfed.experiment import Experiment, RunResult
from privfed.experiment.gain import gain_over_popularity
from privfed.privacy.gaussian_dp import squared_mu
from privfed.setup import our_variant
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import CONTROLS, Control

_POLL_SECONDS = 0.2


ATTACKS_AS_ROUNDS, REPORT_AS_ROUNDS = 8, 8
"""Rounds that take about as long as the attacks on a run, or as drawing the report."""

Sign = tuple[str, str, int]
"""Cell, what happened, steps done by it."""


def audit_steps(cells: Sequence[ExperimentConfig]) -> int:
    """Steps of a whole audit, as its progress counts them."""
    return sum(_steps(cell) for cell in cells) + REPORT_AS_ROUNDS


def _steps(cell: ExperimentConfig) -> int:
    return cell.rounds + ATTACKS_AS_ROUNDS


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """A sign of life.

    Attributes:
        cell: which cell.
        done_steps, total_steps: of the whole audit: rounds, and attacks and the report as so many of them.
        text: what just happened.
    """

    cell: str
    done_steps: int
    total_steps: int
    text: str


@dataclass(frozen=True, slots=True)
class ExtraAudits:
    """What is done to a run beside its attacks; see `AuditConfig`."""

    attributes: bool = False
    canaries: int = 0
    controls: tuple[Control, ...] = ()


def run_audit(
    config: AuditConfig,
    interactions: Interactions,
    out: Path,
    *,
    workers: int | None = None,
    progress: Callable[[AuditProgress], None] | None = None,
) -> AuditReport:
    """Run the grid and write `report.json`, the page, `runs.csv`, `charts/` and `tables/` to `out`.

    Args:
        config: the grid.
        interactions: the data set that `config.data` names.
        out: output folder; finished cells of the same configuration found there are kept.
        workers: processes; None uses one per core. 1 runs everything in this process, where a debugger can follow.
        progress: called in this process as rounds finish.

    Returns:
        The report, with contradictions in it if there are any.
    """
    out.mkdir(parents=True, exist_ok=True)
    parts, cells = split(interactions, config.split), config.cells()
    (out / "cells").mkdir(exist_ok=True)
    digest = interactions.card.sha256 or interactions.name
    more = ExtraAudits(config.attributes, config.canaries, config.controls)
    files = [out / "cells" / f"{run_id(cell, digest, more)}.json" for cell in cells]
    runs = _run_cells(cells, parts, files, more, min(workers or os.cpu_count() or 1, len(cells)), progress)
    settings = config.model_dump(mode="json")
    report = conclude(
        AuditReport(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            privfed_version=privfed.__version__,
            environment=environment(config.device),
            config=settings,
            config_sha256=config_sha256(settings),
            dataset=interactions.card.model_dump(mode="json") | {"split": parts.describe()},
            protocol=ProtocolUsed(
                settings=config.protocol.model_dump(mode="json"), sentence=config.protocol.sentence()
            ),
            runs=runs,
            not_run=_once([*(reason for run in runs for reason in run.not_run), *not_run(config)]),
            self_checks=[planted_control()],
        )
    )
    write_report(report, out / "report.json")
    steps = audit_steps(cells)
    if progress is not None:
        progress(AuditProgress("report", steps - REPORT_AS_ROUNDS, steps, "drawing"))
    publish(report, out)
    if progress is not None:
        progress(AuditProgress("report", steps, steps, "written"))
    return report


@dataclass(slots=True)
class _Signs:
    """Signs of life of cells that run in this process."""

    total: int
    done: int
    progress: Callable[[AuditProgress], None] | None

    def put(self, sign: "Sign") -> None:
        """Something has begun or is done."""
        self.done += sign[2]
        if self.progress is not None:
            self.progress(AuditProgress(sign[0], self.done, self.total, sign[1]))


def _run_cells(
    cells: Sequence[ExperimentConfig],
    parts: Split,
    files: Sequence[Path],
    more: ExtraAudits,
    workers: int,
    progress: Callable[[AuditProgress], None] | None,
) -> list[Run]:
    total = audit_steps(cells)
    done = sum(_steps(cell) for cell, file in zip(cells, files, strict=True) if file.exists())
    missing = [(cell, file) for cell, file in zip(cells, files, strict=True) if not file.exists()]
    groups = first_of_groups([cell for cell, _ in missing]) if more.controls else {}
    signs = _Signs(total, done, progress)
    if workers == 1:
        _run_here(missing, parts, more, groups, signs)
        return _read(files)
    # A worker must not inherit threads of this process, and one thread each keeps results the same everywhere.
    spawn = multiprocessing.get_context("spawn")
    with _without_main(), spawn.Manager() as manager:
        queue: Queue[Sign] = manager.Queue()
        with ProcessPoolExecutor(workers, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                _run_in_pool(pool, missing, parts, more, groups, queue, signs)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()
                raise
    return _read(files)


def _run_in_pool(
    pool: ProcessPoolExecutor,
    missing: Sequence[tuple[ExperimentConfig, Path]],
    parts: Split,
    more: ExtraAudits,
    groups: Mapping[str, ExperimentConfig],
    queue: "Queue[Sign]",
    signs: _Signs,
) -> None:
    """Controls and then cells, the longest first; a cell is kept when the controls of its group are known, too."""
    known: dict[str, dict[Control, ControlRun]] = {key: {} for key in groups}
    attacked: dict[str, list[tuple[Path, Run, RoundEvaluation]]] = {}

    def keep(key: str) -> None:
        wanted, controls = (more.controls, known[key]) if key in groups else ((), {})
        if len(controls) == len(wanted):
            for file, run, evaluated in attacked.pop(key, []):
                _write(file, with_controls(run, evaluated, [controls[control] for control in wanted]))

    def note_control(key: str, run: ControlRun) -> None:
        known[key][run.control] = run
        keep(key)

    def note_cell(key: str, file: Path, found: tuple[Run, RoundEvaluation]) -> None:
        attacked.setdefault(key, []).append((file, *found))
        keep(key)

    jobs: list[tuple[float, partial[Future[Any]], Callable[[Any], None]]] = [
        # Ahead of all cells: an audit that is killed loses no more of these than it has processes.
        (
            math.inf,
            partial(pool.submit, _one_control, cell, parts, control, queue),
            partial(note_control, key),
        )
        for key, cell in groups.items()
        for control in more.controls
    ]
    jobs += [
        # What is guaranteed draws noise and has its mechanism audited.
        (
            _steps(cell) + cell.rounds * (cell.privacy.mechanism.unbounded_reason is None),
            partial(pool.submit, _attacked, cell, parts, file.stem, more, queue),
            partial(note_cell, group(cell), file),
        )
        for cell, file in missing
    ]
    longest_first = sorted(jobs, key=lambda job: job[0], reverse=True)
    notes = {submit(): note for _, submit, note in longest_first}
    pending = set(notes)
    while pending:
        finished, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        with suppress(Empty):
            while True:
                signs.put(queue.get_nowait())
        for future in finished:
            notes[future](future.result())


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that start here do not import the caller's script, which would begin the audit again in each."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)


def _one_control(cell: ExperimentConfig, parts: Split, control: Control, queue: "Queue[Sign] | _Signs") -> ControlRun:
    queue.put((cell_name(cell), f"control: {CONTROLS[control]}", 0))
    (run,) = run_controls(cell, parts, [control])
    return run


def _read(files: Sequence[Path]) -> list[Run]:
    return [Run.model_validate_json(file.read_text(encoding="utf-8")) for file in files]


def _run_here(
    missing: Sequence[tuple[ExperimentConfig, Path]],
    parts: Split,
    more: ExtraAudits,
    groups: Mapping[str, ExperimentConfig],
    signs: _Signs,
) -> None:
    """Cells one after another, with one thread as workers have, after their controls."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        beside = {
            key: [_one_control(cell, parts, control, signs) for control in more.controls]
            for key, cell in groups.items()
        }
        for cell, file in missing:
            run, evaluated = _attacked(cell, parts, file.stem, more, signs)
            _write(file, with_controls(run, evaluated, beside.get(group(cell), ())))
    finally:
        torch.set_num_threads(threads)


def _attacked(
    cell: ExperimentConfig, parts: Split, run_name: str, more: ExtraAudits, queue: "Queue[Sign] | _Signs"
) -> tuple[Run, RoundEvaluation]:
    """A cell, trained and attacked, and what single users reached."""
    name = cell_name(cell)

    def report(t: int, evaluated: object) -> None:
        del evaluated
        queue.put((name, f"round {t + 1} of {cell.rounds}", 1))

    experiment = Experiment(cell, parts)
    result = experiment.run(progress=report)
    queue.put((name, "attacking", 0))
    run = as_run(experiment.on_host(), result, run_name, more)
    queue.put((name, "attacked", ATTACKS_AS_ROUNDS))
    return run, result.selected


def _write(file: Path, run: Run) -> None:
    """A finished cell, whole or not at all."""
    partial_file = file.with_suffix(".partial")
    partial_file.write_text(run.model_dump_json(), encoding="utf-8")
    partial_file.replace(file)


def as_run(
    experiment: Experiment,
    result: RunResult,
    name: str,
    more: ExtraAudits = ExtraAudits(),
) -> Run:
    """Attack a finished run and put everything measured into one record."""
    config, state = experiment.config, experiment.config.protocol.state
    started = time.perf_counter()
    findings = attack_taps(experiment, result.transcript.joined, config.rounds, result.guarantee)
    by_support, support = attack_supports(experiment, config.rounds, result.costs)
    program = [query.schema for query in experiment.registered.training.program(experiment.server)]
    empirical = findings.empirical + audit_mechanism(
        config.privacy, experiment.server.schema, experiment.n_users, program=program, fidelity=config.fidelity
    )
    attributes, undone = [], list[NotRun]()
    if more.attributes and config.method_name != POPULARITY:
        inferred = attack_attributes(experiment, result.transcript.joined)
        attributes, undone = inferred.rows, inferred.not_run
    if more.canaries and config.privacy.mechanism.unbounded_reason is None:
        by_canaries, refused = _with_canaries(experiment, more.canaries)
        empirical, undone = empirical + by_canaries, undone + refused
    checks = check_run(experiment, result)
    attack_s = time.perf_counter() - started
    trained = experiment.registered.training.step is not None
    costs, selected = result.costs, result.selected
    paired = None if config.method_name == POPULARITY else gain_over_popularity(experiment, selected)
    gain = None if paired is None else Interval.model_validate(paired.model_dump())
    client_rounds = max(costs.client_rounds, 1)
    privacy_s = costs.seconds["privacy"]
    return Run(
        run_id=name,
        method=config.method_name,
        our_variant=our_variant(config.method),
        setting=Setting(slug=config.privacy.slug, name=config.privacy.name),
        plan=config.privacy.to_dict(),
        seed=config.seed,
        rounds=config.rounds,
        clients_per_round=config.privacy.sampling.expected(experiment.n_users),
        sampling=config.privacy.sampling.label,
        fidelity=config.fidelity,
        aborted_rounds=costs.aborted_rounds,
        decisions=result.decisions,
        utility=[
            UtilityRow(
                part=part,
                round=selected.round + 1,
                state=state if trained else "received",
                gain=gain if part == "test" and selected.by_user and (m.name, m.k) == selected.by_user[:2] else None,
                **m.model_dump(exclude={"noise"}),
            )
            for part, evaluated in selected.results.items()
            for m in evaluated.metrics
        ],
        lists=_lists(selected.results["test"]) if "test" in selected.results else None,
        guarantee=GuaranteeRow.model_validate(result.guarantee.model_dump()),
        attacks=findings.rows + by_support,
        support=support,
        empirical=empirical,
        checks=checks,
        attributes=attributes,
        links=findings.links,
        ledger=_ledger(result),
        not_run=undone,
        inclusion=0 if experiment.inclusion is None else len(experiment.inclusion),
        comm=TrafficRow(
            up_bytes_per_client_round=costs.up_bytes / client_rounds,
            down_bytes_per_client_round=costs.down_bytes / client_rounds,
        ),
        wall=TimeRow(
            train_s=result.wall_seconds - privacy_s,
            privacy_s=privacy_s,
            attack_s=attack_s,
            cpu_s=result.cpu_seconds,
        ),
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        clipped_fraction=result.clipped_fraction,
    )


def with_controls(run: Run, evaluated: RoundEvaluation, controls: Sequence[ControlRun]) -> Run:
    """A run and the controls that it is compared with, by what single users reached."""
    beside, without = compared(evaluated, controls)
    checks = run.checks + check_controls(controls)
    return run.model_copy(update={"controls": beside, "not_run": run.not_run + without, "checks": checks})


def _with_canaries(experiment: Experiment, k: int) -> tuple[list[EmpiricalRow], list[NotRun]]:
    """What canaries say of a second training, or why they cannot."""
    try:
        single = experiment.config.privacy.mechanism.release == "individual"
        return (audit_wire_canaries if single else audit_canaries)(experiment.config, experiment.parts, k), []
    except CanaryError as reason:
        return [], [NotRun(what=f"canaries for {cell_name(experiment.config)}", why=str(reason))]


def _lists(evaluated: EvaluationResult) -> ListsRow | None:
    """What was recommended; None where it was not measured exactly."""
    beyond = evaluated.beyond
    if beyond is None or beyond.coverage is None:
        return None
    return ListsRow.model_validate(beyond.model_dump(include={"k", "coverage", "popularity_lift"}))


def _ledger(result: RunResult) -> list[LedgerLine]:
    """The releases that epsilon was computed from, and why it is infinite where it is."""
    lines = [
        LedgerLine(event=str(release), times=release.count, squared_mu=squared_mu(release))
        for release in result.composition.releases
    ]
    reasons = [LedgerLine(event=f"no bound: {why}", times=1) for why in result.composition.reasons]
    return lines + reasons


def _once(reasons: Sequence[NotRun]) -> list[NotRun]:
    return [reason for index, reason in enumerate(reasons) if reason not in reasons[:index]]


def run_id(cell: ExperimentConfig, data: str, more: ExtraAudits = ExtraAudits()) -> str:
    """Readable and unique: method, plan, seed, and a digest of configuration, data and version."""
    further = {name: value for name, value in asdict(more).items() if name != "controls" or value}
    decides = {"cell": cell.decides(), "data": data, "privfed": privfed.__version__} | further
    digest = config_sha256(decides)[:12]
    return f"{formatting.file_name(cell.method_name)}-{cell.privacy.slug}-seed{cell.seed}-{digest}"


def cell_name(cell: ExperimentConfig) -> str:
    """For progress lines."""
    return f"{cell.method_name}, {cell.privacy.name}, seed {cell.seed}"


def environment(device: str = "cpu") -> dict[str, JsonValue]:
    """Versions, the kind of machine and where its runs trained; nothing that names the machine."""
    machine: dict[str, JsonValue] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads_per_run": 1,
        "device": str(usable(device)),
    }
    packages = ("torch", "numpy", "dp-accounting", "opacus", "cryptography")
    return machine | {name: version(name) for name in packages}


def planted_control(users: int = 20, items: int = 300, width: int = 8) -> SelfCheck:
    """The sign attack on uploads made to be recoverable: it must find them, or low numbers mean nothing."""
    rng = np.random.default_rng(0)
    members = rng.random((users, items)) < 0.08
    negatives = ~members & (rng.random((users, items)) < 0.3)
    direction = rng.normal(size=(users, 1, width))
    uploads = ((members.astype(float) - 0.3 * negatives)[:, :, None] * direction).astype(np.float32)
    scores = RankOneSign().score(ServerView(0, uploads), AttackerKnowledge(np.zeros(items)))
    everything = Targets.trained_vs_never_seen(members, members)
    auc = float(np.nanmean(user_auc(scores, everything.members, everything.candidates)))
    return SelfCheck(
        name="planted uploads",
        passed=auc > 0.99,
        detail=f"the rank-1 sign attack reached AUC {auc:.3f} on them",
    )


def not_run(config: AuditConfig) -> list[NotRun]:
    """What a reader may expect of such an audit and will not find."""
    reasons = [
        NotRun(
            what="gradient inversion and active attacks",
            why="the adversary follows the protocol; a server that sends manipulated models or items sees more",
        ),
    ]
    if usable(config.device) == HOST:
        reasons.append(NotRun(what="GPU runs", why="runs trained on the CPU: set device=cuda where there is one"))
    if not config.taps.training_oracles:
        why = "training oracles (IMIA, two-world, public score) cost further trainings: set taps.training_oracles=true"
        reasons.append(NotRun(what="attacks that repeat local training", why=why))
    if not config.taps.shadows:
        why = "they train further models with other inclusion bits: set taps.shadows=2 or more"
        reasons.append(NotRun(what="shadow-model attacks (RMIA, LiRA)", why=why))
    if not config.attributes:
        reasons.append(NotRun(what="attribute inference", why="set attributes=true where the data know their users"))
    if not config.canaries:
        why = "they need a second training with canary clients: set canaries=200 or more"
        reasons.append(NotRun(what="the epsilon of whole people, by canaries", why=why))
    if missing := [name for control, name in CONTROLS.items() if control not in config.controls]:
        why = "each is a further training, of devices alone one for every device: name those you want in controls"
        reasons.append(NotRun(what=f"controls ({formatting.listed(missing)})", why=why))
    return reasons
