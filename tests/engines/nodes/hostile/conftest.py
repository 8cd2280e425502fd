"""Federations that stand for a whole module: what is refused leaves them as they are, so many lies share one."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig
from secure_agg.primitives.keys import Identity
from tests.engines.nodes.conftest import OPEN, Federation


@pytest.fixture(scope="module")
def standing(small_split: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Federation]]:
    """Build a federation that lasts as long as the module, or find the one that was built under the same name."""
    built: dict[str, Federation] = {}

    def build(name: str, plan: str, *, nodes: int = 4, helped: bool = False, **changes: Any) -> Federation:
        if name not in built:
            own = {key: changes.pop(key) for key in ("policy", "seeded", "corrupt") if key in changes}
            config = ExperimentConfig(
                method={"name": "feddae"}, privacy=PrivacyPlan.parse(plan),
                **{"rounds": 1000, "chunk": 16, "seed": 3} | changes,
            )  # fmt: skip
            shards = [np.sort(some) for some in np.array_split(np.arange(45), nodes)]
            folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
            helping = Identity.generate() if helped else None
            built[name] = Federation(folder, small_split, config, shards, helping=helping, **{"policy": OPEN} | own)
        return built[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield build
