"""The simulated federation: sums and releases by hand, the rules of asking, and what a failed step leaves behind."""

import pytest
import torch

from privfed.contracts import Block, upload_bytes
from privfed.engines.aggregation import MemoryLimitError, ReleaseBuffer
from privfed.federation import Cohort, FederationError, Message, Total
from privfed.privacy import LedgerError

CHUNKS = [None, 1, 7, 16, 100]


def expected_table(users):
    table = torch.zeros(50, 2)
    for user in users:
        table[user % 50] += user
    return table


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_sum_is_the_sum_over_everybody(toy, chunk):
    t = toy(chunk=chunk)
    for round in range(2):
        t.simulation.run(t.server, round)
        release = t.server.releases[-1]
        assert release.sums["v"].tolist() == [100 * sum(range(45)) + 45 * round] * 3
        assert release.sums["t"].equal(expected_table(range(45)))
        assert release.denominator == 45
        assert release.mean("v").tolist() == pytest.approx([2200 + round] * 3)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_an_individual_release_holds_every_upload_under_its_pseudonym(toy, chunk):
    t = toy("none:sampling.kind=fixed,sampling.size=20", individual=True, chunk=chunk)
    for round in range(2):
        t.simulation.run(t.server, round)
        release, members = t.server.releases[-1], t.simulation.members(round)
        assert release.pseudonyms.equal(members)
        for place, user in enumerate(members.tolist()):
            assert release.uploads["v"][place].tolist() == [100 * user + round] * 3
            assert release.uploads["t"][place].equal(expected_table([user]))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_clients_are_called_once_each_in_chunks_with_their_own_message(toy, chunk):
    t = toy(chunk=chunk)
    t.simulation.run(t.server, 0)
    called = torch.cat([call.clients for call in t.clients.calls])
    assert called.tolist() == list(range(45))
    assert all(len(call.clients) <= (chunk or 128) for call in t.clients.calls)
    for call in t.clients.calls:
        assert (call.round, call.cohort_id, call.step, call.query_id) == (0, 0, "train", 0)
        assert call.schema is t.schema


def test_state_is_committed_once_per_release_and_counts_queries(toy):
    t = toy(queries=3, chunk=16)
    for round in range(2):
        t.simulation.run(t.server, round)
    assert t.clients.state()["steps"].tolist() == [6] * 45
    assert [call.query_id for call in t.clients.calls if call.clients[0] == 0] == [0, 1, 2, 0, 1, 2]
    assert [(e.cohort_id, e.round, e.index) for e in t.ledger.entries] == [
        (0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 1, 0), (1, 1, 1), (1, 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("individual", [False, True])
@pytest.mark.parametrize("fail_at", [0, 20, 44])
def test_a_step_that_raises_leaves_private_state_as_it_was(toy, individual, fail_at):
    t = toy(individual=individual, chunk=16)
    t.simulation.run(t.server, 0)
    t.clients.fail_at = fail_at
    with pytest.raises(RuntimeError, match="battery"):
        t.simulation.run(t.server, 1)
    assert t.clients.state()["steps"].tolist() == [1] * 45
    t.clients.fail_at = None
    t.simulation.run(t.server, 2)
    assert t.clients.state()["steps"].tolist() == [2] * 45
    assert t.server.releases[-1].__class__ is t.server.releases[0].__class__
    assert len(t.server.releases) == 2


def test_what_an_aborted_round_staged_is_not_committed_by_the_next(toy):
    """Round 1 loses clients that round 2 does not ask: their staged state must not slip in with it."""
    t = toy("none:sampling.kind=epoch,sampling.size=15", chunk=5)
    members = [t.simulation.members(round).tolist() for round in range(3)]
    t.clients.fail_at = members[1][-1]
    for round in range(3):
        if round == 1:
            with pytest.raises(RuntimeError, match="battery"):
                t.simulation.run(t.server, round)
        else:
            t.simulation.run(t.server, round)
    steps = t.clients.state()["steps"]
    assert steps[members[0]].tolist() == steps[members[2]].tolist() == [1] * 15
    assert steps[members[1]].tolist() == [0] * 15


def test_an_observer_that_raises_leaves_private_state_as_it_was(toy):
    t = toy()

    def observer(*_):
        raise KeyboardInterrupt

    t.simulation.observers.append(observer)
    with pytest.raises(KeyboardInterrupt):
        t.simulation.run(t.server, 0)
    assert t.clients.state()["steps"].tolist() == [0] * 45


def test_an_aborted_round_stays_recorded(toy):
    """The charge is written before anything is computed: a failure may have shown something."""
    t = toy()
    t.clients.fail_at = 3
    with pytest.raises(RuntimeError):
        t.simulation.run(t.server, 0)
    assert len(t.ledger.entries) == 1


def test_the_ledger_is_recorded_before_any_client_is_queried(toy):
    t = toy()
    charged = []
    train = t.clients.train
    t.clients.train = lambda call, message: (charged.append(len(t.ledger.entries)), train(call, message))[1]
    t.simulation.run(t.server, 0)
    assert charged == [1]


def test_one_cohort_per_round(toy):
    t = toy()
    t.simulation.sample_cohort(0)
    with pytest.raises(FederationError, match="round 0 has sampled its cohort already; sample one per round"):
        t.simulation.sample_cohort(0)
    t.simulation.sample_cohort(1)


def test_going_back_to_an_earlier_round_is_refused_before_anything_is_released(toy):
    t = toy()
    t.simulation.run(t.server, 0)
    t.simulation.run(t.server, 1)
    with pytest.raises((FederationError, LedgerError), match=r"one cohort per round|sampled"):
        t.simulation.run(t.server, 0)
    assert len(t.server.releases) == 2


@pytest.mark.parametrize("query", ["aggregate", "collect"])
def test_only_the_rounds_own_cohort_may_be_queried(toy, query):
    t = toy()
    old = t.simulation.sample_cohort(0)
    current = t.simulation.sample_cohort(1)
    forged = Cohort(current.round, current.id, current.rule, current.expected)
    for cohort in (old, forged, Cohort(1, 7, "all", 45.0)):
        with pytest.raises(FederationError, match="cohort of another round"):
            getattr(t.simulation, query)("train", cohort, Message({}), t.schema)
    assert t.clients.calls == []
    assert len(t.ledger.entries) == 0


def test_an_unknown_step_is_refused(toy):
    t = toy()
    with pytest.raises(FederationError, match="'guess'"):
        t.simulation.aggregate("guess", t.simulation.sample_cohort(0), Message({}), t.schema)


def test_a_plan_that_shows_only_the_sum_refuses_individual_uploads(toy):
    """The guarantee would say that only the sum is seen."""
    t = toy("none:release=total", individual=True)
    with pytest.raises((FederationError, ValueError), match="sees only their sum"):
        t.simulation.run(t.server, 0)
    assert t.server.releases == []


DENOMINATORS = {
    "none": 45,
    "none:sampling.kind=fixed,sampling.size=20": 20,
    "none:sampling.kind=poisson,sampling.rate=0.4": 18,
    "clip:clip_norm=1": 45,
    "local-laplace:epsilon0=1,clip_norm=1": 45,
    "local-laplace:epsilon0=1,clip_norm=1,sampling.kind=poisson,sampling.rate=0.4": 18,
    "published-noise:sampling.kind=epoch,sampling.size=15": 15,
    "none:sampling.kind=epoch,sampling.size=20": None,
}


@pytest.mark.parametrize("plan", DENOMINATORS)
def test_means_divide_by_the_expected_cohort_where_its_size_must_not_show(toy, plan):
    t = toy(plan)
    for round in range(3):
        t.simulation.run(t.server, round)
        release, members = t.server.releases[-1], t.simulation.members(round)
        assert isinstance(release, Total)
        assert release.denominator == (DENOMINATORS[plan] or len(members))


def test_nobody_came(toy):
    for individual in (False, True):
        t = toy("none:sampling.kind=poisson,sampling.rate=0.0000001", individual=individual)
        t.simulation.run(t.server, 0)
        assert t.clients.calls == []
        assert len(t.ledger.entries) == 1
        if individual:
            assert t.server.releases[0].uploads["t"].shape == (0, 50, 2)
        else:
            assert t.server.releases[0].mean("v").tolist() == [0, 0, 0]


def test_an_individual_release_beyond_the_memory_limit_is_refused_with_what_to_do(toy):
    needed = 45 * upload_bytes(toy().schema)
    t = toy(individual=True, memory_limit=needed)
    t.simulation.run(t.server, 0)
    t = toy(individual=True, memory_limit=needed - 1)
    with pytest.raises(MemoryLimitError, match=r"45 uploads needs .* GiB.*raise the limit, sample fewer") as caught:
        t.simulation.run(t.server, 0)
    assert "\n" not in str(caught.value)
    assert t.clients.calls == []


def test_uploads_that_no_memory_holds_are_refused_with_what_to_do():
    with pytest.raises(MemoryLimitError, match=r"no memory for an individual release of 45 uploads.*: sample fewer"):
        ReleaseBuffer(None).uploads({"v": Block((2**45,))}, 45)


@pytest.mark.parametrize("limit", [1, 10_000, 30_000, 100_000, 10**9])
def test_chunks_from_a_memory_limit_are_whole_tiles(toy, limit):
    t = toy(memory_limit=limit, population=200)
    chunk, unbounded = t.simulation.chunk_size(t.schema), toy().simulation.chunk_size(t.schema)
    assert chunk % 16 == 0
    assert 16 <= chunk <= unbounded
    assert chunk == 16 or 2 * chunk * upload_bytes(t.schema) <= limit
    t.simulation.run(t.server, 0)
    assert max(len(call.clients) for call in t.clients.calls) == chunk
    assert toy(memory_limit=10**12).simulation.chunk_size({"v": Block((1,))}) == unbounded


def test_costs_count_bytes_and_client_rounds(toy):
    t = toy(queries=2)
    t.simulation.run(t.server, 0)
    costs = t.simulation.costs
    assert costs.client_rounds == 45, "both asks of a round are one round of a client"
    assert costs.down_bytes == 90 * 4 * 4
    assert costs.up_bytes == 90 * (3 * 4 + 2 * 4 + 4)  # a vector, one row and its id
    assert all(seconds >= 0 for seconds in costs.seconds.values())
    noisy = toy("local-laplace:epsilon0=1,clip_norm=1")
    noisy.simulation.run(noisy.server, 0)
    assert noisy.simulation.costs.up_bytes == 45 * upload_bytes(noisy.schema)
    touched = toy("published-noise:coordinates=touched")
    touched.simulation.run(touched.server, 0)
    assert touched.simulation.costs.up_bytes == 45 * (3 * 4 + 2 * 4 + 4)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_clients_hear_once_that_a_query_begins_and_before_they_are_called(toy, chunk, monkeypatch):
    t = toy(queries=2, chunk=chunk)
    heard = []
    monkeypatch.setattr(t.clients, "receive", lambda step, message: heard.append((step, len(t.clients.calls))))
    t.simulation.run(t.server, 0)
    chunks = len(t.clients.calls) // 2
    assert heard == [("train", 0), ("train", chunks)]
    assert all(call.query_id == (number >= chunks) for number, call in enumerate(t.clients.calls))


@pytest.mark.parametrize("step", ["commit", "state", "load", "private"])
def test_a_step_that_is_not_declared_is_refused_though_clients_have_it(toy, step):
    t = toy()
    with pytest.raises(FederationError, match=f"'{step}', which ToyClients lacks; it answers train"):
        t.simulation.aggregate(step, t.simulation.sample_cohort(0), Message({}), t.schema)
    assert t.clients.calls == []
