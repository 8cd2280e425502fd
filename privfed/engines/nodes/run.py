"""Training an experiment over nodes: rounds, checkpoints, and what a server that was killed continues from.

run.json         the announcement: run, settings, public key
secret.key       the server's own secret
starts           how often a server was started on this folder
ledger.jsonl     every query, before its sum is opened
releases/        releases since the last checkpoint
checkpoint/      public tensors, and what the federation remembers of nodes
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from privfed.engines.checkpoint import Checkpoint, SavedEvaluation
from privfed.engines.final_queries import measurement
from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.channel import Incident, MessageTraffic
from privfed.engines.nodes.errors import NodesError, StateError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.journal import Journal
from privfed.engines.nodes.measuring import Part
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.open_histories import require_open_histories
from privfed.engines.nodes.operations.progress import RoundReport, round_report
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.remote_federation import FederationProgress, RemoteFederation
from privfed.engines.nodes.transport import Transport
from privfed.engines.nodes.two_servers import FIDELITY
from privfed.evaluation import COUNTED, UNCOUNTED, RoundEvaluation
from privfed.federation import Server
from privfed.guards.server_guard import ServerGuard
from privfed.privacy import Guarantee, Ledger
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig
from privfed.setup.donors import donors_warning
from privfed.setup.sizing import size

_NODES_SEE = (
    "A node holds the data of its own users and adds up their protected uploads itself, so what is claimed against the "
    "server and other nodes is not claimed against a user's own node."
)
_HELPER = (
    "Sums were made between the server and the helper that the federation file names: what is claimed against the "
    "server is claimed as long as these two do not collude."
)
_MEASURED = f"Sums of metrics over the nodes' users were opened to measure quality. {UNCOUNTED}"
NOT_MEASURED = (
    "The round that measures quality was aborted, so there is no quality to report; nodes that had answered by then "
    "have charged it, and it is not asked for again."
)
_RUN, _ROOT, _LEDGER, _CHECKPOINT, _RELEASES = "run.json", "secret.key", "ledger.jsonl", "checkpoint", "releases"
_STARTS = "starts"

Progress = Callable[[RoundReport], None]


@dataclass(frozen=True, slots=True, eq=False)
class NodesResult:
    """The result of a run over nodes.

    Attributes:
        announced: the run.
        server: the trained server side.
        ledger: of the server.
        guarantee: what it can claim.
        history: quality at evaluated rounds, as far as nodes let sums of metrics leave.
        traffic: exchanges, bytes, seconds, aborted rounds.
        incidents: replies that were not used.
        notices: what the server's ledger had to drop when the run was resumed, and that quality was not measured, a
            sentence each.
    """

    announced: Announcement
    server: Server
    ledger: Ledger
    guarantee: Guarantee
    history: list[RoundEvaluation]
    traffic: MessageTraffic
    incidents: list[Incident]
    notices: tuple[str, ...] = ()


def train(
    config: ExperimentConfig,
    data: NodeData,
    party: Party,
    transport: Transport,
    folder: Path,
    *,
    seeded: bool = False,
    timeout: float = 600.0,
    min_nodes: int = 3,
    parts: Sequence[Part] = (),
    until: int | None = None,
    progress: Progress | None = None,
) -> NodesResult:
    """Train for the configured rounds, or up to one of them; a run in the folder that was interrupted is continued.

    Args:
        config: of the experiment. Its seed decides keys only where `seeded`.
        data: what the server knows (`NodeData.for_server`).
        party: the server, with the federation file.
        transport: to the nodes.
        folder: of the run.
        seeded: whether all keys follow from the seed: a simulation over processes, which protects nobody.
        timeout: seconds in which nodes answer a stage.
        min_nodes: smallest number of nodes whose sum is opened, beyond what the federation file asks for.
        parts: held-out parts to measure in evaluated rounds; nodes decide whether they answer.
        until: rounds after which to stop, as for a refresh a week; calling again goes on. None ends the run.
        progress: called after every round with its report.

    Raises:
        NodesError: the experiment cannot be run over nodes, or the folder holds another run.
        StateError: the folder cannot be read or written.
        LedgerError: a query could not be recorded; nothing was opened.
    """
    if parts and config.evaluation.private:
        raise NodesError(
            "the run measures by a noisy sum that its plan covers, and parts would have exact sums of metrics leave: "
            "measure no parts, or set evaluation.private = false"
        )
    if parts and config.protocol.state != "received":
        raise NodesError(
            "nodes measure what their users received, and the protocol scores what a device trained before it sent "
            "anything: set protocol.state = 'received', or measure no parts"
        )
    if config.fidelity == FIDELITY and not party.federation.helper:
        raise NodesError(
            "fidelity = 'two-servers' needs a second server, and the federation file names no helper: have the "
            "operator sign one with a helper, or leave fidelity out"
        )
    require_open_histories(config, data)
    make_folder(folder)
    config = size(config, data.parts).config
    announced, starts = _announced(config, data, party.federation, folder, seeded=seeded), _started(folder)
    assembly = announced.assemble(data, _root(folder), entropy=secrets.token_bytes(ROOT_BYTES))
    ledger = _ledger(announced, folder)
    journal = Journal(folder / _RELEASES, announced.n_users)
    federation = RemoteFederation(
        transport, announced, party, ServerGuard(config.privacy, ledger, assembly.streams),
        journal=journal, timeout=timeout, min_nodes=min_nodes, starts=starts,
    )  # fmt: skip
    history: list[RoundEvaluation] = []
    first = _restored(folder, federation, assembly.server, ledger, history)
    last = config.rounds if until is None else min(until, config.rounds)
    for t in range(first, last):
        started, evaluated = time.perf_counter(), None
        federation.run(assembly.server, t)
        if parts and config.evaluated(t):
            evaluated = RoundEvaluation(t, dict(federation.measure(assembly.server.public(), t, parts)))
            history.append(evaluated)
        if (t + 1) % config.checkpoint_every == 0 or t + 1 == last:
            _save(folder, t + 1, federation, assembly.server, ledger, history)
            journal.clear()
        if progress is not None:
            progress(round_report(federation, t, time.perf_counter() - started, evaluated))
    if last == config.rounds:
        if config.evaluation.private and first <= last:
            started = time.perf_counter()
            _measure(federation, assembly, history)
            _save(folder, last + 1, federation, assembly.server, ledger, history)
            journal.clear()
            if progress is not None:
                measured = history[-1] if history else None
                progress(round_report(federation, last, time.perf_counter() - started, measured))
        federation.finish()
    guarantee, notices = ledger.guarantee(seeded=seeded), ledger.notices
    if config.evaluation.private and last == config.rounds and not history:
        notices = (*notices, NOT_MEASURED)
    disclosed = [
        *assembly.registered.disclosure.side_disclosures(config.settings()),
        _NODES_SEE,
        *([_HELPER] if config.fidelity == FIDELITY else []),
        *([COUNTED if config.evaluation.private else _MEASURED] if history else []),
    ]
    if len(announced.donors):
        disclosed.insert(0, donors_warning(len(announced.donors), announced.n_users))
    guarantee = guarantee.model_copy(update={"statements": [*guarantee.statements, *disclosed]})
    return NodesResult(
        announced, assembly.server, ledger, guarantee, history, federation.traffic, federation.incidents, notices
    )


def _measure(federation: RemoteFederation, assembly: Assembly, history: list[RoundEvaluation]) -> None:
    """Measure inside the budget, in a round of its own; an aborted one was charged to nodes and is not asked again."""
    config, asking = assembly.config, measurement(assembly)
    federation.run(asking, config.rounds)
    if (result := asking.result()) is not None:
        history.append(RoundEvaluation(config.rounds - 1, {"test": result}))


def _announced(
    config: ExperimentConfig, data: NodeData, federation: FederationFile, folder: Path, *, seeded: bool
) -> Announcement:
    """The run in the folder, or a new one that is written there."""
    path = folder / _RUN
    if not path.exists():
        if (folder / _LEDGER).exists() or Checkpoint.exists(folder / _CHECKPOINT):
            raise StateError(
                f"{path} is gone and the folder holds a run: nodes would charge what goes on as another run; bring the "
                "file back, or begin the run again in another folder"
            )
        announced = Announcement.from_config(config, data, federation, seeded=seeded)
        write_file(path, announced.model_dump_json().encode())
        return announced
    try:
        announced = Announcement.model_validate_json(read_file(path))
    except ValidationError as error:
        raise StateError(f"{path} is damaged; begin the run again in another folder") from error
    if (announced.config, announced.seeded) != (config, seeded):
        raise NodesError(
            f"{folder} holds a run with other settings; choose another folder, or the settings of that run"
        )
    if announced.federation != federation.digest:
        raise NodesError(
            f"{folder} holds a run of another version of the federation file; begin a new run in another folder"
        )
    return announced


def _started(folder: Path) -> int:
    """How often a server was started on this folder before; counted before it says anything."""
    path = folder / _STARTS
    text = read_file(path).decode(errors="replace").strip() if path.exists() else "0"
    if not text.isdecimal():
        raise StateError(f"{path} is no number of starts; begin the run again in another folder")
    write_file(path, f"{int(text) + 1}\n".encode())
    return int(text)


def _root(folder: Path) -> bytes:
    path = folder / _ROOT
    if not path.exists():
        write_file(path, secrets.token_bytes(ROOT_BYTES))
    root = read_file(path)
    if len(root) != ROOT_BYTES:
        raise StateError(f"{path} is no key of {ROOT_BYTES} bytes; begin the run again in another folder")
    return root


def _ledger(announced: Announcement, folder: Path) -> Ledger:
    path, run = folder / _LEDGER, announced.config.digest()
    if path.exists():
        return Ledger.resume(announced.config.privacy, announced.n_users, path, run=run, same_noise=announced.seeded)
    return Ledger(announced.config.privacy, announced.n_users, path, run=run)


class _NodesProgress(FederationProgress):
    """What a checkpoint of a run over nodes keeps besides tensors."""

    ledger: dict[str, JsonValue]
    history: list[SavedEvaluation]


def _save(
    folder: Path,
    next_round: int,
    federation: RemoteFederation,
    server: Server,
    ledger: Ledger,
    history: list[RoundEvaluation],
) -> None:
    progress = _NodesProgress(
        **federation.progress().model_dump(), ledger=ledger.state(), history=SavedEvaluation.from_history(history)
    )
    try:
        Checkpoint(next_round, server.state(), {}, progress.model_dump(mode="json")).save(folder / _CHECKPOINT)
    except OSError as error:
        raise StateError(
            f"{folder / _CHECKPOINT} cannot be written ({error.strerror}); make room, then go on"
        ) from error


def _restored(
    folder: Path, federation: RemoteFederation, server: Server, ledger: Ledger, history: list[RoundEvaluation]
) -> int:
    """Continue from the last checkpoint; returns the next round."""
    if not Checkpoint.exists(folder / _CHECKPOINT):
        return 0
    checkpoint = Checkpoint.load(folder / _CHECKPOINT)
    try:
        saved = _NodesProgress.model_validate(checkpoint.progress)
    except ValidationError as error:
        raise StateError(f"{folder / _CHECKPOINT} is damaged; begin the run again in another folder") from error
    server.load(checkpoint.server)
    ledger.load(saved.ledger)
    federation.restore(saved)
    history.extend(one.evaluation() for one in saved.history)
    return checkpoint.next_round
