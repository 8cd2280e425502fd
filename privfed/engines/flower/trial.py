"""A federation on this one machine, for trials and tests: a SuperLink behind its gateway, and nodes, over TLS.

Every process is started here, as a child of this one, and is stopped with all that it started itself; nothing else is
touched. Should this process be killed, a minder ends them (`privfed.engines.flower.supervisor`).
The commands are those of a deployment (`docs/guides/deploying.md`), with addresses of this machine.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np

from privfed.data import Split
from privfed.engines.flower.keys import TrialKeys, make_keys
from privfed.engines.flower.service import PATIENCE
from privfed.engines.flower.strangers import check_strangers
from privfed.engines.flower.supervisor import Family, Supervisor, alive, family, kill
from privfed.engines.nodes.federation_file import HELPER
from privfed.engines.nodes.files import make_folder
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party, found_federation
from secure_agg.primitives.keys import Identity

CONNECTION = "trial"
"""Name of the SuperLink in the trial's Flower configuration."""

_STOPPING, _STARTING = 15.0, 300.0


class TrialError(RuntimeError):
    """A part of the trial did not start, or a run failed."""


@dataclass(slots=True)
class Trial:
    """A SuperLink, its gateway and nodes on this machine.

    Args:
        folder: of keys, logs and Flower's own files; new or empty.
        names: of the nodes.
        port: of the SuperLink, for the operator; None takes a free one.
        gateway_port: of the gateway, for the nodes; None takes a free one.
        environment: variables for all processes, over those of this one.

    Attributes:
        keys: certificates and node keys.
        processes: all that run, by what they are.
    """

    folder: Path
    names: Sequence[str]
    port: int | None = None
    gateway_port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: TrialKeys = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)
    _logs: list[IO[bytes]] = field(init=False, default_factory=list)
    _sockets: tempfile.TemporaryDirectory[str] = field(init=False)
    _minder: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.keys = make_keys(self.folder / "keys", self.names)
        self.port = self.port or free_port()
        self.gateway_port = self.gateway_port or free_port()
        self._sockets = tempfile.TemporaryDirectory(prefix="privfed-")
        self._minder = Supervisor()

    @property
    def address(self) -> str:
        """Of the SuperLink, for the operator."""
        return f"127.0.0.1:{self.port}"

    @property
    def gateway(self) -> str:
        """Address of the gateway, for the nodes and everybody else."""
        return f"127.0.0.1:{self.gateway_port}"

    def socket(self, name: str) -> Path:
        """Where a node serves: in a folder with a short name, because a socket's path may have about 100 bytes."""
        return Path(self._sockets.name) / f"{name}.sock"

    def log(self, process: str) -> Path:
        """What a process wrote."""
        return self.folder / "logs" / f"{process}.log"

    def start_superlink(self) -> None:
        """Start the SuperLink, wait until it answers, and register all nodes' public keys.

        Its state is in a database, so that nodes and their keys survive its restart.
        """
        home = self.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n'
            f'root-certificates = "{self.keys.authority}"\n'
        )
        first = not (self.folder / "superlink.db").exists()
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth"]
        command += ["--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation"]
        self.start("superlink", [*command, *self._tls()])
        self._wait_for_port("superlink", self.port)
        for name in self.names if first else ():
            self.flwr("supernode", "register", str(self.keys.public(name)), CONNECTION, "--name", name)

    def start_gateway(self) -> list[str]:
        """Start the gateway to the SuperLink and check that strangers are refused there.

        Returns:
            What a stranger tried in vain.

        Raises:
            StrangersError: they are not.
        """
        command = [sys.executable, "-m", "privfed.engines.flower", "gateway", self.gateway, "--superlink", self.address]
        command += ["--nodes", str(self.keys.folder / "nodes"), "--certificate", str(self.keys.certificate)]
        self.start("gateway", [*command, "--key", str(self.keys.key), "--authority", str(self.keys.authority)])
        self._wait_for_port("gateway", self.gateway_port)
        return check_strangers(self.gateway, self.keys.authority)

    def start_supernode(self, name: str, node_config: str, superlink: str | None = None) -> None:
        """Start a node's SuperNode.

        Args:
            name: of the node.
            node_config: Flower's `--node-config`, such as `socket="/path/node.sock"`.
            superlink: address at which it finds the SuperLink, where that is not the gateway's.
        """
        command = [
            "flower-supernode",
            "--superlink",
            superlink or self.gateway,
            "--root-certificates",
            str(self.keys.authority),
        ]
        command += ["--auth-supernode-private-key", str(self.keys.private(name)), "--host", "127.0.0.1"]
        command += ["--port", str(free_port()), "--node-config", node_config]
        self.start(f"supernode-{name}", [*command, *self._tls()])

    def start_node(self, name: str, folder: Path, command: Sequence[str] = ()) -> None:
        """Start the process of the node that lives in `folder`; `wait_for_nodes` waits until it serves.

        Args:
            name: of the node.
            folder: its own, with policy and users.
            command: what serves the node at the socket that is its last word; none is privfed's own.
        """
        self.socket(name).unlink(missing_ok=True)
        own = [sys.executable, "-m", "privfed.engines.flower", "node", str(folder), "--socket"]
        self.start(f"node-{name}", [*(command or own), str(self.socket(name))])

    def wait_for_nodes(self) -> None:
        """Wait until every node that was started serves at its socket."""
        end = time.monotonic() + _STARTING
        for name in self.names:
            process = f"node-{name}"
            while process in self.processes and not self.socket(name).exists():
                self._check(process)
                if time.monotonic() > end:
                    raise TrialError(f"the node {name} does not serve after {_STARTING:.0f} s: see {self.log(process)}")
                time.sleep(0.1)

    def start_supernodes(self, superlink: str | None = None, *, patience: float = PATIENCE) -> None:
        """Start the SuperNode of every node, at the node's socket.

        Args:
            superlink: as for `start_supernode`.
            patience: seconds that a node's process is given to be started again.
        """
        for name in self.names:
            self.start_supernode(name, f'socket="{self.socket(name)}" patience={patience:.1f}', superlink)

    def start_run(self, process: str, app: Path, federation: Path) -> None:
        """Start `flwr run`, which ends with the run; `wait` waits for it."""
        given = f"federation={json.dumps(str(federation))}"
        self.start(process, ["flwr", "run", str(app), CONNECTION, "--run-config", given, "--stream"])

    def flwr(self, *arguments: str, timeout: float = _STARTING, show: bool = False) -> None:
        """Run Flower's own command.

        Args:
            arguments: such as `run`, a folder and a connection.
            timeout: seconds it may take.
            show: let it write to this process's output, as it comes, instead of its log.

        Raises:
            TrialError: it failed or took longer than `timeout` seconds.
        """
        with self._written("flwr") as log:
            try:
                code = subprocess.run(  # noqa: S603 - a program of this environment, with arguments of the trial
                    self._found(["flwr", *arguments]),
                    env=self._environment(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=None if show else log,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise TrialError(f"flwr {arguments[0]} took longer than {timeout:.0f} s: see {log.name}") from error
        if code:
            raise TrialError(f"flwr {arguments[0]} failed with code {code}: see {self.log('flwr')}")

    def start(self, process: str, command: Sequence[str]) -> None:
        """Start a process under a name; what it writes goes to its log."""
        if process in self.processes:
            raise TrialError(f"{process} runs already: stop it first")
        log = self._written(process)
        self.processes[process] = subprocess.Popen(  # noqa: S603 - the same
            self._found(command),
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._minder.watch(self.processes[process].pid)

    def stop(self, process: str, *, kill: bool = False) -> None:
        """Stop a process and all that it started, or kill them outright as a power cut would."""
        self._end([process], signal.SIGKILL if kill else signal.SIGTERM)

    def wait(self, process: str, timeout: float) -> int:
        """Wait until a process has ended by itself; returns its code, negative for the signal that killed it.

        Raises:
            TrialError: it still runs after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while not self.ended(process):
            if time.monotonic() > end:
                raise TrialError(f"{process} still runs after {timeout:.0f} s: see {self.log(process)}")
            time.sleep(0.05)
        return self._reap(self.processes.pop(process))

    def ended(self, process: str) -> bool:
        """Whether a process that was started has ended by itself."""
        return _ended(self.processes[process])

    def close(self) -> None:
        """Stop everything that was started here: what nodes take their leave of last."""
        self._end([process for process in self.processes if process not in ("superlink", "gateway")], signal.SIGTERM)
        self._end(list(self.processes), signal.SIGTERM)
        self._minder.close()
        for log in self._logs:
            log.close()
        self._logs.clear()
        self._sockets.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, processes: Sequence[str], number: int) -> None:
        """Send a signal to all of these at once; whatever of theirs has not ended in time is killed."""
        running = [self.processes.pop(process) for process in processes]
        known = family(one.pid for one in running)
        for one in running:
            if one.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)
        end = time.monotonic() + (0.0 if number == signal.SIGKILL else _STOPPING)
        while (alive(known) or not all(map(_ended, running))) and time.monotonic() < end:
            time.sleep(0.05)
        for one in running:
            self._reap(one, known)

    def _reap(self, running: subprocess.Popen[bytes], known: Family | None = None) -> int:
        """Kill what is left of a process and of those that it started; returns its code."""
        if running.returncode is None:
            kill([running.pid], known or family([running.pid]))
        code = running.wait()
        self._minder.forget(running.pid)
        return code

    def _tls(self) -> list[str]:
        files = {"ca-certfile": self.keys.authority, "certfile": self.keys.certificate, "keyfile": self.keys.key}
        return [word for name, file in files.items() for word in (f"--ssl-{name}", str(file))]

    def _environment(self) -> dict[str, str]:
        quick = {"FLWR_HOME": str(self.folder / "flower"), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, "PATH": path, **quick, **quiet, **self.environment}

    def _found(self, command: Sequence[str]) -> list[str]:
        program = shutil.which(command[0], path=self._environment()["PATH"])
        if program is None:
            raise TrialError(f"{command[0]} is not installed: pip install 'privfed[flower]'")
        return [program, *command[1:]]

    def _written(self, process: str) -> IO[bytes]:
        path = self.log(process)
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("ab")
        self._logs.append(log)
        return log

    def _check(self, process: str) -> None:
        if _ended(self.processes[process]):
            code = self._reap(self.processes.pop(process))
            raise TrialError(f"{process} ended with code {code}: see {self.log(process)}")

    def _wait_for_port(self, process: str, port: int | None) -> None:
        end = time.monotonic() + _STARTING
        while time.monotonic() < end:
            self._check(process)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port or 0), timeout=1.0):
                return
            time.sleep(0.1)
        raise TrialError(f"{process} does not answer after {_STARTING:.0f} s: see {self.log(process)}")


def share_out(
    parts: Split, policy: str, folder: Path, names: Sequence[str], *, public: bool = False, helper: bool = False
) -> list[Path]:
    """Make the nodes' folders from data that a trial has in one place: every node gets each n-th user and the policy.

    Args:
        parts: of the whole population.
        policy: text of `node.toml`.
        folder: where the nodes' folders are made.
        names: of the nodes.
        public: whether everybody's training items are public (`Method.public_target`).
        helper: whether there is a helper of sums between two servers, whom the nodes trust; its folder is `helper`.

    Returns:
        The nodes' folders, in the order of `names`. Beside them lies `server`, with what the server knows. Each has its
        key and the federation file, signed by an operator whose own key is not kept.
    """
    users = parts.train.n_users
    shards = [np.arange(place, users, len(names)) for place in range(len(names))]
    helping = Identity.generate()
    party, organisations, operator = found_federation(
        shards, users, parts.train.n_items, names=names, helper=helping.public if helper else b""
    )
    signature = party.federation.signature(operator)
    if helper:
        make_folder(folder / HELPER)
        Party.from_identity(party.federation, helping).save(folder / HELPER, signature, operator.public)
        (folder / HELPER / "node.toml").write_text(policy)
        policy = f'{policy}helper = "{helping.public.hex()}"\n'
    folders = [folder / name for name in (*names, "server")]
    for own, member in zip(folders, (*organisations, party), strict=True):
        make_folder(own)
        member.save(own, signature, operator.public)
    for own, hosted in zip(folders, shards, strict=False):
        (own / "node.toml").write_text(policy)
        NodeData.from_split(parts, hosted, public=public).save(own)
    NodeData.for_server(parts, public=public).save(folders[-1])
    return folders[:-1]


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ended(running: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended. Its number, which is that of its group, stays taken until it is reaped."""
    if running.returncode is not None:
        return True
    return os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
