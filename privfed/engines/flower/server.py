"""The server side of the app that Flower ships: it trains the experiment of a file that lies on the server.

    flwr run app --run-config 'federation="/srv/federation.toml"'

    [federation]                                # federation.toml
    folder = "/srv/run"                         # ledger, checkpoints, result; a run that was cut off goes on from here
    data = "/srv/catalogue"                     # what the server knows (NodeData.for_server)
    party = "/srv/server"                       # the server's key and the signed federation file, if not with the data
    donors = "/srv/donors.csv"                  # histories that people opened, with split = { donors = ["7", "203"] }
    nodes = 3                                   # waits for so many before it begins
    monitor = "127.0.0.1:9401"                  # health and metrics, where anybody wants them
    log = "json"                                # or "text"
    [federation.experiment]
    method = { name = "private-gram" }
    privacy = { ... }
    evaluation = { private = true, mu = 0.3 }   # quality as one more noisy sum that epsilon covers

The result is `result.json` in the run's folder: quality, guarantee, bytes and seconds. The trained public tensors are
in `checkpoint/server.safetensors`.
"""

import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field

from privfed.engines.flower.transport import FlowerTransport
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.open_histories import read_open_histories
from privfed.engines.nodes.operations import RoundReport, ServerMonitor, escape, logging_to, round_line, serve_monitor
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.run import NodesResult, train
from privfed.engines.nodes.two_servers import FIDELITY
from privfed.evaluation import about_metrics
from privfed.privacy import configure
from privfed.setup.config import ExperimentConfig

RESULT = "result.json"

_log = logging.getLogger("privfed.server")


class FederationConfigError(ValueError):
    """The file of a federation is missing or says something else than a federation."""


class TooFewNodesError(RuntimeError):
    """Not enough nodes connected in time."""


class FederationConfig(BaseModel):
    """What a server knows about a run.

    Attributes:
        experiment: method, plan, rounds, protocol.
        data: folder of what the server knows of the population.
        folder: of the run.
        party: folder of the server's key and the signed federation file; None where they lie with the data.
        donors: file of the histories that people opened (`open_histories`), whom `experiment.split.donors` names; None
            without any.
        nodes: how many it waits for before it begins; one more, the helper, where sums are made between two servers.
        wait: seconds it waits for them.
        timeout: seconds in which nodes answer a stage.
        min_nodes: smallest number of nodes whose sum is opened, beyond what the federation file asks for.
        seeded: keys of all users follow from the experiment's seed: a simulation over processes, which protects nobody.
        parts: held-out parts to measure exactly, as far as nodes let sums of metrics leave; none where the experiment
            measures privately.
        until: rounds after which to stop, as for a refresh a week; started again, a server goes on. None ends the run.
        monitor: address at which health and metrics are served; None serves nothing.
        log: kind of the lines that follow the run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: ExperimentConfig
    data: Path
    folder: Path
    party: Path | None = None
    donors: Path | None = None
    nodes: int = Field(3, ge=3, description="how many nodes to wait for")
    wait: float = Field(600.0, gt=0, description="seconds to wait for them")
    timeout: float = Field(600.0, gt=0, description="seconds in which nodes answer a stage")
    min_nodes: int = Field(3, ge=3, description="smallest number of nodes whose sum is opened")
    seeded: bool = Field(default=False, description="all keys follow from the seed: for trials")
    parts: tuple[Literal["valid", "test"], ...] = Field((), description="held-out parts to measure")
    until: int | None = Field(None, ge=1, description="rounds after which to stop, to be started again later")
    monitor: str | None = Field(None, description="address of health and metrics, such as 127.0.0.1:9401")
    log: Literal["text", "json"] = Field("text", description="kind of log lines")

    @classmethod
    def read(cls, path: Path) -> "FederationConfig":
        """The federation in a TOML or JSON file, under `federation`; relative paths start at the file.

        Raises:
            FederationConfigError: there is no such file, or it is neither.
            PlanError: an unknown key or a bad value, in one sentence.
        """
        try:
            read = json.loads if path.suffix == ".json" else tomllib.loads
            table: dict[str, Any] = read(path.read_text())["federation"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FederationConfigError(f"{path} says nothing of a federation ({error!r}): mend it") from error
        named = (key for key in ("data", "folder", "party", "donors") if isinstance(table.get(key), str))
        paths = {key: path.parent / table[key] for key in named}
        return configure(cls, table | paths)


def server_app(federation: FederationConfig | None = None) -> ServerApp:
    """The ServerApp of a federation.

    Args:
        federation: what to train; None reads the file that the run's configuration names under `federation`.
    """
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        train_over(grid, federation or _named(context))

    app.main()(main)
    return app


def train_over(grid: Grid, federation: FederationConfig) -> NodesResult:
    """Train over Flower's Grid and write the result.

    Raises:
        TooFewNodesError: fewer nodes connected than the federation waits for, or too few took part in every round.
        NodesError, LedgerError: as `privfed.engines.nodes.run.train` says.
    """
    experiment = federation.experiment
    monitor = ServerMonitor(federation.folder, experiment.rounds + experiment.evaluation.private)
    with logging_to(sys.stdout, federation.log, "privfed"), serve_monitor(monitor, federation.monitor):
        return _train(grid, federation, monitor)


def _train(grid: Grid, federation: FederationConfig, monitor: ServerMonitor) -> NodesResult:
    transport = FlowerTransport(grid)
    wanted = federation.nodes + (federation.experiment.fidelity == FIDELITY)
    connected = transport.wait_for(wanted, federation.wait)
    if len(connected) < wanted:
        raise TooFewNodesError(
            f"{len(connected)} of {wanted} nodes connected within {federation.wait:.0f} s: start the others, "
            f"register their keys, or wait for fewer"
        )

    def progress(report: RoundReport) -> None:
        monitor.update(report)
        _log.info(
            "%s", round_line(report),
            extra={"event": "round", "round": report.round, "code": "aborted" if report.reason else "opened",
                   "seconds": round(report.seconds, 3)},
        )  # fmt: skip

    _log.info("%d nodes are connected; %s begins", len(connected), federation.experiment.method_name)
    trained = train(
        federation.experiment,
        _data(federation),
        Party.load(federation.party or federation.data),
        transport,
        federation.folder,
        seeded=federation.seeded,
        timeout=federation.timeout,
        min_nodes=federation.min_nodes,
        parts=federation.parts,
        until=federation.until,
        progress=progress,
    )
    (federation.folder / RESULT).write_text(json.dumps(_result(trained, connected), indent=1))
    private = federation.experiment.evaluation.private
    if trained.traffic.aborted_rounds - (private and not trained.history) == federation.experiment.rounds:
        reasons = "; ".join(sorted({f"{i.node}: {i.reason}" for i in trained.incidents}))
        raise TooFewNodesError(
            f"every round was aborted, so nothing was trained: {escape(reasons or 'no node gave a reason')}"
        )
    measured = [about_metrics(private=private)] if trained.history else []
    if not private and not federation.parts:
        measured = ["no quality was measured: set evaluation.private = true, or parts, which no epsilon covers"]
    for note in [*trained.notices, *measured]:
        _log.info("note: %s", note)
    _log.info("done: epsilon %.3f at delta %g", trained.guarantee.epsilon, trained.guarantee.delta)
    return trained


def _data(federation: FederationConfig) -> NodeData:
    """What the server knows, with the histories that people opened."""
    data = NodeData.load(federation.data)
    if federation.donors is None:
        return data
    return data.with_donors(read_open_histories(federation.donors, data.population, data.items))


def _named(context: Context) -> FederationConfig:
    path = context.run_config.get("federation")
    if not isinstance(path, str) or not path:
        raise FederationConfigError(
            "the run names no federation: add --run-config 'federation=\"/path/federation.toml\"' to flwr run"
        )
    return FederationConfig.read(Path(path))


def _result(trained: NodesResult, connected: Any) -> dict[str, Any]:
    """Everything that a report needs, as JSON."""
    traffic = trained.traffic
    return {
        "run": trained.announced.run,
        "nodes": list(connected),
        "guarantee": trained.guarantee.model_dump(mode="json"),
        "quality": [
            {"round": e.round, **{part: r.model_dump(mode="json") for part, r in e.results.items()}}
            for e in trained.history
        ],
        "exchanges": traffic.exchanges,
        "up_bytes": traffic.up_bytes,
        "down_bytes": traffic.down_bytes,
        "seconds": traffic.seconds,
        "aborted_rounds": traffic.aborted_rounds,
        "missing": traffic.missing,
        "notices": list(trained.notices),
        "incidents": [[i.node, i.stage, i.reason] for i in trained.incidents],
    }
