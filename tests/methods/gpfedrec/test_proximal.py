"""Uploads written out where they go equal the same uploads held as whole tables, to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, UpdateError
from privfed.methods.gpfedrec.proximal import ProximalTables
from privfed.updates import ClientUpdates, Dense

ITEMS, DIM = 7, 3
SCHEMA = {"items": Block((ITEMS, DIM), weight=0.5)}
quick = settings(max_examples=50, deadline=None)


def part(seed, clients, **changes):
    """Clients of whom every row was trained with probability 0.4, by default of a cohort of their own."""
    rng = np.random.default_rng(seed)
    places = np.flatnonzero(rng.random(clients * ITEMS) < 0.4)
    values = {
        "block": "items",
        "targets": floats(rng, clients, ITEMS, DIM),
        "base": floats(rng, ITEMS, DIM),
        "share": floats(rng, clients).abs(),
        "places": torch.from_numpy(places),
        "values": floats(rng, len(places), DIM),
    }
    return ProximalTables(**(values | changes))


def floats(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


def both(seed, clients, more=0):
    """The same updates twice, of the first `clients` of a cohort of `more` besides: written out later, and whole."""
    lazy = part(seed, clients)
    whole = (lazy.targets - lazy.base) * lazy.share.view(-1, 1, 1)
    for place, value in zip(lazy.places.tolist(), lazy.values, strict=True):
        whole[place // ITEMS, place % ITEMS] = value
    cohort = torch.arange(50, 50 + clients + more)
    return tuple(ClientUpdates(cohort, SCHEMA, [p]) for p in (lazy, Dense("items", torch.arange(clients), whole)))


@quick
@given(
    st.integers(0, 10**6), st.integers(0, 7), st.integers(0, 2), st.integers(0, 2), st.randoms(use_true_random=False)
)
def test_every_operation_equals_that_on_whole_tables(seed, clients, more, scaled, random):
    lazy, whole = both(seed, clients, more)
    n = len(lazy)
    for _ in range(scaled):
        factors = torch.tensor([random.random() for _ in range(n)], dtype=torch.float64)
        lazy.scale_(factors)
        whole.scale_(factors)
    assert lazy.finite()
    assert lazy.nbytes == whole.nbytes
    for order in (1, 2):
        assert lazy.norms(order).equal(whole.norms(order))
    chosen = torch.tensor(random.sample(range(n), random.randint(0, n)), dtype=torch.int64)
    for positions in (torch.arange(n), chosen):
        found, wanted = lazy.materialise(positions)["items"], whole.materialise(positions)["items"]
        assert found.equal(wanted)
        assert lazy.touched(positions)["items"].equal(whole.touched(positions)["items"])
    assert lazy.stacked("items").equal(whole.stacked("items"))
    assert lazy.holds().equal(whole.holds())
    sums = [{"items": torch.full((ITEMS, DIM), 3.0, dtype=torch.float64)} for _ in range(2)]
    lazy.add_to(sums[0])
    whole.add_to(sums[1])
    torch.testing.assert_close(sums[0], sums[1], rtol=0, atol=1e-6)
    if n:
        owner = torch.tensor([random.randrange(n) for _ in range(20)])
        ids = torch.tensor([random.randrange(ITEMS) for _ in range(20)])
        assert lazy.rows_at("items", owner, ids).equal(whole.rows_at("items", owner, ids))


@pytest.mark.parametrize("where", ["targets", "base", "values"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_number_is_noticed_wherever_it_is(where, bad):
    broken = part(1, 4)
    assert broken.finite()
    getattr(broken, where)[..., 1, 2] = bad
    assert not broken.finite()


def test_a_difference_that_would_overflow_is_broken_too():
    broken = part(1, 4)
    broken.targets[2, 3, 1], broken.base[3, 1] = 3e38, -3e38
    assert not broken.finite()


@pytest.mark.parametrize(("clients", "shape"), [(3, (ITEMS, DIM)), (4, (ITEMS, DIM + 1)), (4, (ITEMS + 1, DIM))])
def test_tables_that_do_not_fit_are_refused(clients, shape):
    with pytest.raises(UpdateError, match=r"block 'items' was declared with shape .* holds \(7, 3\) for 4"):
        ClientUpdates(torch.arange(clients), {"items": Block(shape)}, [part(0, 4)])
