"""The real guards against their claim, by the definition: two worst-case inputs, 10,000 draws each, one lower bound.

The inputs are as far apart as the neighbours of the claim allow. Laplace is bounded by Clopper and Pearson, Gaussian
through mu (`attacks.empirical.bounds`); both bounds are tight on these inputs, so a claim must stand within 15 % above
its bound. A guard that does less than its plan says must push the bound above the claim.
"""

from functools import lru_cache

import numpy as np
import pytest
import torch

from attacks.empirical import clopper_pearson_epsilon, gdp_epsilon
from privfed.contracts import Block
from privfed.federation import Call, Cohort, Streams
from privfed.guards import ClientGuard, ServerGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.events import SchemaSummary
from privfed.updates import ClientUpdates, Dense

pytestmark = pytest.mark.usefixtures("unchecked")
"""Checking every signature of so many draws would take most of the time."""

DRAWS = 10_000
CLIP = 0.7
SCHEMA = {"items": Block((3, 2)), "head": Block((2,), weight=2.0)}
DIRECTIONS = {"items": {"items": 1.0}, "head": {"head": 1.0}, "both": {"items": 1.0, "head": 0.5}}
"""Where an input lies: its value on the first coordinate of each block, before it is stretched."""
FAR = 1000.0
"""How far it is stretched: the clip has to bring it in."""

STREAMS = Streams.from_seed(0)


def plan(name, **fields):
    return PrivacyPlan.named(name, clip_norm=CLIP, **fields)


def claim(plan):
    """Epsilon that the ledger claims for one ask of everybody."""
    ledger = Ledger(plan, 2 * DRAWS)
    ledger.record(
        cohort_id=0,
        round=0,
        step="train",
        index=0,
        schema=SchemaSummary.from_schema(SCHEMA),
        participants=np.arange(2 * DRAWS),
    )
    return ledger.guarantee().epsilon


@lru_cache(maxsize=16)
def device(plan, direction, *, clips=True):
    """What 10,000 devices send that hold the far input, and 10,000 others that hold its opposite."""
    guard, worlds = ClientGuard(plan, STREAMS), []
    for sign, first in ((1, 0), (-1, DRAWS)):
        clients, parts = torch.arange(first, first + DRAWS), []
        for name, value in DIRECTIONS[direction].items():
            values = torch.zeros(DRAWS, *SCHEMA[name].shape)
            values.view(DRAWS, -1)[:, 0] = sign * value * FAR
            parts.append(Dense(name, torch.arange(DRAWS), values))
        updates = ClientUpdates(clients, SCHEMA, parts)
        if clips:
            guard.clip_(updates)
        worlds.append(guard.protect(updates, Call(0, 0, "train", 0, clients, STREAMS, SCHEMA), torch.arange(DRAWS)))
    return worlds


def along(worlds, direction):
    """Each upload's part along the direction, in the weighted coordinates that clip and noise act on."""
    axis = {name: SCHEMA[name].weight * value for name, value in DIRECTIONS[direction].items()}
    length = np.linalg.norm(list(axis.values()))
    return [
        sum(
            part / length * SCHEMA[name].weight * uploads[name].flatten(1)[:, 0].double().numpy()
            for name, part in axis.items()
        )
        for uploads in worlds
    ]


def server(plan):
    """10,000 coordinates of sums with one clipped user on each, and 10,000 with nobody, as a trusted server opens them.

    Noise is independent per coordinate, so a sum over 100 users, each on a coordinate of its own, is 100 draws with one
    user and 100 without.
    """
    users = 100
    schema = {"head": Block((2 * users,), weight=2.0)}
    guard = ServerGuard(plan, Ledger(plan, users), STREAMS)
    sent = ClientUpdates(
        torch.arange(users), schema, [Dense("head", torch.arange(users), FAR * torch.eye(users, 2 * users))]
    )
    ClientGuard(plan, STREAMS).clip_(sent)
    revealed = torch.zeros(DRAWS // users, 2 * users, dtype=torch.float64)
    for round, sums in enumerate(revealed):
        sent.add_to({"head": sums})
        cohort = Cohort(round, round, "all", float(users))
        guard.add_noise_({"head": sums}, cohort, "train", 0, schema, members=users, within=0)
    return [schema["head"].weight * world.flatten().numpy() for world in revealed.split(users, dim=1)]


def lower_bound(plan, worlds, threshold):
    """Of the estimator that fits the law of the plan's noise, at the plan's delta, threshold fixed beforehand."""
    bound = clopper_pearson_epsilon if plan.mechanism.kind == "local_laplace" else gdp_epsilon
    return bound(*worlds, delta=plan.delta, threshold=threshold).epsilon


def assert_tight(found, claimed):
    assert found <= claimed
    assert found >= 0.85 * claimed


@pytest.mark.parametrize(("epsilon0", "direction"), [(1.0, "items"), (2.0, "head"), (4.0, "items")])
def test_local_laplace(epsilon0, direction):
    """+C e1 against -C e1. Beyond +C the two densities stand in ratio e^epsilon0, so that is where to cut."""
    laplace = plan("local-laplace", epsilon0=epsilon0)
    claimed = claim(laplace)
    assert claimed == pytest.approx(epsilon0, rel=1e-3)
    assert_tight(lower_bound(laplace, along(device(laplace, direction), direction), CLIP), claimed)


@pytest.mark.parametrize(("noise_multiplier", "direction"), [(1.0, "items"), (2.0, "head"), (1.0, "both")])
def test_local_gaussian(noise_multiplier, direction):
    """+C e1 against -C e1, 2C apart, so mu = 2 / noise multiplier; spread over two blocks they are no further apart."""
    gaussian = plan("local-gaussian", noise_multiplier=noise_multiplier)
    assert_tight(lower_bound(gaussian, along(device(gaussian, direction), direction), 0.0), claim(gaussian))


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0])
def test_central_gaussian(noise_multiplier):
    """A sum with one user at C e1 against the sum without: mu = 1 / noise multiplier."""
    gaussian = plan("central-gaussian", noise_multiplier=noise_multiplier)
    assert_tight(lower_bound(gaussian, server(gaussian), CLIP / 2), claim(gaussian))


@pytest.mark.parametrize(("epsilon0", "direction"), [(1.0, "head"), (2.0, "items")])
def test_a_device_that_adds_laplace_noise_of_scale_c_over_epsilon_is_caught(epsilon0, direction):
    """The factor of two that is easily forgotten: noise for inputs C apart, where they are 2C apart."""
    claimed, wrong = claim(plan("local-laplace", epsilon0=epsilon0)), plan("local-laplace", epsilon0=2 * epsilon0)
    assert wrong.mechanism.noise.scale == pytest.approx(CLIP / epsilon0)
    assert lower_bound(wrong, along(device(wrong, direction), direction), CLIP) > 1.5 * claimed


def test_a_device_that_sizes_gaussian_noise_for_add_or_remove_is_caught():
    """The same factor of two: as if the upload could only be there or not."""
    claimed, wrong = claim(plan("local-gaussian", noise_multiplier=2.0)), plan("local-gaussian", noise_multiplier=1.0)
    assert lower_bound(wrong, along(device(wrong, "items"), "items"), 0.0) > 1.5 * claimed


@pytest.mark.parametrize(
    "protected",
    [plan("local-laplace", epsilon0=1.0), plan("local-gaussian", noise_multiplier=2.0)],
    ids=["laplace", "gaussian"],
)
def test_a_device_that_forgets_to_clip_is_caught(protected):
    worlds = along(device(protected, "items", clips=False), "items")
    assert lower_bound(protected, worlds, CLIP) > 1.5 * claim(protected)


def test_a_server_that_adds_half_the_noise_is_caught():
    wrong = plan("central-gaussian", noise_multiplier=1.0)
    claimed = claim(plan("central-gaussian", noise_multiplier=2.0))
    assert lower_bound(wrong, server(wrong), CLIP / 2) > 1.5 * claimed


def test_where_two_inputs_agree_nothing_is_found():
    """A placebo: the inputs differ in the item table, the attack looks at the head."""
    gaussian = plan("local-gaussian", noise_multiplier=1.0)
    blind = along(device(gaussian, "items"), "head")
    for bound in (clopper_pearson_epsilon, gdp_epsilon):
        assert bound(*blind, delta=gaussian.delta, threshold=0.0).epsilon == 0
