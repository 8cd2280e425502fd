"""Rounded uploads: right on average, within the stated error, of the stated bytes, and of the same epsilon."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block
from privfed.federation import Call, Purpose, Streams
from privfed.guards import ClientGuard
from privfed.guards.quantising import UploadCode, coded_upload_bytes
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.forecast import forecast
from privfed.updates import ClientUpdates, Dense, LowRank, Rows
from secure_agg.encoding import Ring

SCHEMA = {"items": Block((10, 3)), "head": Block((4,), weight=2.0), "seen": Block((5,), "integer", bound=9)}
LOCAL = [
    "none",
    "clip:clip_norm=1",
    "published-noise:scale=0.1",
    "published-noise:scale=0.1,coordinates=touched",
    "local-laplace:epsilon0=1,clip_norm=1",
    "local-gaussian:noise_multiplier=2,clip_norm=1",
    "interaction-dpsgd:noise_multiplier=1,clip_norm=1,local_steps=1,expected_records=10",
]


def guard(plan, seed=0):
    return ClientGuard(PrivacyPlan.parse(plan), Streams.from_seed(seed))


def with_bits(plan, bits=8):
    return f"{plan}{',' if ':' in plan else ':'}upload_bits={bits}"


def call(clients, round=0, query_id=0):
    return Call(round, round, "train", query_id, torch.as_tensor(clients), Streams.from_seed(99), SCHEMA)


def updates(clients, seed=0):
    rng, n = np.random.default_rng(seed), len(clients)
    owner = torch.arange(n).repeat_interleave(2)
    ids = torch.tensor([[c % 10, (c + 4) % 10] for c in clients]).sort(1).values.reshape(-1)
    return ClientUpdates(
        torch.as_tensor(clients), SCHEMA, [
            Rows("items", owner, ids, torch.from_numpy(rng.standard_cauchy((2 * n, 3))).float()),
            Dense("head", torch.arange(0, n, 2), torch.from_numpy(rng.normal(size=(len(range(0, n, 2)), 4))).float()),
            Dense("seen", torch.arange(n), torch.from_numpy(rng.integers(-9, 10, (n, 5)))),
        ],
    )  # fmt: skip


@given(st.integers(0, 10**6), st.integers(2, 16), st.sampled_from([1e-44, 1e-30, 1.0, 1e30]))
@settings(max_examples=60, deadline=None)
def test_values_become_whole_steps_and_come_back_to_the_bit(seed, bits, scale):
    rng, code = np.random.default_rng(seed), UploadCode(bits)
    values = torch.from_numpy(rng.normal(size=(3, 17)) * scale).float()
    values[0, :3], values[2] = 0.0, 0.0
    steps = code.steps_of(values)
    whole = code.whole(values, steps, rng.integers(0, 2**32, (3, 17), np.uint32))
    assert (whole == whole.round()).all()
    assert (whole.abs() <= code.levels).all()
    assert ((whole * steps.double()[:, None] - values).abs() < steps.double()[:, None]).all()
    assert not whole[values == 0].any()
    rounded = (whole.float() * steps[:, None]).numpy()
    for row, step in zip(rounded, steps.numpy(), strict=True):
        data = code.pack(row, step)
        assert data.size == -(-17 * bits // 8)
        np.testing.assert_array_equal(code.unpack(data, step, 17), row)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_is_unbiased_with_a_variance_below_a_quarter_step_squared(bits):
    """Over 6,000 uploads of the same values: per coordinate, and the error of sums of 50."""
    users, row = 6000, torch.tensor([1.0, -0.61, 0.3, 0.004, 0.0, -1e-5])
    schema = {"v": Block((6,))}
    u = ClientUpdates(torch.arange(users), schema, [Dense("v", torch.arange(users), row.repeat(users, 1))])
    c = Call(3, 3, "train", 0, torch.arange(users), Streams.from_seed(0), schema)
    sent = guard(f"none:upload_bits={bits}").protect(u, c, torch.arange(users))["v"].double()
    step = 1 / UploadCode(bits).levels
    error = sent - row.double()
    assert (error.mean(0).abs() <= 5 * step / 2 / math.sqrt(users)).all()
    fraction = (row.double() / step) % 1
    expected = fraction * (1 - fraction) * step**2
    assert (error.var(0) <= step**2 / 4 * 1.1).all()
    torch.testing.assert_close(error.var(0), expected, rtol=0.25, atol=step**2 * 1e-3)
    sums = error.view(50, users // 50, 6).sum(0)
    assert (sums.var(0) <= 50 * step**2 / 4 * 1.5).all()


@pytest.mark.parametrize("plan", LOCAL)
def test_epsilon_is_that_of_the_plan_without_rounding(plan):
    schema = {name: block for name, block in SCHEMA.items() if block.kind == "real"}
    bare, rounded = (
        forecast(PrivacyPlan.parse(words), rounds=5, population=50, up=schema, down=0.0)
        for words in (plan, with_bits(plan))
    )
    assert rounded.guarantee.epsilon == bare.guarantee.epsilon
    assert rounded.guarantee.assumptions == bare.guarantee.assumptions
    [said] = [s for s in rounded.guarantee.statements if s not in bare.guarantee.statements]
    hides = "hides nothing" in said
    assert hides == (plan in LOCAL[:2])
    assert "8 bits" in said
    assert "largest value over 127" in said
    assert rounded.up_bytes < bare.up_bytes


@pytest.mark.parametrize("plan", LOCAL[:6])
def test_rounding_comes_last_and_depends_on_no_chunk(plan):
    """What is rounded is exactly what the plan sends without rounding; and every client's result stands alone."""
    clients = list(range(7))
    unrounded = guard(plan).protect(updates(clients), call(clients), torch.arange(7))
    steps = {}
    sent = guard(with_bits(plan, 6)).protect(updates(clients), call(clients), torch.arange(7), steps=steps)
    assert sent["seen"].equal(unrounded["seen"])
    for name in ("items", "head"):
        was, now = unrounded[name].flatten(1), sent[name].flatten(1)
        assert steps[name].equal(UploadCode(6).steps_of(was))
        assert ((now - was).abs() < steps[name][:, None] * (1 + 1e-6)).all()
        assert not now.equal(was)
        assert not now[was == 0].any()
    alone = guard(with_bits(plan, 6)).protect(updates(clients), call(clients), torch.tensor([5, 2]))
    for name in SCHEMA:
        assert alone[name].equal(sent[name][[5, 2]])
    other = guard(with_bits(plan, 6)).protect(updates(clients), call(clients, round=1), torch.arange(7))
    assert not other["head"].equal(sent["head"])


def test_bytes_are_those_of_the_packed_message():
    clients = list(range(6))
    u, ring = updates(clients), Ring(7)
    heads, integers = 3 * (ring.packed_bytes(4) + 4), 6 * 5 * 8
    assert guard("none:upload_bits=7").upload_bytes(u) == 6 * (ring.packed_bytes(6) + 2 * 4 + 4) + heads + integers
    assert guard("published-noise:scale=1,coordinates=touched,upload_bits=7").upload_bytes(u) == guard(
        "none:upload_bits=7"
    ).upload_bytes(u)
    dense = guard("local-laplace:epsilon0=1,clip_norm=1,upload_bits=7")
    assert dense.upload_bytes(u) == 6 * (ring.packed_bytes(30) + ring.packed_bytes(4) + 8) + integers
    product = LowRank("items", torch.tensor([1]), torch.ones(1, 2, 10), torch.ones(1, 2, 3))
    low = ClientUpdates(torch.arange(6), {"items": SCHEMA["items"]}, [product])
    assert coded_upload_bytes(low, 7, dense=False) == ring.packed_bytes(30) + 4


def test_bits_are_not_those_of_the_noise():
    streams = Streams.from_seed(0)
    words = [streams.words(purpose, 0, 0, [1], 8) for purpose in (Purpose.NOISE, Purpose.SHARE, Purpose.ROUNDING)]
    assert len({w.tobytes() for w in words}) == 3


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("secure-sum:clip_norm=1", "ring has a width of its own: set bits instead"),
        ("shared-sum", "set bits instead"),
        ("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=5", "set bits instead"),
        ("central-gaussian:clip_norm=1,noise_multiplier=1", "beyond the clip norm"),
        ("none:release=total", "only their sum is released"),
    ],
)
def test_plans_that_release_sums_refuse_it(plan, said):
    with pytest.raises(PlanError, match=said) as refused:
        PrivacyPlan.parse(with_bits(plan))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("bits", [1, 17, 7.5])
def test_bits_that_no_upload_has(bits):
    with pytest.raises(PlanError, match="upload_bits"):
        PrivacyPlan.parse(f"none:upload_bits={bits}")


def test_a_plan_with_bits_is_named_written_and_read_back():
    plan = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=1,upload_bits=8")
    assert plan.name.endswith("8-bit uploads")
    assert plan.slug.endswith("upload-bits-8")
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
    assert not PrivacyPlan.parse("none:upload_bits=8").unprotected
    assert PrivacyPlan.parse("none").unprotected
