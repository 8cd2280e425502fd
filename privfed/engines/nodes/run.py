"""Training an experiment over nodes: rounds, checkpoints, and what a server that was killed continues from.

run.json         the announcement: run, settings, public key
secret.key       the server's own secret
ledger.jsonl     every charge, before its sum is opened
releases/        releases since the last checkpoint
checkpoint/      public tensors, and what the federation remembers of nodes
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privfed.engines.checkpoint import Checkpoint
from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.errors import NodesError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.journal import Journal
from privfed.engines.nodes.measuring import Part
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.remote_federation import Incident, RemoteFederation, Traffic
from privfed.engines.nodes.transport import Transport
from privfed.evaluation import UNCOUNTED, EvaluationResult, RoundEvaluation
from privfed.federation import Server
from privfed.guards.server_guard import ServerGuard
from privfed.privacy import Guarantee, Ledger
from privfed.setup.config import ExperimentConfig

_NODES_SEE = (
    "A node holds the data of its own users and adds up their protected uploads itself, so what is claimed against the "
    "server and other nodes is not claimed against a user's own node."
)
_MEASURED = f"Sums of metrics over the nodes' users were opened to measure quality. {UNCOUNTED}"
_RUN, _ROOT, _LEDGER, _CHECKPOINT, _RELEASES = "run.json", "secret.key", "ledger.jsonl", "checkpoint", "releases"

Progress = Callable[[int, RoundEvaluation | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a run over nodes came to.

    Attributes:
        announced: the run.
        server: the trained public half.
        ledger: of the server.
        guarantee: what it can claim.
        history: quality at evaluated rounds, as far as nodes let sums of metrics leave.
        traffic: exchanges, bytes, seconds, lost rounds.
        incidents: replies that were not used.
        notices: what the server's ledger had to drop when the run was resumed, a sentence each.
    """

    announced: Announcement
    server: Server
    ledger: Ledger
    guarantee: Guarantee
    history: list[RoundEvaluation]
    traffic: Traffic
    incidents: list[Incident]
    notices: tuple[str, ...] = ()


def train(
    config: ExperimentConfig,
    data: NodeData,
    transport: Transport,
    folder: Path,
    *,
    seeded: bool = False,
    timeout: float = 600.0,
    min_nodes: int = 3,
    corrupt: float = 0.1,
    dropout: float = 0.1,
    parts: Sequence[Part] = (),
    progress: Progress | None = None,
) -> Trained:
    """Train for the configured rounds; where the folder holds a run that was interrupted, continue it.

    Args:
        config: of the experiment. Its seed decides keys only where `seeded`.
        data: what the server knows (`NodeData.of_server`).
        transport: to the nodes.
        folder: of the run.
        seeded: whether all keys follow from the seed: a simulation over processes, which protects nobody.
        timeout: seconds in which nodes answer a stage.
        min_nodes: fewest nodes whose sum is opened.
        corrupt: share of nodes that may work for the server, for the threshold of masked sums.
        dropout: share of nodes that may fall silent in a round, likewise.
        parts: held-out parts to measure where the protocol asks for it; nodes decide whether they answer.
        progress: called after every round with its number and, where it was measured, its quality.

    Raises:
        NodesError: the experiment cannot be run over nodes, or the folder holds another run.
        StateError: the folder cannot be read or written.
        LedgerError: a charge could not be written; nothing was opened.
    """
    if parts and config.protocol.state != "received":
        raise NodesError(
            "nodes measure what their users received, and the protocol scores what a device trained before it sent "
            "anything: set protocol.state = 'received', or measure no parts"
        )
    make_folder(folder)
    announced = _announced(config, data, folder, seeded=seeded)
    half = announced.half(data, _root(folder))
    ledger = _ledger(announced, folder)
    journal = Journal(folder / _RELEASES)
    federation = RemoteFederation(
        transport, announced, ServerGuard(config.privacy, ledger, half.streams), half.streams,
        journal=journal, timeout=timeout, min_nodes=min_nodes, corrupt=corrupt, dropout=dropout,
    )  # fmt: skip
    history: list[RoundEvaluation] = []
    first = _restored(folder, federation, half.server, ledger, history)
    for t in range(first, config.rounds):
        federation.run(half.server, t)
        evaluated = None
        if parts and config.evaluated(t):
            evaluated = RoundEvaluation(t, dict(federation.measure(half.server.public(), t, parts)))
            history.append(evaluated)
        if (t + 1) % config.checkpoint_every == 0 or t + 1 == config.rounds:
            _save(folder, t + 1, federation, half.server, ledger, history)
            journal.clear()
        if progress is not None:
            progress(t, evaluated)
    federation.finish()
    earned = ledger.guarantee(seeded=seeded)
    shown = [
        *half.registered.disclosure.side_disclosures(config.settings()),
        _NODES_SEE,
        *([_MEASURED] if history else []),
    ]
    claim = earned.model_copy(update={"statements": [*earned.statements, *shown]})
    return Trained(
        announced, half.server, ledger, claim, history, federation.traffic, federation.incidents, ledger.notices
    )


def _announced(config: ExperimentConfig, data: NodeData, folder: Path, *, seeded: bool) -> Announcement:
    """The run in the folder, or a new one that is written there."""
    path = folder / _RUN
    if not path.exists():
        announced = Announcement.of(config, data, seeded=seeded)
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
    return announced


def _root(folder: Path) -> bytes:
    path = folder / _ROOT
    if not path.exists():
        write_file(path, secrets.token_bytes(ROOT_BYTES), secret=True)
    return read_file(path)


def _ledger(announced: Announcement, folder: Path) -> Ledger:
    path, run = folder / _LEDGER, announced.config.digest()
    if path.exists():
        return Ledger.resume(announced.config.privacy, announced.population, path, run=run, same_noise=announced.seeded)
    return Ledger(announced.config.privacy, announced.population, path, run=run)


def _save(
    folder: Path,
    next_round: int,
    federation: RemoteFederation,
    server: Server,
    ledger: Ledger,
    history: list[RoundEvaluation],
) -> None:
    progress: dict[str, Any] = {
        **federation.progress(),
        "ledger": ledger.state(),
        "history": [[e.round, {part: r.model_dump(mode="json") for part, r in e.results.items()}] for e in history],
    }
    try:
        Checkpoint(next_round, server.state(), {}, progress).save(folder / _CHECKPOINT)
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
    server.load(checkpoint.server)
    ledger.load(checkpoint.progress["ledger"])
    federation.restore(checkpoint.progress)
    history.extend(
        RoundEvaluation(t, {part: EvaluationResult.model_validate(r) for part, r in found.items()})
        for t, found in checkpoint.progress["history"]
    )
    return checkpoint.next_round
