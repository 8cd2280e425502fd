"""Rings of any width in a whole round: the protocol opens what the sum is, bytes are those that travel, errors hold."""

import math

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.aggregation import masked_sum
from privfed.engines.simulation import Simulation
from privfed.federation import Message, PrivateState, StatefulClients, Streams
from privfed.guards.ring_code import RingCode
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.privacy.forecast import forecast
from privfed.updates import ClientUpdates, Dense, Rows
from secure_agg.errors import RingOverflowError
from secure_agg.masking import Stage
from secure_agg.masking.messages import HEADER_BYTES

USERS, ITEMS = 20, 9
SCHEMA = {"items": Block((ITEMS, 3)), "tier": Block((4,), weight=math.sqrt(2)), "seen": Block((5,), "integer", bound=1)}


class Halves(StatefulClients):
    """Everybody sends one row, a vector of its own size, and a count."""

    steps = frozenset({"train"})

    def __init__(self):
        self.private = PrivateState({"steps": torch.zeros(USERS)})

    def train(self, call, message):
        users, places = call.clients, torch.arange(len(call.clients))
        self.private.stage(users, self.private.rows(users))
        rows = torch.stack([torch.from_numpy(np.random.default_rng(u).normal(size=3)) for u in users.tolist()]).float()
        return ClientUpdates(
            users, call.schema, [
                Rows("items", places, users % ITEMS, rows),
                Dense("tier", places, (users.unsqueeze(1) - torch.arange(4.0)) / 50),
                Dense("seen", places, (users.unsqueeze(1) % 5 == torch.arange(5)).long()),
            ],
        )  # fmt: skip


class OneSum:
    def public(self):
        return Message({"x": torch.zeros(1)})

    def round(self, federation, t):
        self.total = federation.aggregate("train", federation.sample_cohort(t), self.public(), SCHEMA)


def summed(plan, fidelity="exact", chunk=None):
    privacy, server = PrivacyPlan.parse(plan), OneSum()
    made = Simulation(
        Halves(), privacy, USERS, Streams.from_seed(0), Ledger(privacy, USERS), fidelity=fidelity, chunk=chunk
    )  # fmt: skip
    made.run(server, 0)
    return server.total.sums, made.costs


PLANS = [
    "secure-sum:clip_norm=1,bits=11,rounding=stochastic",
    "secure-sum:clip_norm=1,bits=20",
    "secure-sum:clip_norm=1,bits=24,blocks=held,rounding=stochastic",
    "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=10,bits=17",
    "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=10,bits=33,law=discrete_gaussian",
]


@pytest.mark.parametrize("plan", PLANS)
def test_the_protocol_opens_the_sum_and_sends_the_bytes_that_are_counted(plan, monkeypatch):
    traffic, real = [], masked_sum.aggregate

    def counted(words, terms, **options):
        outcome = real(words, terms, **options)
        traffic.append(outcome.traffic[Stage.MASKED_INPUT] - len(words) * HEADER_BYTES)
        return outcome

    monkeypatch.setattr(masked_sum, "aggregate", counted)
    (exact, costs), (masked, sent) = summed(plan), summed(plan, "protocol", chunk=16)
    for name in SCHEMA:
        assert exact[name].equal(masked[name])
    assert exact["seen"].sum() == USERS
    masking = PrivacyPlan.parse(plan).mechanism.masking
    assert sum(traffic) == sent.up_bytes == costs.up_bytes == USERS * masking.upload_bytes(SCHEMA)
    assert masking.upload_bytes(SCHEMA) == -(-(3 * ITEMS + 4 + 5) * masking.bits // 8)
    assert forecast(PrivacyPlan.parse(plan), rounds=1, population=USERS, up=SCHEMA, down=0.0).up_bytes == sent.up_bytes


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("bits", [9, 12, 20])
def test_no_coordinate_errs_by_more_than_the_plan_says(bits, rounding):
    plan = f"secure-sum:clip_norm=1,bits={bits},rounding={rounding}"
    said = PrivacyPlan.parse(plan).mechanism.masking.sum_error(SCHEMA, USERS)
    exact, rounded = summed("secure-sum:clip_norm=1,bits=64")[0], summed(plan)[0]
    for name in ("items", "tier"):
        assert (rounded[name] - exact[name]).abs().max() * SCHEMA[name].weight <= said.largest
    assert said.step * USERS / (2 if rounding == "nearest" else 1) == said.largest
    assert said.deviation == (None if rounding == "nearest" else said.step * math.sqrt(USERS) / 2)
    [shown] = [s for s in forecast_of(plan).guarantee.statements if "bits on the wire" in s]
    assert f"takes {bits} bits" in shown
    assert f"at most {said.largest:.2g}" in shown


def forecast_of(plan):
    return forecast(PrivacyPlan.parse(plan), rounds=1, population=USERS, up=SCHEMA, down=0.0)


def test_stochastic_rounding_is_right_on_average_and_no_wider_than_said():
    """4,000 times the same client: the mean is the value, and the variance is below a quarter of a step squared."""
    schema = {"v": Block((6,))}
    mechanism = PrivacyPlan.parse("secure-sum:clip_norm=1,bits=9,rounding=stochastic").mechanism
    code = RingCode(mechanism, schema, USERS)
    values = torch.tensor([[0.3, -0.01, 0.001, 0.0, -0.7, 0.02]])
    said, n = mechanism.masking.sum_error(schema, USERS), 4000
    keys = [np.random.default_rng(i).bytes(32) for i in range(n)]
    seen = np.stack([code.decode(code.encode({"v": values}, 0, key))["v"].numpy() for key in keys])
    assert (np.abs(seen.mean(0) - values[0].numpy()) < 5 * said.step / 2 / math.sqrt(n)).all()
    assert (seen.var(0) <= said.step**2 / 4 * (1 + 5 * math.sqrt(2 / n))).all()
    assert (seen[:, 3] == 0).all()
    assert (seen[:, 2] > 0).any()


def test_rounding_of_shares_errs_by_less_than_the_plan_says():
    said = PrivacyPlan.parse(PLANS[3]).mechanism.masking.sum_error(SCHEMA, USERS)
    assert said.deviation is None
    assert said.largest == USERS * said.step
    assert PrivacyPlan.parse(PLANS[4]).mechanism.masking.sum_error(SCHEMA, USERS).step < said.step


def test_a_ring_that_is_too_small_says_so():
    with pytest.raises(RingOverflowError, match=r"20 clients .* needs 7 bits and the ring has 6, 1 too few"):
        summed("secure-sum:clip_norm=1,bits=6")
    [shown] = [s for s in forecast_of("secure-sum:clip_norm=1,bits=6").guarantee.statements if "6 bits" in s]
    assert "no room for real numbers of rounds of 20 clients" in shown


@pytest.mark.parametrize("bits", [1, 65, 20.5])
def test_widths_that_no_ring_has(bits):
    with pytest.raises(PlanError, match="bits"):
        PrivacyPlan.parse(f"secure-sum:clip_norm=1,bits={bits}")


def test_held_blocks_take_whole_bytes():
    with pytest.raises(PlanError, match=r"bits = 20 is no multiple of 8: use 24"):
        PrivacyPlan.parse("secure-sum:clip_norm=1,bits=20,blocks=held")
