"""A round's calls into torch must not grow with the clients of a chunk: what grows is the size of the tensors.

Calls are counted by a dispatch mode. A loop over clients in Python would add calls for every client.
"""

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from privfed.compute.tiles import TILE

CONSTANT = [
    ("fedvae", None, {"latent": 8}),
    ("fedvae", None, {"latent": 8, "hidden": [16], "local_steps": 3}),
    ("fedvae", "central-gaussian:clip_norm=1,noise_multiplier=1", {"latent": 8}),
    ("feddae", None, {"latent": 8}),
    ("fedmf", None, {"dim": 8}),
    ("pfedrec", None, {"dim": 8}),
    ("dfmr", None, {"d": 8}),
]
"""Train a whole chunk at once."""
BY_TILE = [
    ("fedncf", {"dim": 8, "hidden": [8, 4]}, 200),
    ("gpfedrec", {"dim": 8, "hidden": [8, 4], "graph": None}, 300),
]
"""Train tiles of sixteen clients, for the sake of bit parity; last, the most calls that a tile of one local step may
add, about 1.3 times what it adds now. A loop over its clients would add sixteen times a step's."""


class Counting(TorchDispatchMode):
    """Counts every call of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "plan", "settings"), CONSTANT, ids=[f"{c[0]}-{i}" for i, c in enumerate(CONSTANT)])
def test_more_clients_are_larger_tensors_and_not_more_calls(
    watched: Callable[..., Any], name: str, plan: str | None, settings: dict[str, Any]
) -> None:
    few, more = (watched(name, tiles * TILE, Counting, plan, **settings).watcher.calls for tiles in (2, 8))
    assert more == few > 0


@pytest.mark.parametrize(("name", "settings", "most"), BY_TILE, ids=[c[0] for c in BY_TILE])
def test_a_tile_of_clients_adds_the_calls_of_one_step_and_no_more(
    watched: Callable[..., Any], name: str, settings: dict[str, Any], most: int
) -> None:
    two, four, eight = (watched(name, tiles * TILE, Counting, **settings).watcher.calls for tiles in (2, 4, 8))
    assert eight - four == 2 * (four - two)
    assert 0 < (four - two) / 2 <= most
