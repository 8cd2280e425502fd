"""Shared set-up: one thread, every shape and type in a signature checked at run time, and a small world to train in.

The import hook must run before the packages are imported, so it stands at the top of the outermost conftest.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from tests import pretended, signatures

# The gate tries the same examples on every machine, at whatever speed; `explore` (tests/explore.py) tries others.
_timeless = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", _timeless, derandomize=True)
settings.register_profile("explore", _timeless, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
signatures.install()
pretended.register()
torch.set_num_threads(1)

_SLOW = Path(__file__).with_name("slow.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `tests/slow.txt`, before markers decide which tests run; refuse one that does not exist."""
    listed = frozenset(_SLOW.read_text().splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
    if not any("::" in argument for argument in config.args):
        files = {item.nodeid.partition("::")[0] for item in items}
        gone = {test for test in listed if test.partition("::")[0] in files} - {item.nodeid for item in items}
        if gone:
            raise pytest.UsageError(f"no such test as {min(gone)}, listed in {_SLOW.name}; run tests/slow.py again")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests a missing program left out: that turns no test red, and is lost among other reasons."""
    skipped = terminalreporter.getreports("skipped")
    reasons = [str(one.longrepr[2]).removeprefix("Skipped: ") for one in skipped if isinstance(one.longrepr, tuple)]
    for reason, count in Counter(one for one in reasons if "not installed" in one).most_common():
        terminalreporter.write_sep("=", f"NOT RUN: {count} tests, as {reason}", yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note what the set-up of a test takes."""
    yield from _metered(item, "setup_cpu_s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note what a test takes: processor time, which says the same on a busy machine."""
    yield from _metered(item, "cpu_s")


def _metered(item: pytest.Item, name: str) -> Iterator[None]:
    """Run a phase of a test and keep its processor seconds, those of ended children included, in the report."""
    before = os.times()
    try:
        return (yield)
    finally:
        item.user_properties.append((name, round(sum(os.times()[:4]) - sum(before[:4]), 2)))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Signatures are not checked: for tests of what a public function itself says about a bad argument."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def small_split() -> Any:
    """45 users (not a multiple of a tile) and 70 items, leave-one-out; 3 to 35 training items each."""
    from privfed.data import SplitSpec, SyntheticSpec, generate, split

    spec = SyntheticSpec(
        name="synthetic-tests", n_users=45, n_items=70, mean_per_user=12, min_per_user=5, rank=4, seed=1
    )
    return split(generate(spec), SplitSpec())


@pytest.fixture(scope="session")
def few_users(small_split: Any) -> Any:
    """Its first 18 users, for tests that train often."""
    users = np.arange(18)
    parts = {part: getattr(small_split, part).subset(users) for part in ("train", "valid", "test")}
    return replace(small_split, **parts, ratings=None, attributes=small_split.attributes.iloc[users])


@dataclass
class World:
    """Both halves of a method and the simulation between them."""

    server: Any
    clients: Any
    simulation: Any
    streams: Any
    ledger: Any
    data: Any

    def train(self, rounds: int, first: int = 0) -> "World":
        """Rounds `first` to `rounds - 1`."""
        for t in range(first, rounds):
            self.simulation.run(self.server, t)
        return self


@pytest.fixture
def world(small_split: Any) -> Callable[..., World]:
    """Build a method on the small split: `world("pfedrec", plan=..., chunk=16, dim=8)`."""
    from privfed.engines.simulation import Simulation
    from privfed.federation import Streams
    from privfed.methods import ClientData, PublicInfo, method
    from privfed.privacy import Ledger, PrivacyPlan

    def build(
        name: str, *, plan: str = "none", parts: Any = None, seed: int = 3, excluded: str = "train",
        chunk: int | None = None, transcript: Any = None, memory_limit: int | None = None, **settings: Any,
    ) -> World:  # fmt: skip
        data = ClientData.from_split(parts or small_split, excluded)
        registered, streams = method(name), Streams.from_seed(seed)
        config = registered.config(**settings)
        public = data.positives if registered.traits.public_target else None
        server = registered.training.server(config, PublicInfo(data.n_users, data.n_items, public), streams)
        clients = registered.training.clients(config, data, streams)
        privacy = PrivacyPlan.parse(plan)
        ledger = Ledger(privacy, data.n_users)
        simulation = Simulation(
            clients, privacy, data.n_users, streams, ledger,
            chunk=chunk, transcript=transcript, memory_limit=memory_limit,
        )  # fmt: skip
        return World(server, clients, simulation, streams, ledger, data)

    return build
