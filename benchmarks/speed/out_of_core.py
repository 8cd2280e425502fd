"""A round of more clients than memory holds: private state in files, under a limit of data.

    python -m benchmarks.speed.out_of_core pfedrec --users 10000000 --limit 8 --folder /somewhere/with/space

trains every client for one round, writes a checkpoint and reads it again. The process may have `--limit` GiB of data
(`RLIMIT_DATA`: heap and private mappings); `--in-memory` shows what the same limit does to a run whose private state is
no file. PFedRec's clients keep a head of dim + 1 numbers, FedVAE's nothing. Pages of the shards are the kernel's cache
of a file: they count in the resident set (`VmHWM`) while they are mapped, and can be taken away at any time. What the
process itself holds is `RssAnon`, looked at ten times a second, with the lists of interactions, which stand for what
devices know and stay in memory. What was measured is added to `benchmarks/results/out_of_core.json`.
"""

import math
import os
import resource
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import harness
from benchmarks.harness import memory
from benchmarks.speed.suite.case import Running, configured, made_up
from privfed.engines.checkpoint import Checkpoint
from privfed.federation import Ranges, StatefulClients


class Largest:
    """The largest `RssAnon` of this process while it is watched."""

    def __init__(self) -> None:
        self.bytes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Largest":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.bytes = max(self.bytes, memory("RssAnon"))


def main(arguments: Sequence[str] | None = None) -> None:
    """One round, one checkpoint there and back."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("method", choices=("pfedrec", "fedvae"))
    parser.add_argument("--users", type=int, default=1_000_000, help="clients (default: %(default)s)")
    parser.add_argument("--items", type=int, default=2_000, help="of the catalogue (default: %(default)s)")
    parser.add_argument("--each", type=int, default=5, help="interactions of a user")
    parser.add_argument("--dim", type=int, help="of PFedRec, in place of the default")
    parser.add_argument("--limit", type=float, default=1.5, help="GiB of data")
    parser.add_argument("--folder", type=Path, help="where there is space; a folder for temporary files")
    parser.add_argument("--in-memory", action="store_true", help="what the same limit does to a run in memory")
    options = harness.parse(parser, arguments)
    settings = {} if options.dim is None else {"dim": options.dim}
    config = configured({"method": options.method, "settings": settings})
    # What is compiled, or read from a cache of compiled code, is no part of what clients cost.
    Running(config, made_up(100, options.items, options.each)).round()
    resource.setrlimit(resource.RLIMIT_DATA, (int(options.limit * 2**30),) * 2)
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as place, Largest() as anonymous:
        folder = None if options.in_memory else Path(place) / "state"
        began = time.process_time()
        parts = made_up(options.users, options.items, options.each)
        running = Running(config, parts, folder)
        e = running.experiment
        e.storage.claim()
        row: dict[str, Any] = {
            "method": options.method,
            "users": options.users,
            "items": options.items,
            "pairs": len(parts.train),
            "in_memory": options.in_memory,
            "prepared_cpu_s": time.process_time() - began,
            **running.round(),
            "load": os.getloadavg(),
        }
        row["state_bytes"] = sum(4 * math.prod(values.shape) for _, values in ranges(running))
        row["file_bytes"] = sum(shard.stat().st_size for shard in Path(place).glob("state/*.shard"))
        wall = time.perf_counter()
        Checkpoint(1, e.server.state(), dict(ranges(running)), {}).save(Path(place) / "checkpoint")
        row["save_s"], wall = time.perf_counter() - wall, time.perf_counter()
        saved = Checkpoint.load(Path(place) / "checkpoint", ranged=True)
        e.clients.load(saved.clients)
        row["load_s"] = time.perf_counter() - wall
    row |= {"commit": harness.commit(), "largest_anonymous_bytes": anonymous.bytes, "peak_bytes": memory("VmHWM")}
    row |= {"data_limit_bytes": int(options.limit * 2**30), "clients_per_cpu_s": row["clients"] / row["cpu_s"]}
    harness.Record("out_of_core", options, []).add(row)


def ranges(running: Running) -> list[tuple[str, Ranges]]:
    """Private tensors by name, in files or in memory."""
    clients = running.experiment.clients
    return list(clients.ranges().items()) if isinstance(clients, StatefulClients) else []


if __name__ == "__main__":
    main()
