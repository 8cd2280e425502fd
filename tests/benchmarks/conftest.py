"""Users with equally long lists, and a method that trains on them: nothing here depends on time or on the machine."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from privfed.data import Histories, Split, SplitSpec
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ITEMS, EACH = 96, 6


@dataclass(frozen=True)
class Watched:
    """A method's run, and who watched one of its rounds."""

    experiment: Experiment
    watcher: Any


@pytest.fixture
def watched() -> Callable[..., Watched]:
    """Run a method on `users` users in one chunk, and one round of it inside a context: `watched("fedvae", 32, Mode)`.

    It is the second round, as the first fills caches, or the only one of a method that asks once.
    """

    def run(
        name: str,
        users: int,
        watcher: Callable[[], AbstractContextManager[Any]],
        plan: str | None = None,
        **settings: Any,
    ) -> Watched:
        registered = method(name)
        privacy = (
            PrivacyPlan.named("none", release=registered.traits.release) if plan is None else PrivacyPlan.parse(plan)
        )
        config = ExperimentConfig(method={"name": name, **settings}, privacy=privacy, taps=TapConfig(places=()))
        experiment = Experiment(config, _equal_lists(users))
        ledger = Ledger(privacy, users)
        simulation = Simulation(
            experiment.clients, privacy, users, experiment.streams, ledger, chunk=4096, fidelity="analytic"
        )  # fmt: skip
        first = 0 if registered.traits.uploads_once else 1
        for t in range(first):
            simulation.run(experiment.server, t)
        with watcher() as watching:
            simulation.run(experiment.server, first)
        return Watched(experiment, watching)

    return run


def _equal_lists(users: int) -> Split:
    """`users` users with `EACH` training items and one item in either held-out part."""
    chosen, owners = np.random.default_rng(users).random((users, ITEMS)).argsort(1), np.arange(users)
    parts = {
        "train": Histories.from_pairs(owners.repeat(EACH), np.sort(chosen[:, :EACH]).ravel(), users, ITEMS),
        "valid": Histories.from_pairs(owners, chosen[:, EACH], users, ITEMS),
        "test": Histories.from_pairs(owners, chosen[:, EACH + 1], users, ITEMS),
    }
    return Split(SplitSpec(), **parts, users_without_holdout=0)
