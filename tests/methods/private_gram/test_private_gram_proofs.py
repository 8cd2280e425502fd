"""What is claimed of `private-gram`, against its proof: two Gaussian sums of one draw are mu-GDP together.

One user has norm sqrt(share) C in each ask and the shares add up to 1, so both sums together move by C at most, and
noise of z C on each makes them one Gaussian mechanism of mu = 1 / z. Its epsilon is known in closed form (Balle and
Wang 2018, theorem 8; Dong, Roth and Su 2022, corollary 1), and every way to account it has to say that.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr

from privfed.contracts import NoisySums
from privfed.federation import Call, Message, Streams
from privfed.methods import PublicInfo, method
from privfed.methods.client_data import ClientData
from privfed.privacy import Ledger, PrivacyPlan, forecast, plan_for_target
from privfed.privacy.events import SchemaSummary

N, M = 6040, 3706
DELTA = N**-1.1
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SHARES = (0.1, 0.37, 0.5, 0.9)
THREE_DIGITS = 5e-4


def closed_form(mu, delta=DELTA):
    """Epsilon of mu-GDP at delta, written out here once more and not taken from the package."""

    def excess(epsilon):
        here, there = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(here) - math.exp(there) - delta

    return brentq(excess, 0, 200, xtol=1e-12)


def mu_of(epsilon, delta=DELTA):
    return brentq(lambda mu: closed_form(mu, delta) - epsilon, 0.01, 8, xtol=1e-12)


def server(plan, n=N, m=M, **settings):
    """The public half at the size of MovieLens-1M; it needs no data."""
    registered = method("private-gram")
    public_info = PublicInfo(n, m, sums=plan.noisy_sums(n))
    return registered.training.server(registered.config(**settings), public_info, Streams.from_seed(0))


def charged(plan, schemas, n=N):
    """The guarantee of a ledger in which everybody took part in these asks of one draw."""
    ledger = Ledger(plan, n)
    for index, schema in enumerate(schemas):
        ledger.record(
            cohort_id=0,
            round=0,
            step=f"ask {index}",
            index=index,
            schema=SchemaSummary.from_schema(schema),
            participants=np.arange(n),
        )
    return ledger.guarantee()


def central(z, **fields):
    return PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=z, delta=DELTA, **fields)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_both_queries_together_have_the_epsilon_of_the_closed_formula(epsilon, share):
    plan = central(1 / mu_of(epsilon))
    schemas = server(plan, popularity_share=share).schemas
    assert [sum(block.share for block in schema.values()) for schema in schemas] == pytest.approx([share, 1 - share])
    claim = charged(plan, schemas)
    assert claim.epsilon == pytest.approx(epsilon, rel=THREE_DIGITS)
    assert claim.epsilon >= epsilon * (1 - 1e-6)
    assert (claim.neighbours, claim.trust, claim.unit, claim.accountant) == (
        "add_or_remove_one",
        "central",
        "user",
        "PLD",
    )
    foreseen = forecast(plan, rounds=1, population=N, up=schemas, down=0.0)
    assert foreseen.guarantee.epsilon == claim.epsilon


@given(epsilon=st.floats(0.2, 20), share=st.floats(0.02, 0.98), clip=st.floats(1e-3, 1e3))
@settings(max_examples=6, deadline=None)
def test_neither_the_share_nor_the_clip_norm_changes_what_both_queries_cost(epsilon, share, clip):
    plan = PrivacyPlan.named("central-gaussian", clip_norm=clip, noise_multiplier=1 / mu_of(epsilon), delta=DELTA)
    claim = charged(plan, server(plan, popularity_share=share, head=60).schemas)
    assert claim.epsilon == pytest.approx(epsilon, rel=THREE_DIGITS)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_plan_sized_for_a_target_has_the_noise_of_the_closed_formula(epsilon):
    sized = plan_for_target(central(1.0), epsilon, 1, N)
    assert sized.mechanism.noise_multiplier == pytest.approx(1 / mu_of(epsilon), rel=THREE_DIGITS)
    assert charged(sized, server(sized).schemas).epsilon <= epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("share", [None, 0.5])
def test_shares_of_noise_are_claimed_from_above_and_by_no_more_than_a_sixth(epsilon, share):
    """The claim for integer noise is by Renyi divergences, which lies above the formula."""
    plan = PrivacyPlan.named(
        "distributed-gaussian", clip_norm=1.0, noise_multiplier=1 / mu_of(epsilon), n_min_honest=5436, delta=DELTA
    )
    claim = charged(plan, server(plan, popularity_share=share, head=200).schemas)
    assert epsilon * (1 - THREE_DIGITS) <= claim.epsilon <= epsilon * 7 / 6
    assert (claim.neighbours, claim.trust) == ("zero_out_one", "distributed")


def test_what_shares_of_noise_cost_does_not_depend_on_how_many_more_than_the_fewest_answer():
    claims = [
        charged(
            PrivacyPlan.named(
                "distributed-gaussian", clip_norm=1.0, noise_multiplier=1.0, n_min_honest=fewest, delta=DELTA
            ),
            server(central(1.0), head=100).schemas,
        ).epsilon
        for fewest in (5436, 6040)
    ]
    assert claims[0] == pytest.approx(claims[1], rel=1e-3)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_second_draw_costs_root_two_in_mu(epsilon):
    """The same two asks again, with fresh noise: a refresh."""
    plan = central(1 / mu_of(epsilon))
    ledger, schemas = Ledger(plan, N), server(plan).schemas
    for draw in range(2):
        for index, schema in enumerate(schemas):
            ledger.record(
                cohort_id=draw, round=draw, step="again", index=index, schema=SchemaSummary.from_schema(schema),
                participants=np.arange(N),
            )  # fmt: skip
    assert ledger.guarantee().epsilon == pytest.approx(closed_form(math.sqrt(2) * mu_of(epsilon)), rel=THREE_DIGITS)


# ---- another history in a user's place


def uploads(split, plan, histories):
    """Weighted uploads of every user in both asks, as they would be clipped: `[users, numbers]` of each."""
    registered = method("private-gram")
    n, m = split.train.n_users, split.train.n_items
    public = registered.training.server(
        registered.config(histories=histories, head=24), PublicInfo(n, m, sums=plan.noisy_sums(n)), Streams.from_seed(0)
    )
    clients = registered.training.clients(public.config, ClientData.from_split(split, "train"), Streams.from_seed(0))
    head = torch.from_numpy(np.argsort(-np.bincount(split.train.items, minlength=m), kind="stable")[:24].copy())
    relation = Message(public.public().shared | {"head": head})
    found = []
    for index, (step, schema) in enumerate(zip(("popularity", "gram"), public.schemas, strict=True)):
        users = torch.arange(n)
        sent = getattr(clients, step)(Call(0, 0, step, index, users, Streams.from_seed(0), schema), relation)
        (name, block), values = next(iter(schema.items())), sent.materialise(users)
        found.append(values[name].double().reshape(n, -1) * block.weight)
    return found


@pytest.mark.parametrize("histories", ["long", "short"])
def test_another_history_moves_both_sums_by_at_most_twice_what_none_does(small_split, histories):
    """Replace-one doubles mu in general. Whole outer products are positive semidefinite, and so are histories among
    themselves: two of them are never more than a right angle apart, which is sqrt(2)."""
    popularity, gram = uploads(small_split, central(1.0), histories)
    both = torch.cat([popularity, gram], 1)
    assert both.norm(dim=1).max() <= 1
    apart = torch.cdist(both, both)
    assert apart.max() <= (math.sqrt(2) if histories == "long" else 2.0) + 1e-6
    assert apart.max() > 1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_replacing_a_history_costs_what_half_the_noise_would(epsilon):
    mu = mu_of(epsilon)
    halved = central(1 / (2 * mu))
    doubled = closed_form(2 * mu)
    assert charged(halved, server(central(1 / mu)).schemas).epsilon == pytest.approx(doubled, rel=THREE_DIGITS)
    assert doubled > 2 * epsilon


def test_a_local_plan_is_about_replacing_and_its_sensitivity_says_so():
    plan = PrivacyPlan.named("local-gaussian", clip_norm=1.0, noise_multiplier=2.0, delta=DELTA)
    claim = charged(plan, server(plan, head=60).schemas)
    assert claim.neighbours == "replace_one"
    assert claim.epsilon == pytest.approx(closed_form(2 * 1.0 / 2.0), rel=THREE_DIGITS)


def test_the_server_is_told_the_noise_and_nothing_of_the_data():
    z = 1 / mu_of(1.0)
    assert central(z).noisy_sums(N) == NoisySums(N, 1.0, z)
