"""The formulas behind the limits in `docs/results/performance.md`, beside the products that a round really makes.

A limit may leave work out but never count more than is done; and where the formula is about products, it must be most
of them. `FlopCounterMode` counts products of torch, a multiplication and an addition as two. It sees neither BLAS nor
compiled loops: BLAS's product is made by torch here, and of a kernel the functions that multiply are counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.suite import work
from privfed.methods.fair import kernel
from privfed.methods.hetefedrec import kernel as nested
from privfed.methods.shared import linear_epoch
from privfed.updates import symmetric

EPOCH = {"dim": 16, "hidden": [16, 8], "batch_size": 32}
"""Six items and four negatives each are 30 samples: one batch, with little padding."""
PAIRED: dict[str, Any] = {"widths": [8, 16], "shares": [0.5, 0.5], "groups": "random", "hidden": [16, 8]}
"""Half of the clients train both heads."""
CASES = [
    ("fedncf", EPOCH, 0.7),
    ("gpfedrec", EPOCH | {"graph": None}, 0.7),
    ("fedvae", {"latent": 8}, 0.5),
    ("fedvae", {"latent": 8, "hidden": [32, 16], "local_steps": 3}, 0.5),
    ("feddae", {"latent": 8, "hidden": [32, 16], "local_steps": 3}, 0.5),
    ("private-gram", {"head": 32}, 0.5),
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
    watched: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    settings: dict[str, Any],
    share: float,
) -> None:
    def whole_gram(rows: Any) -> Any:
        seen = torch.from_numpy(rows)
        return (seen.T @ seen).triu().numpy()

    monkeypatch.setattr(symmetric, "upper_gram", whole_gram)
    run = watched(name, 64, products, **settings)
    e = run.experiment
    phases = work.counted(name, e.config.settings(), e.trained.train, e.server)
    counted = sum(phase["flops"] for phase in phases)
    assert share * run.watcher.get_total_flops() <= counted <= run.watcher.get_total_flops()


@pytest.mark.parametrize(("name", "passes"), [("fedmf", 3), ("pfedrec", 4)])
def test_the_formula_of_linear_heads_counts_what_their_kernel_does(
    watched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, passes: int
) -> None:
    """The loop over clients runs as Python, and every pass over the rows of a batch is counted as it is called."""
    passed: list[int] = []
    touched: list[int] = []

    def counting(what: str, into: list[int], size: Callable[..., int]) -> None:
        function = getattr(linear_epoch, what)

        def counted(table: Any, *others: Any) -> Any:
            into.append(size(table, *others))
            return function(table, *others)

        monkeypatch.setattr(linear_epoch, what, counted)

    monkeypatch.setattr(linear_epoch, "_epoch", linear_epoch._epoch.py_func)
    for what in ("_slopes", "_gradient", "_move"):
        # A multiplication and an addition for every number of the batch's rows.
        counting(what, passed, lambda table, place, *others: 2 * len(place) * table.shape[1])
    counting("_read", touched, lambda table, *others: table.nbytes)

    @contextmanager
    def from_here() -> Iterator[None]:
        passed.clear()
        touched.clear()
        yield

    e = watched(name, 64, from_here, dim=16, batch_size=7).experiment
    _, train, updates = work.counted(name, e.config.settings(), e.trained.train, e.server)
    # Six items and four negatives each: five batches, the last one of two samples.
    assert len(passed) == 64 * 5 * passes
    assert train["flops"] == sum(passed)
    # Rows are written by a client and read by the sum.
    assert updates["moved"] == pytest.approx(2 * sum(touched), rel=0.02)


@pytest.mark.parametrize(
    "more", [{}, {"decorrelation": 0.5, "distillation": 2, "steps": 2, "user_steps": 3}], ids=["plain", "all parts"]
)
def test_the_formula_of_hetefedrec_counts_what_its_kernel_does(
    watched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """Its compiled loops run as Python but for the innermost, whose multiplications and additions are counted."""
    done = [0]
    # Six items and four negatives each are thirty samples, which the kernel pads with zeros to a block.
    real = 6 * 5

    def entries(numbers: Any, at: int) -> int:
        return int(np.count_nonzero(numbers[at : at + nested.COLUMNS]))

    def counting(name: str, operations: Callable[..., int]) -> None:
        innermost = getattr(nested, name)

        def counted(*numbers: Any) -> None:
            done[0] += operations(*numbers)
            innermost(*numbers)

        monkeypatch.setattr(nested, name, counted)

    blocks = ("_inner_products", "_inner_gradients", "_forward", "_backward", "_decorrelate")
    for name in ("train", "_read_user", "_through_graph", *blocks):
        monkeypatch.setattr(nested, name, getattr(nested, name).py_func)
    counting("_multiply", lambda n, to, outs, at, ins, packed: 2 * real * ins * outs)
    # Of vectors with themselves, half and the diagonal.
    counting("_outer", lambda n, to, at, ins, back, outs: real * ins * (outs + 1 if at == back else 2 * outs))
    counting("_dots", lambda n, to, at, row, rows: 2 * rows * entries(n, row))
    # To multiply by one is no work.
    counting("_add", lambda n, to, at, factor: 0 if factor is nested.ONE else 2 * entries(n, at))
    # An inner product, and positives' own parts in it.
    counting("_add_own", lambda n, to, at, edges, factor: 2 * real + 2 * entries(n, edges))
    counting("_add_own_back", lambda n, to, at, edges, slope, factor: 2 * real + 2 * entries(n, edges))

    @contextmanager
    def from_here() -> Iterator[FlopCounterMode]:
        done[0] = 0
        with products() as watching:
            yield watching

    run = watched("hetefedrec", 64, from_here, **(PAIRED | more))
    e = run.experiment
    flops = {
        phase["name"]: phase["flops"]
        for phase in work.counted("hetefedrec", e.config.settings(), e.trained.train, e.server)
    }
    assert 0.99 * done[0] <= flops["train"] <= done[0]
    made = run.watcher.get_total_flops()
    assert 0.75 * made <= flops.get("distil", 0) <= made


def test_a_limit_takes_the_slowest_resource_of_every_phase() -> None:
    phases = [
        {"name": "a", "flops": 8.0, "moved": 3.0, "cipher": 0.0},
        {"name": "b", "flops": 0.0, "moved": 6.0, "cipher": 10.0},
    ]
    assert work.least_seconds(phases, {"gemm": 2.0, "triad": 1.0, "cipher": 5.0}) == 4.0 + 6.0


def test_the_formula_of_fair_counts_what_its_kernel_does(
    watched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled loops run as Python, and every sum of products and every step of Adam is counted."""
    done = {"products": 0, "adam": 0}

    for name, function in list(vars(kernel).items()):
        if hasattr(function, "py_func"):
            monkeypatch.setattr(kernel, name, function.py_func)

    # What a processor computes in lanes, told by numpy.
    def piece(array: Any, at: tuple[int, ...]) -> Any:
        return array[at[:-1]][at[-1] : at[-1] + kernel.LANES]

    def store(array: Any, at: tuple[int, ...], values: Any) -> None:
        piece(array, at)[:] = values

    told = {"load": lambda *place: piece(*place).copy(), "store": store, "total": np.sum, "exp": np.exp}
    told |= {"spread": lambda array, at: array[at], "filled": lambda number: np.full(kernel.LANES, number)}
    for name, function in told.items():
        monkeypatch.setattr(kernel, name, function)

    def counting(name: str, what: str, operations: Callable[..., int]) -> None:
        function = getattr(kernel, name)

        def counted(*numbers: Any) -> Any:
            done[what] += operations(*numbers)
            return function(*numbers)

        monkeypatch.setattr(kernel, name, counted)

    counting("_multiply", "products", lambda out, x, *others: 2 * len(out) * len(x) * others[-1])
    counting("_products", "products", lambda *numbers: 2 * len(numbers[-3]) * len(numbers[-2]) * numbers[-1])
    counting("_adam", "adam", lambda numbers, *others: work.ADAM * len(numbers))

    @contextmanager
    def from_here() -> Iterator[None]:
        done.update(products=0, adam=0)
        yield

    run = watched("fair", 16, from_here, scheme="1x-2x", dim=4, hidden=[8, 4], batch_size=4, epochs=3)
    e = run.experiment
    draw, train, updates = work.counted("fair", e.config.settings(), e.trained.train, e.server)
    # Minibatches of four and of two pairs, each padded to sixteen.
    products = done["products"] * 6 / 32
    assert products == 2 * 6 * (4 * 8 + 8 * 4 + 4 + 4) * 3 * len(e.trained.train)
    assert train["flops"] - products == pytest.approx(done["adam"], rel=0.03)
    assert draw["cipher"] == 4 * 3 * len(e.trained.train)
    numbers = sum(2 * subspace.size for subspace in e.server.tiers.subspaces[0].values())
    assert 0 < updates["moved"] < 8 * 16 * numbers
