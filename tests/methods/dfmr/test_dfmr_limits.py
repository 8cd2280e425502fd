"""What DFMR refuses, in one sentence each, and what it sends, to the byte."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from privfed.cli.compatibility import EXAMPLES
from privfed.data import DataError, Histories, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.methods import ClientData, PublicInfo, method
from privfed.methods.client_data import BehaviourError
from privfed.methods.dfmr import BlocksError, DFMRConfig, NoPurchasesError, SumOverflowError
from privfed.methods.dfmr.balance import NULL_SHARE, Balance
from privfed.methods.dfmr.discrete import (
    DiscreteError,
    GridError,
    IntegerGrid,
    ItemSupport,
    balance,
    objective,
    pair_scores,
)
from privfed.methods.dfmr.overflow import largest_user_field
from privfed.methods.dfmr.schemas import LOSS, statistics_schema
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.mechanisms.shared_sum import SharedSum
from privfed.privacy.padding.fake_items import FakeItems
from privfed.setup.config import ExperimentConfig
from privfed.setup.padding import padded_data
from secure_agg.errors import ConfigurationError, RingOverflowError
from secure_agg.sparse import RowIndices, RowShare


def one_sentence(caught):
    text = str(caught.value)
    assert "\n" not in text
    assert ". " not in text.rstrip(".")
    return text


def test_purchases_are_needed(coded, funnel):
    nothing = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), 150, 200)
    with pytest.raises(NoPurchasesError, match=r"choose data and a split\.target that have them") as caught:
        coded(parts=replace(funnel, train=nothing))
    one_sentence(caught)
    registered = method("dfmr")
    with pytest.raises(NoPurchasesError):
        registered.training.server(registered.config(), PublicInfo(5, 9), Streams.from_seed(0))


def test_a_target_is_needed():
    with pytest.raises(DataError, match=r"choose the one to recommend, for example SplitSpec\(target=.buy.\)"):
        split(load("synthetic-funnel-small"), SplitSpec())


def test_examinations_are_behaviours_that_there_are(coded):
    with pytest.raises(BehaviourError, match=r"'favourite' are not in the data.*\(cart, view\)") as caught:
        coded(examinations=("view", "favourite"))
    one_sentence(caught)


@pytest.mark.parametrize("plan", ["none", "shared-sum:padding.kind=fake_items,padding.rho=1"])
def test_examinations_are_of_the_catalogue(coded, funnel, plan):
    beyond = Histories.from_pairs(np.array([0, 3]), np.array([4, 200]), 150, 201)
    with pytest.raises((DataError, DiscreteError), match="same data set") as caught:
        coded(parts=replace(funnel, auxiliary={"view": beyond}), plan=plan)
    one_sentence(caught)


@pytest.mark.parametrize(
    "settings", [{"c0": 1e9}, {"bits": 50}, {"d": 100, "bits": 40, "start_sweeps": 0}, {"alpha": 1e9}, {"beta": 1e9}]
)
def test_a_field_that_may_leave_64_bits_is_refused_with_the_bits_it_needs(coded, settings):
    with pytest.raises(SumOverflowError, match=r"can need \d+ bits and integers have 64: lower bits to \d+") as caught:
        coded("dcf" if "beta" in settings else "dfmr", **settings)
    lower = int(one_sentence(caught).split()[-1])
    coded(**settings | {"bits": lower})
    with pytest.raises(SumOverflowError):
        coded(**settings | {"bits": lower + 2})


@pytest.mark.parametrize("settings", [{"bits": 60}, {"bits": 60, "d": 3, "c0": 1e-4, "w": 1e-4}, {"beta": 1e9}])
def test_the_overflow_bound_ends_at_the_last_bit(coded, settings):
    with pytest.raises(SumOverflowError) as caught:
        coded(**settings)
    finest = int(one_sentence(caught).split()[-1])
    coded(**settings | {"bits": finest})
    with pytest.raises(SumOverflowError, match="can need 65 bits"):
        coded(**settings | {"bits": finest + 1})


def test_the_overflow_bound_leaves_space_for_the_inertia_of_a_repeated_sweep(coded):
    """A field that fits as it is, and not with what would hold it back."""

    purchases = coded().data.positives

    def bounds(c0):
        grid = DFMRConfig(d=8, c0=c0).grid(purchases)
        alone = grid.contribution_bound + grid.field_bound + grid.proximal_bound + (grid.d - 1) * grid.kappa_bound
        return 150 * alone, 150 * (alone + grid.inertia_bound), largest_user_field(DFMRConfig(d=8, c0=c0), grid)

    c0 = 44.0 * 2**63 / math.sqrt(math.prod(bounds(44.0)[:2]))
    alone, held_back, users = bounds(c0)
    assert max(alone, users) < 2**63 <= held_back
    with pytest.raises(SumOverflowError, match="field of an item's bit"):
        coded(c0=c0, alpha=0.0)


@pytest.mark.parametrize(("w", "bought", "share"), [(1.0, 9, 1.0), (0.0, 1, 8 / 9)])
def test_the_bound_of_the_objective_is_nearly_reached(w, bought, share):
    """By purchases that all score as low as they can, and by a hub that does while everything else scores high."""
    m, d, one = 9, 3, np.arange(1)
    c = np.where(np.arange(m) == 0, 1.0 - w, 0.0)
    grid = IntegerGrid.from_parameters(m, d, w=w, s=0, lam=1.0, c=c, gammas=(1.0, 1.0, 1.0), bits=4)
    purchases = Histories.from_pairs(np.zeros(bought, np.int64), np.arange(bought), 1, m)
    nothing = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), 1, m)
    support, user = ItemSupport.from_histories(purchases, nothing), np.ones((1, d), np.int8)
    items = np.where(np.arange(m)[:, None] < bought, -user, user).astype(np.int8)
    scores, wide = np.zeros(len(support.items), np.int32), items.astype(np.int64)
    pair_scores(grid, support, one, user, items, scores)
    loss = objective(grid, support, one, user, scores, wide.T @ wide, wide.sum(0))[0]
    bound = statistics_schema(DFMRConfig(d=d), grid)[LOSS].bound
    assert bound == pytest.approx(loss / share + 1)


def test_a_field_that_no_grid_makes_fit_is_refused(coded):
    with pytest.raises(SumOverflowError, match="lower c0, w or the balance weights"):
        coded(bits=1, alpha=1e16)
    with pytest.raises(GridError, match="scale it down or lower bits"):
        coded(c0=1e18, bits=60)
    with pytest.raises(ValidationError, match="finite"):
        DFMRConfig(alpha=math.inf)


def test_the_overflow_bound_is_proven_for_any_code(coded):
    """The most a device could add to its own field, with moments as lopsided as they can be."""
    rng = np.random.default_rng(0)
    config = DFMRConfig(d=6, bits=8, alpha=0.6)
    grid = IntegerGrid.from_parameters(9, 6, w=0, s=0, lam=1, c=np.zeros(9), gammas=(0.0, 0.0, 0.0), bits=8)
    room, largest = largest_user_field(config, grid), 0
    assert NULL_SHARE == balance._NULL
    for rare in (1, 3, 40):
        codes = np.ones((100_000, 6), np.int8)
        codes[:rare] = rng.choice(np.array([-1, 1], np.int8), (rare, 6))
        products = codes.T.astype(np.int64) @ codes
        made = Balance.from_moments(grid, config.alpha, codes.sum(0, dtype=np.int64), products, len(codes))
        everything = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(np.int8) * np.int8(2) - np.int8(1)
        largest = max(largest, int(np.abs(made.on(everything)).max()))
    assert 1000 < largest < room


def test_more_blocks_than_items_are_refused(coded):
    with pytest.raises(BlocksError, match=r"blocks = 1000 exceeds the \d+ items") as caught:
        coded(blocks=1000)
    one_sentence(caught)


@pytest.mark.parametrize("fidelity", ["analytic", "exact", "protocol"])
def test_a_value_over_its_bound_is_refused_however_the_wire_is_simulated(coded, fidelity):
    world = coded(plan="secure-sum:clip_norm=1,bits=64", fidelity=fidelity)
    world.clients.weights.kappa[3] = world.server.grid.kappa_bound + 1
    with pytest.raises(ConfigurationError, match="the encoding holds up to"):
        world.train(1)


def test_a_ring_that_is_too_narrow_is_refused_with_the_bits_it_needs(coded):
    for fidelity in ("exact", "protocol"):
        with pytest.raises(RingOverflowError, match=r"needs \d+ bits and the ring has 32, \d+ too few") as caught:
            coded(plan="shared-sum:bits=32", fidelity=fidelity).train(1)
        one_sentence(caught)


def test_a_narrow_ring_holds_a_coarse_grid(coded):
    settings = {"bits": 6, "d": 4, "c0": 1.0}
    found = coded(plan="shared-sum:bits=32", fidelity="protocol", **settings).train(2).codes
    plain = coded(**settings).train(2).codes
    assert all(np.array_equal(a, b) for a, b in zip(found, plain, strict=True))


def test_a_cohort_below_the_smallest_is_refused(coded):
    with pytest.raises(
        PlanError, match=r"a round can have 150, so none would ever be released: use at most 150"
    ) as caught:
        coded(plan="shared-sum:min_cohort=151")
    one_sentence(caught)
    coded(plan="shared-sum:min_cohort=150").train(1)
    with pytest.raises(PlanError, match="min_cohort"):
        PrivacyPlan.parse("shared-sum:min_cohort=1")


@pytest.mark.parametrize("name", ["dfmr", "dcf", "lightfr"])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_plans_that_would_leave_whole_numbers_as_they_are_are_refused(funnel, name, kind):
    config = ExperimentConfig(method={"name": name, "d": 4}, privacy=PrivacyPlan(mechanism=EXAMPLES[kind]))
    if kind in ("none", "none:release=total", "secure-sum", "shared-sum"):
        assert Experiment(config, funnel).registered.traits.integers
        return
    with pytest.raises(PlanError, match=rf"{name} cannot run behind the plan .*: (its uploads are whole|the plan)"):
        Experiment(config, funnel)


def test_a_method_without_rows_has_none_to_cover(funnel):
    config = ExperimentConfig(
        data="synthetic-funnel-small",
        method={"name": "fedvae"},
        privacy=PrivacyPlan.parse("shared-sum:clip_norm=1,padding.kind=fake_items,padding.rho=1,padding.drawn=uniform"),
    )
    with pytest.raises(PlanError, match=r"no rows to pad: choose padding\.kind = 'full_support'") as caught:
        Experiment(config, funnel)
    one_sentence(caught)


def test_user_codes_of_the_server_need_sweeps():
    with pytest.raises(ValidationError, match="start_sweeps = 0 makes none"):
        DFMRConfig(start="server", start_sweeps=0)
    with pytest.raises(ValidationError, match="start_sweeps"):
        method("lightfr").config(start="server")


@pytest.mark.parametrize("padding", ["full_support", "no_padding", "fake_items,padding.rho=1"])
@pytest.mark.parametrize("aggregators", [2, 3])
@pytest.mark.parametrize(
    ("settings", "numbers"), [({}, 28 + 8 + 1 + 8 + 28 + 1 + 1), ({"alpha": 0, "guard": False}, 28 + 8)]
)
def test_what_a_client_uploads_is_what_its_messages_weigh(coded, few, padding, aggregators, settings, numbers):
    world = coded(parts=few, plan=f"shared-sum:padding.kind={padding},aggregators={aggregators}", **settings)
    own = world.data.positives.union(world.data.examined(None)) if world.support is None else world.support

    def share(words):
        sent = [RowShare(0, 0, 0, words, np.zeros(words, "<u8"))]
        sent += [RowShare(party, 0, 0, words) for party in range(1, aggregators)]
        return sum(len(message.encode()) for message in sent)

    expected, named = 0, 0
    for user in range(24):
        rows = np.sort(own.items_of(user)).astype(np.uint32)
        named += 0 if padding == "full_support" else len(RowIndices(rows).encode())
        expected += share(numbers) + 8 * share((200 if padding == "full_support" else len(rows)) + 1)
        expected += 0 if "guard" in settings else share(1)
    costs, before = world.simulation.costs, 0
    for t in range(2):
        before = costs.up_bytes
        world.train(t + 1, first=t)
    assert costs.up_bytes - before == expected
    assert world.simulation._shared.announced.enrolment_bytes == named
    assert world.server.repeated == 0


def test_an_upload_is_8_bytes_for_every_row_and_bit_and_little_more(coded):
    """As the slides count: (support + 1) d words and the statistics, here 8 bytes each; then headers."""
    world = coded(d=32, plan="shared-sum:padding.kind=fake_items,padding.rho=1").train(1)
    before = world.simulation.costs.up_bytes
    world.train(2, first=1)
    rows, pairs = world.support.counts.sum(), 32 * 31 // 2
    words = (rows + 150) * 32 + 150 * (2 * (32 + pairs) + 1 + 1 + 1 + 1)
    headers = 150 * (32 + 2) * 2 * 20
    assert world.simulation.costs.up_bytes - before == 8 * words + headers


@pytest.mark.parametrize("name", ["dfmr", "dcf"])
def test_what_a_client_downloads_is_packed_codes_and_columns(coded, name):
    world = coded(name, d=32).train(3)
    balance = 8 * (32 * 32 + 32) if name == "dfmr" else 0
    codes, column = 200 * 4, math.ceil(200 / 8)
    assert world.server.public().bytes_per_client() == codes + balance
    columns = 31 + (name == "dfmr")  # the last one is sent with the question about the objective
    assert world.server.repeated == 0
    assert world.simulation.costs.down_bytes == 3 * 150 * (codes + balance + columns * column)


@pytest.mark.parametrize("padding", ["full_support", "fake_items,padding.rho=9"])
def test_a_sum_with_one_examination_shows_that_clients_code(coded, few, padding):
    """As the module says: rows of zeros open the sum and hide nothing in it, and its sign is the client's bit."""
    world, sums = coded(parts=few, plan=f"shared-sum:padding.kind={padding}", d=16, alpha=0.0), []
    ask = world.simulation.aggregate

    def listen(step, cohort, message, schema):
        release = ask(step, cohort, message, schema)
        if step == "bit":
            sums.append(release.sums["items"][:, 0].numpy().copy())
        return release

    world.simulation.aggregate = listen
    world.train(1)
    bought = world.data.positives.popularity() > 0
    examined = world.data.examined()
    alone = (examined.popularity() == 1) & ~bought
    owners, items = examined.owners[alone[examined.items]], examined.items[alone[examined.items]]
    signs = np.sign(np.stack(sums[:16], axis=1)[items])
    revealed = signs.any(axis=1)
    assert revealed.sum() > 5
    assert np.array_equal(signs[revealed], world.users[owners[revealed]])


def test_fake_items_answer_zero_and_kept_examinations_alone_train(coded, funnel):
    plan = "shared-sum:padding.kind=randomised_response,padding.epsilon=2,padding.keep=0.5,min_cohort=2"
    data, privacy = ClientData.from_split(funnel, "train"), PrivacyPlan.parse(plan)
    covered = padded_data(data, privacy, method("dfmr"), DFMRConfig())
    kept, fakes = covered.data.answering, covered.data.fake_items
    assert 0.4 < len(kept) / len(data.examined(None)) < 0.6
    found = coded(plan=plan).train(2).codes
    plain = coded(data=replace(data, answering=kept)).train(2).codes
    assert all(np.array_equal(a, b) for a, b in zip(found, plain, strict=True))
    world = coded(plan=plan)
    seen = []

    def look(clients, call, message, updates):
        if "items" in call.schema:
            seen.append(updates.stacked("items")[..., 0].numpy()[fakes.owners, fakes.items])

    world.simulation.observers.append(look)
    world.train(1)
    assert len(seen) == 8
    assert not np.any(seen)
    assert isinstance(privacy.mechanism, SharedSum)
    assert not isinstance(privacy.mechanism.padding, FakeItems)
