"""Sums between two servers in a simulation: equal to the open ones to the bit, in two exchanges for each sum."""

import pytest

from privfed.engines import simulation as simulations
from privfed.engines.aggregation import TwoServerSum
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig
from secure_agg.encoding import Ring
from secure_agg.two_server.uploads import OVERHEAD
from tests.engines.test_held_blocks import HELD, MIXED, SCHEMA
from tests.engines.test_held_blocks import summed as summed_blocks
from tests.engines.test_ring_widths import PLANS, USERS, summed


@pytest.fixture
def sums(monkeypatch):
    """Every sum that a simulation makes between two servers."""
    made = []

    class Kept(TwoServerSum):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(simulations, "TwoServerSum", Kept)
    return made


@pytest.mark.parametrize("plan", PLANS)
def test_two_servers_open_the_sum_of_the_ring(plan, sums):
    exact, _ = summed(plan)
    opened, _ = summed(plan, "two-servers")
    assert exact.keys() == opened.keys()
    assert all(opened[name].equal(values) for name, values in exact.items())
    assert sum(one.sums for one in sums) >= 1


def test_blocks_that_few_hold_are_sums_of_their_own(sums):
    exact, opened = summed_blocks(HELD, MIXED), summed_blocks(HELD, MIXED, "two-servers")
    assert all(opened.total.sums[name].equal(exact.total.sums[name]) for name in SCHEMA)
    assert sums[0].sums > 1


def test_a_client_uploads_its_packed_elements_and_a_seed(sums):
    summed(PLANS[1], "two-servers")
    [one] = sums
    assert one.upload_bytes == USERS * (Ring(20).packed_bytes(one._code.length) + 32 + 2 * OVERHEAD)


def test_private_gram_takes_four_exchanges(small_split, sums):
    """Two sums, each of one exchange with the clients and one between the servers; over nodes masks take ten."""
    found = {}
    for fidelity in ("exact", "two-servers"):
        config = ExperimentConfig(
            data="synthetic-tests", method={"name": "private-gram", "head": 20, "histories": "long", "min_items": 0},
            privacy=PrivacyPlan.parse(
                "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=36,delta=0.001"
            ),
            rounds=1, seed=4, fidelity=fidelity, evaluate_every=1,
        )  # fmt: skip
        experiment = Experiment(config, small_split, Streams.from_seed(4))
        experiment.run()
        found[fidelity] = experiment.server.state()
    assert [one.sums for one in sums] == [1, 1]
    assert sum(2 * one.sums for one in sums) == 4
    assert found["exact"].keys() == found["two-servers"].keys()
    assert all(values.equal(found["two-servers"][name]) for name, values in found["exact"].items())
