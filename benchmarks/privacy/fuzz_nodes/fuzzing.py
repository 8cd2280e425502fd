"""Bursts of bent messages against a node and against a server, each ended by an honest run that must come out right."""

import random
import secrets
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.privacy.fuzz_nodes.federations import SETTINGS, SmallFederation
from benchmarks.privacy.fuzz_nodes.findings import Findings, watched
from benchmarks.privacy.fuzz_nodes.node_target import NodeTarget
from benchmarks.privacy.fuzz_nodes.server_target import ServerTarget

NODES = tuple(SETTINGS)
SERVERS = tuple(name for name, setting in SETTINGS.items() if setting.method == "feddae")
Going = Callable[[], bool]
"""Whether a burst goes on."""


def trials(number: int) -> Going:
    """So many trials."""
    left = iter(range(number))
    return lambda: next(left, None) is not None


def cpu_seconds(seconds: float) -> Going:
    """Trials for so much processor time."""
    end = time.process_time() + seconds
    return lambda: time.process_time() < end


def burst(handler: str, name: str, rng: random.Random, findings: Findings, going: Callable[[], Going]) -> None:
    """Bend messages for a while, then train honestly.

    Args:
        handler: `node` or `server`.
        name: of the federation, in `SETTINGS`.
        rng: decides what is bent.
        findings: where all is counted.
        going: begins the burst, once the federation is there.
    """
    with _alone(rng) as folder, watched(folder.name) as watch:
        federation = SmallFederation(folder, SETTINGS[name])
        target = (NodeTarget if handler == "node" else ServerTarget)(name, federation, findings, watch)
        goes_on = going()
        while goes_on():
            target.trial(rng)
        if isinstance(target, ServerTarget):
            target.honest_round()
        if (wrong := federation.wrong_training()) is not None:
            findings.defect(f"{handler}, {name}: after the burst {wrong}", "a whole run")


@contextmanager
def _alone(rng: random.Random) -> Iterator[Path]:
    """A folder of its own on a disk that nobody waits for, and names and nonces that follow from the seed."""
    with (
        tempfile.TemporaryDirectory(prefix="privfed-fuzz-") as folder, warnings.catch_warnings(),
        patch("os.fsync", lambda _: None), patch.object(secrets, "token_bytes", rng.randbytes),
        patch.object(secrets, "token_hex", lambda size: rng.randbytes(size).hex()),
    ):  # fmt: skip
        warnings.simplefilter("error")
        yield Path(folder)
