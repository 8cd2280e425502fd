"""The formulas behind the limits in `docs/results/performance.md`, beside the products that a round really makes.

A limit may leave work out but never count more than is done; and where the formula is about products, it must be most
of them. `FlopCounterMode` counts products of torch, a multiplication and an addition as two.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.suite import work

EPOCH = {"dim": 16, "hidden": [16, 8], "batch_size": 32}
"""Six items and four negatives each are 30 samples: one batch, with little padding."""
CASES = [
    ("fedncf", EPOCH, 0.7),
    ("gpfedrec", EPOCH | {"graph": None}, 0.7),
    ("fedvae", {"latent": 8}, 0.5),
    ("fedvae", {"latent": 8, "hidden": [32, 16], "local_steps": 3}, 0.5),
    ("feddae", {"latent": 8, "hidden": [32, 16], "local_steps": 3}, 0.5),
    ("private-gram", {"head": 32}, 0.4),
]
"""Last, the least share of the products made: a first layer is multiplied out when updates are added, zeros included,
and a symmetric product takes both halves."""


def products() -> FlopCounterMode:
    """A counter that knows products in place, too."""

    def in_place(total: Any, left: Any, right: Any, **others: Any) -> int:
        return 2 * left[0] * left[1] * left[2] * right[2]

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: in_place})


@pytest.mark.parametrize(("name", "settings", "share"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_no_formula_counts_more_than_is_done(
    watched: Callable[..., Any], name: str, settings: dict[str, Any], share: float
) -> None:
    run = watched(name, 64, products, **settings)
    e = run.experiment
    phases = work.counted(name, e.config.settings(), e.trained.train, e.server)
    counted = sum(phase["flops"] for phase in phases)
    assert share * run.watcher.get_total_flops() <= counted <= run.watcher.get_total_flops()


def test_a_limit_takes_the_slowest_resource_of_every_phase() -> None:
    phases = [
        {"name": "a", "flops": 8.0, "moved": 3.0, "cipher": 0.0},
        {"name": "b", "flops": 0.0, "moved": 6.0, "cipher": 10.0},
    ]
    assert work.least_seconds(phases, {"gemm": 2.0, "triad": 1.0, "cipher": 5.0}) == 4.0 + 6.0
