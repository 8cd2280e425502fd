"""Transports on this machine: one process per node, which tests kill and delay, and nodes that live in this process.

Neither hides anything from whoever runs this machine. What they share with a network is all that decides results: bytes
alone go to and fro, and a node may be gone at any moment.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch

from privfed.engines.nodes.helper import Helper
from privfed.engines.nodes.hosting import hosted
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.transport import Handler, NodeId

Fault = Literal["drop", "kill_before", "kill_after", "late"]
"""What goes wrong with one request: it is dropped; the node is killed before or while it works; its reply is late."""

Faults = Callable[[NodeId, str], Fault | None]

_STAGE_BYTES = 64


def no_faults(node: NodeId, stage: str) -> Fault | None:
    """Nothing goes wrong."""
    del node, stage
    return None


def serve(folder: str, connection: Connection) -> None:
    """The life of a node's process: answer what comes until the other end is gone."""
    torch.set_num_threads(1)
    node: Node | Helper | None = None
    with suppress(EOFError, KeyboardInterrupt, ConnectionError):
        while True:
            frame = connection.recv_bytes()
            node = node or hosted(folder)
            stage = frame[:_STAGE_BYTES].rstrip(b" ").decode()
            connection.send_bytes(node.handle(stage, frame[_STAGE_BYTES:]))


class _Worker:
    """One node's process and the pipe to it."""

    def __init__(self, folder: Path, method: str) -> None:
        context = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(str(folder), theirs), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()

    def request(self, stage: str, request: bytes) -> bytes:
        self.connection.send_bytes(stage.encode().ljust(_STAGE_BYTES) + request)
        return self.connection.recv_bytes()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Loopback:
    """One process per node.

    Args:
        folders: by node, its folder with policy and data.
        method: how processes start: `spawn`, or `forkserver`, which loads the libraries once.
        faults: called before every request for what goes wrong with it; a node that was killed is started again when
            it is next connected to.
    """

    def __init__(self, folders: Mapping[NodeId, Path], *, method: str = "spawn", faults: Faults = no_faults) -> None:
        if method == "forkserver":
            multiprocessing.get_context(method).set_forkserver_preload(["privfed.engines.nodes.node"])
        self.folders, self.faults = dict(folders), faults
        self.restarts = 0
        self._method = method
        self._workers: dict[NodeId, _Worker] = {}
        self._pool = ThreadPoolExecutor(max(1, len(self.folders)))
        self._busy: dict[NodeId, Future[bytes]] = {}
        for node in self.folders:
            self.start(node)

    def start(self, node: NodeId) -> None:
        """Start a node's process, unless it runs."""
        if node not in self._workers:
            self._workers[node] = _Worker(self.folders[node], self._method)

    def kill(self, node: NodeId) -> None:
        """Kill a node's process with SIGKILL, wherever it is."""
        worker = self._workers.pop(node, None)
        if worker is not None:
            worker.kill()

    @property
    def pids(self) -> dict[NodeId, int]:
        """Processes that run, by node."""
        return {node: worker.process.pid for node, worker in self._workers.items()}

    def close(self) -> None:
        """End all processes."""
        for node in list(self._workers):
            self.kill(node)
        self._pool.shutdown(wait=True)

    def __enter__(self) -> "Loopback":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def nodes(self) -> Sequence[NodeId]:
        """All nodes; one that was killed comes back."""
        for node in self.folders:
            if node not in self._workers:
                self.start(node)
                self.restarts += 1
        return list(self.folders)

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Ask the nodes' processes; who is gone or late is missing."""
        replies: dict[NodeId, Future[bytes]] = {}
        late: set[NodeId] = set()
        for node, request in requests.items():
            busy, fault = self._busy.get(node), self.faults(node, stage)
            if fault == "kill_before":
                self.kill(node)
            if fault == "drop" or node not in self._workers or (busy is not None and not busy.done()):
                continue
            self._busy[node] = replies[node] = self._pool.submit(self._workers[node].request, stage, request)
            if fault == "kill_after":
                self.kill(node)
            elif fault == "late":
                late.add(node)
        wait(replies.values(), timeout=timeout)
        return {
            node: reply.result()
            for node, reply in replies.items()
            if reply.done() and reply.exception() is None and node not in late
        }


class InProcess:
    """Nodes in this process, each still behind bytes.

    Args:
        handlers: by node. A function that makes one is called for every message, as an engine does that starts a fresh
            process for each.
        faults: called before every request for what goes wrong with it; nodes cannot be killed here.
        tamper: may replace a reply; None replaces none.
    """

    def __init__(
        self,
        handlers: Mapping[NodeId, Handler | Callable[[], Handler]],
        *,
        faults: Faults = no_faults,
        tamper: Callable[[NodeId, str, bytes], bytes] | None = None,
    ) -> None:
        self.handlers, self.faults, self.tamper = dict(handlers), faults, tamper

    def nodes(self) -> Sequence[NodeId]:
        """All of them."""
        return list(self.handlers)

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Ask one after another; who is late when the time is over is missing."""
        replies, end = {}, time.monotonic() + timeout
        for node, request in requests.items():
            fault, handler = self.faults(node, stage), self.handlers[node]
            if fault in ("drop", "kill_before") or time.monotonic() > end:
                continue
            reply = (handler() if callable(handler) else handler).handle(stage, request)
            if fault is None:
                replies[node] = reply if self.tamper is None else self.tamper(node, stage, reply)
        return replies
