"""Views and purchases to train codes on, and a world of them with every number of it in reach."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest


@dataclass
class CodeWorld:
    """Both halves of a code method and the simulation between them."""

    server: Any
    clients: Any
    simulation: Any
    data: Any
    support: Any

    def train(self, rounds: int, first: int = 0) -> "CodeWorld":
        """Rounds `first` to `rounds - 1`."""
        for t in range(first, rounds):
            self.simulation.run(self.server, t)
        return self

    @property
    def users(self) -> Any:
        """Committed user codes, a copy."""
        return self.clients.state()["codes"].numpy()

    @property
    def codes(self) -> tuple[Any, Any]:
        """Item codes and user codes."""
        return self.server.items.copy(), self.users


@pytest.fixture(scope="session")
def funnel() -> Any:
    """150 users and 200 items; purchases are split, views and carts stand beside."""
    from privfed.data import SplitSpec, load, split

    return split(load("synthetic-funnel-small"), SplitSpec(kind="leave_one_out", target="buy"))


@pytest.fixture(scope="session")
def few(funnel: Any) -> Any:
    """Its first 24 users."""
    users = np.arange(24)
    parts = {part: getattr(funnel, part).subset(users) for part in ("train", "valid", "test")}
    auxiliary = {name: rows.subset(users) for name, rows in funnel.auxiliary.items()}
    return replace(funnel, **parts, auxiliary=auxiliary, attributes=funnel.attributes.iloc[users])


@pytest.fixture(scope="session")
def coded(funnel: Any) -> Callable[..., CodeWorld]:
    """Build a code method: `coded("dfmr", plan="shared-sum", parts=..., chunk=7, d=8)`."""
    from privfed.engines.simulation import Simulation
    from privfed.federation import Streams
    from privfed.methods import ClientData, PublicInfo, method
    from privfed.privacy import Ledger, PrivacyPlan
    from privfed.setup.padding import padded_data

    def build(
        name: str = "dfmr", *, plan: str = "none", parts: Any = None, data: Any = None, fidelity: Any = "exact",
        seed: int = 3, chunk: int | None = None, transcript: Any = None, **settings: Any,
    ) -> CodeWorld:  # fmt: skip
        data = data or ClientData.from_split(parts or funnel, "train")
        registered, streams, privacy = method(name), Streams.from_seed(seed), PrivacyPlan.parse(plan)
        pull = {"alpha": 0.6} if name == "dfmr" else {}
        config = registered.config(**{"d": 8, "min_buyers": 0} | pull | settings)
        covered = padded_data(data, privacy, registered, config)
        server = registered.training.server(config, PublicInfo(data.n_users, data.n_items, data.positives), streams)
        clients = registered.training.clients(config, covered.data, streams)
        simulation = Simulation(
            clients, privacy, data.n_users, streams, Ledger(privacy, data.n_users),
            chunk=chunk or registered.training.chunk, fidelity=fidelity, support=covered.support, transcript=transcript,
        )  # fmt: skip
        return CodeWorld(server, clients, simulation, data, covered.support)

    return build
