"""On the bits: what leaves lies on the grid, and before its noise no upload or sum is farther away than is claimed."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.guards import ClientGuard
from privfed.guards.noise_grid import noise_steps, noised_sum
from privfed.privacy import Ledger, PrivacyPlan
from privfed.updates import ClientUpdates, Dense, LowRank, Rows, Symmetric, packed_size

SIDE, USERS = 5, 12
SCHEMA = {
    "rows": Block((9, 3)),
    "head": Block((4,), weight=2.5),
    "layer": Block((6, 3), weight=0.3),
    "gram": Block((packed_size(SIDE),)),
}
LOCAL = [
    "local-laplace:epsilon0=0.1,clip_norm=1",
    "local-laplace:epsilon0=40,clip_norm=0.01",
    "local-gaussian:noise_multiplier=30,clip_norm=1",
    "local-gaussian:noise_multiplier=0.3,clip_norm=5,clipping=per_block",
    "published-noise:scale=0.3,law=gaussian",
]
CENTRAL = [
    "central-gaussian:clip_norm=1,noise_multiplier=4.6",
    "central-gaussian:clip_norm=20,noise_multiplier=100",
    "central-gaussian:clip_norm=1,noise_multiplier=2,adaptive.quantile=0.4",
]


def some_updates(clients, seed, size):
    """Every representation, of all sizes: some clients far beyond a clip, some far within it."""
    rng, n = np.random.default_rng(seed), len(clients)
    scale = size * np.exp(2 * rng.normal(size=(n, 1, 1)))

    def tensor(*shape):
        return torch.from_numpy(scale * rng.normal(size=(n, *shape))).float()

    everybody = torch.arange(n)
    ids = torch.from_numpy(np.stack([np.sort(rng.permutation(9)[:4]) for _ in range(n)])).flatten()
    left = tensor(3, 6)
    # Steps that cancel almost: their sum is much smaller than they are.
    left[:, 1] = -left[:, 0]
    right = torch.from_numpy(rng.normal(size=(n, 3, 3))).float()
    right[:, 1] = right[:, 0] * (1 + 1e-4)
    parts = [
        Rows("rows", everybody.repeat_interleave(4), ids, tensor(4, 3).flatten(0, 1)),
        Dense("head", everybody, tensor(1, 4)[:, 0]),
        LowRank("layer", everybody, left, right),
        Symmetric(
            "gram", everybody, torch.from_numpy(scale[:, 0, 0]), torch.from_numpy(rng.normal(size=(n, SIDE))).float()
        ),
    ]
    return ClientUpdates(torch.as_tensor(clients), SCHEMA, parts)


def silent(monkeypatch):
    """No noise, so that what it is added to can be looked at."""
    for law in ("laplace_steps", "normal_steps"):

        def zeros(self, purpose, round, ask, users, count, ratio):
            return torch.zeros(len(users), count, dtype=torch.float64)

        monkeypatch.setattr(Streams, law, zeros)


def exact_norm_power(blocks, order):
    return sum(
        abs(Fraction(value) * Fraction(SCHEMA[name].weight)) ** order
        for name, values in blocks.items()
        for value in values.flatten().tolist()
    )


def on_grid(blocks, steps):
    return all(
        torch.equal(values.double() / steps[name], (values.double() / steps[name]).round())
        for name, values in blocks.items()
    )


@pytest.mark.parametrize("plan", LOCAL)
def test_an_upload_is_whole_steps_with_noise_and_within_its_clip_without(plan, monkeypatch):
    plan = PrivacyPlan.parse(plan)
    steps, clip = noise_steps(plan, SCHEMA, USERS), plan.mechanism.clip
    for seed, size in enumerate([1e-4, 0.05, 1.0, 1e4]):
        updates, everybody = some_updates(range(USERS), seed, size), torch.arange(USERS)
        guard = ClientGuard(plan, Streams.from_seed(seed))
        guard.clip_(updates)
        call = Call(0, 0, "train", 0, everybody, Streams.from_seed(0), SCHEMA)
        noised = guard.protect(updates, call, everybody)
        assert on_grid(noised, steps)
        assert not any(torch.signbit(values[values == 0]).any() for values in noised.values())
        with monkeypatch.context() as patch:
            silent(patch)
            bare = guard.protect(updates, call, everybody)
        assert on_grid(bare, steps)
        for user in everybody.tolist() if clip is not None else ():
            mine = {name: values[user] for name, values in bare.items()}
            assert exact_norm_power(mine, clip.order) <= Fraction(clip.norm) ** clip.order


class Prescribed(StatefulClients):
    """Clients that upload what they were given, whoever else there is."""

    steps = frozenset({"train"})

    def __init__(self, seed, size):
        self.seed, self.size, self.private = seed, size, PrivateState({})

    def train(self, call, message):
        del message
        each = [some_updates([user], [self.seed, user], self.size) for user in call.clients.tolist()]
        parts = []
        for one in range(len(SCHEMA)):
            pieces = [updates.parts[one] for updates in each]
            stacked = {
                name: torch.cat([getattr(piece, name) for piece in pieces])
                for name in ("ids", "values", "left", "right", "weights", "vectors")
                if hasattr(pieces[0], name)
            }
            owner = torch.cat([piece.owner + place for place, piece in enumerate(pieces)])
            parts.append(type(pieces[0])(pieces[0].block, owner, **stacked))
        return ClientUpdates(call.clients, call.schema, parts)


def released(plan, seed=0, size=1.0, chunk=4, fidelity="exact", without=None):
    """A round's sum or uploads, as the engine hands them to the server."""
    streams = Streams.from_seed(seed)
    simulation = Simulation(
        Prescribed(seed, size), plan, USERS, streams, Ledger(plan, USERS), chunk=chunk, fidelity=fidelity
    )
    cohort = simulation.sample_cohort(0)
    if without is not None:
        simulation._members = simulation._members[simulation._members != without]
    if plan.mechanism.release == "individual" and fidelity != "analytic":
        return simulation.collect("train", cohort, Message({}), SCHEMA).uploads
    return simulation.aggregate("train", cohort, Message({}), SCHEMA).sums


@pytest.mark.parametrize("plan", CENTRAL)
def test_a_released_sum_is_whole_steps(plan):
    plan = PrivacyPlan.parse(plan)
    assert on_grid(released(plan), noise_steps(plan, SCHEMA, USERS))


@pytest.mark.parametrize("plan", LOCAL)
def test_uploads_are_whole_steps_after_the_engine_too(plan):
    plan = PrivacyPlan.parse(plan)
    assert on_grid(released(plan), noise_steps(plan, SCHEMA, USERS))


def test_noise_that_is_added_at_once_lies_on_a_grid():
    plan = PrivacyPlan.parse(LOCAL[2])
    sums = released(plan, fidelity="analytic")
    for name, values in sums.items():
        step = 2.0 ** np.floor(np.log2(30 * USERS**0.5 / SCHEMA[name].weight * 2.0**-20))
        assert on_grid({name: values}, {name: step})


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**20), plan=st.sampled_from(CENTRAL[:2]), size=st.sampled_from([1e-3, 0.3, 1.0, 1e3]))
def test_the_engines_sums_with_a_user_and_without_lie_within_what_the_noise_is_sized_for(seed, plan, size):
    """In exact arithmetic, from the float64 sums that the engine makes, in chunks of another size without the user."""
    plan = PrivacyPlan.parse(plan)
    with pytest.MonkeyPatch.context() as patch:
        silent(patch)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        both, alone = released(plan, seed, size), released(plan, seed, size, chunk=5, without=seed % USERS)
    moved = {name: both[name] - alone[name] for name in SCHEMA}
    # Differences of multiples of one step are exact.
    assert exact_norm_power(moved, 2) * Fraction(plan.mechanism.noise_multiplier) ** 2 <= deviation(plan) ** 2


def deviation(plan):
    """Of the noise that the guard adds to weighted values, the least of all blocks."""
    noised = noised_sum(plan.mechanism.server_noise_multiplier, plan.mechanism.clip_norm, SCHEMA, USERS)
    return min(
        Fraction(grid.ratio) * Fraction(grid.step) * Fraction(block.weight)
        for block in SCHEMA.values()
        for grid in [noised.grid(block.weight)]
    )


@pytest.mark.parametrize("share", [1.0, 0.25, 0.01])
def test_noise_of_a_share_covers_the_rounding_of_its_sum(share):
    """In units of what the query may use of the clip norm, rounding to the grid weighs more."""
    clip_norm, multiplier, schema = 3.0, 2.0, {"v": Block((500,), share=share)}
    noised = noised_sum(multiplier, clip_norm, schema, USERS)
    grid, own = noised.grid(), clip_norm * share**0.5
    moved = own + grid.step * 500**0.5
    assert grid.ratio * grid.step >= multiplier * moved / share**0.5
