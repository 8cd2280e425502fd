"""What methods that learn on a popular head promise alike: one budget over all asks, plans, the head and the tail."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from privfed.contracts import NoisySums
from privfed.data import SplitSpec, SyntheticSpec, generate, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Streams
from privfed.guards import ClientGuard
from privfed.methods import PublicInfo, method
from privfed.methods.shared.popular_head import PopularHead, on_head, over_catalogue, side_of
from privfed.methods.shared.vae_clients import UserRows
from privfed.privacy import PlanError, PrivacyPlan, forecast, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates

HEAD, DIM, ASKS = 30, 4, 3
SETTINGS = {
    "dpals": {"passes": ASKS, "dim": DIM},
    "private-autoencoder": {"steps": ASKS, "dim": DIM},
}
STEP = {"dpals": "statistics", "private-autoencoder": "train"}
VARIANTS = [("dpals", {}), ("dpals", {"item_gram_share": 0.3}), ("private-autoencoder", {})]
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=2,delta=0.001"
LITTLE = CENTRAL.replace("noise_multiplier=2", "noise_multiplier=0.1")
SHARES = "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=40,delta=0.001"


def experiment(parts, name, plan="none:release=total", fidelity="analytic", seed=4, rounds=1, **settings):
    method = {"name": name, **({"head": HEAD, **SETTINGS[name]} if name in SETTINGS else {}), **settings}
    config = ExperimentConfig(
        data="synthetic-tests", method=method,
        privacy=PrivacyPlan.parse(plan), protocol=Protocol(k=(5,), state="received"), rounds=rounds, seed=seed,
        taps=TapConfig(places=("sum",)), fidelity=fidelity, checkpoint_every=1, evaluate_every=1,
    )  # fmt: skip
    return Experiment(config, parts)


def ran(parts, name, plan="none:release=total", **options):
    e = experiment(parts, name, plan, **options)
    return SimpleNamespace(e=e, server=e.server, clients=e.clients, result=e.run())


def updates(e, step, users, schema):
    call = Call(0, 0, step, 1, users, Streams.from_seed(0), schema)
    return getattr(e.clients, step)(call, e.server.public())


def with_head_items(train, head):
    """Which users have an item on the head."""
    return np.array([bool(set(train.items_of(user).tolist()) & set(head.tolist())) for user in range(train.n_users)])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("plan", [CENTRAL, SHARES, "none:release=total", "secure-sum:clip_norm=3"])
def test_shares_of_all_queries_add_up_to_one_and_the_program_names_every_query(small_split, name, plan):
    run = ran(small_split, name, plan)
    program = run.e.registered.training.program(run.server)
    assert len(program) == 1 + ASKS
    assert math.fsum(b.share for ask in program for b in ask.schema.values()) == pytest.approx(1, abs=1e-12)
    assert len(run.result.transcript.joined("sum")) == 1 + ASKS
    assert all(ask.down_bytes > 0 for ask in program[1:])


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
@pytest.mark.parametrize("plan", [LITTLE, LITTLE.replace("clip_norm=1", "clip_norm=0.01")])
def test_a_user_moves_all_sums_together_by_the_clip_norm(small_split, name, settings, plan):
    """Uploads have exactly their share, so no clip touches them; asks are adaptive, so messages are what they were."""
    run = ran(small_split, name, plan, **settings)
    e, clip = run.e, float(run.e.config.privacy.to_dict()["mechanism"]["clip_norm"])
    guard, everybody = ClientGuard(e.config.privacy, Streams.from_seed(0)), torch.arange(e.n_users)
    moved = torch.zeros(e.n_users, dtype=torch.float64)
    for schema, step in zip(e.server.schemas, ["popularity", *[STEP[name]] * ASKS], strict=True):
        sent = updates(e, step, everybody, schema)
        assert guard.clip_(ClientUpdates(sent.clients, schema, sent.parts)) == len(everybody)
        dense = sent.materialise(everybody)
        for block, values in dense.items():
            moved += (schema[block].weight * values.double()).flatten(1).square().sum(1)
    assert moved.sqrt().max() <= clip * (1 + 1e-6)
    known = torch.from_numpy(with_head_items(small_split.train, e.server.state()["head"]))
    assert moved.sqrt()[known].min() == pytest.approx(clip, rel=1e-6)


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_a_device_with_nothing_on_the_head_sends_zeros(small_split, name, settings):
    e = ran(small_split, name, CENTRAL, **settings).e
    own = set(small_split.train.items_of(3).tolist())
    elsewhere = torch.tensor([item for item in range(70) if item not in own][:HEAD])
    message = replace(e.server.public(), shared={**e.server.public().shared, "head": elsewhere})
    call = Call(0, 0, STEP[name], 1, torch.tensor([3]), Streams.from_seed(0), e.server.schema)
    sent = getattr(e.clients, STEP[name])(call, message)
    assert float(sent.norms(2)) == 0
    assert not any(values.any() for values in sent.materialise(torch.arange(1)).values())
    scores = e.clients.score(torch.tensor([3]), message, None, None)[0]
    assert scores.equal(message.shared["order"])


@pytest.mark.parametrize("name", SETTINGS)
def test_the_whole_run_costs_one_gaussian_of_the_plan_as_forecast(small_split, name):
    delta = 45**-1.1
    start = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=delta)
    sized = plan_for_target(start, 4.0, 1, 45).mechanism.noise_multiplier
    run = ran(small_split, name, f"central-gaussian:clip_norm=1,noise_multiplier={sized!r},delta={delta!r}")
    guarantee = run.result.guarantee
    assert guarantee.epsilon == pytest.approx(4.0, rel=1e-3)
    assert (guarantee.neighbours, guarantee.trust, guarantee.unit) == ("add_or_remove_one", "central", "user")
    program = [ask.schema for ask in run.e.registered.training.program(run.server)]
    foreseen = forecast(run.e.config.privacy, rounds=1, population=45, up=program, down=0.0)
    assert foreseen.guarantee.epsilon == pytest.approx(guarantee.epsilon, rel=1e-9)
    assert foreseen.uploads_bound == 1 + ASKS


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ledger_records_every_query_of_one_cohort_by_its_share(small_split, tmp_path, name):
    experiment(small_split, name, CENTRAL).run(tmp_path)
    _, *entries = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [(entry["cohort_id"], entry["step"]) for entry in entries] == [(0, "popularity"), *[(0, STEP[name])] * ASKS]
    assert [entry["share"] for entry in entries] == pytest.approx([0.1, *[0.9 / ASKS] * ASKS])
    assert sum(entry["event"]["noise_multiplier"] ** -2 for entry in entries) == pytest.approx(2.0**-2)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("plan", ["none:release=total", "none", "secure-sum:clip_norm=1", "clip:clip_norm=1,order=2"])
def test_plans_that_bound_nothing_say_so(small_split, name, plan):
    guarantee = ran(small_split, name, plan).result.guarantee
    assert guarantee.epsilon == math.inf
    assert guarantee.reason_if_inf


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "plan",
    [
        "local-gaussian:clip_norm=1,noise_multiplier=8,delta=0.001",
        SHARES,
        CENTRAL + ",sampling.kind=poisson,sampling.rate=0.5",
    ],
)
def test_plans_with_noise_are_accounted_as_forecast(small_split, name, plan):
    run = ran(small_split, name, plan, head=12)
    program = [ask.schema for ask in run.e.registered.training.program(run.server)]
    foreseen = forecast(run.e.config.privacy, rounds=1, population=45, up=program, down=0.0)
    assert 0 < run.result.guarantee.epsilon == pytest.approx(foreseen.guarantee.epsilon, rel=1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_interaction_noise_is_refused(small_split, name):
    with pytest.raises(PlanError, match=f"{name} cannot run behind the plan"):
        experiment(small_split, name, "interaction-dpsgd:clip_norm=1,noise_multiplier=1")


@pytest.mark.parametrize(
    ("name", "settings", "fidelity"),
    [*[(name, settings, "exact") for name, settings in VARIANTS], ("dpals", {"item_gram_share": 0.3}, "protocol")],
)
def test_the_ring_path_is_the_float_path_up_to_quantisation(small_split, name, settings, fidelity):
    found = ran(small_split, name, "secure-sum:clip_norm=1", fidelity=fidelity, head=12, **settings).server
    wanted = ran(small_split, name, head=12, **settings).server
    for key, value in wanted.state().items():
        torch.testing.assert_close(found.state()[key], value, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_the_noise_of_every_block_is_what_the_server_reckons_with(small_split, name, settings):
    """One pass, so that there is one sum of it; its exact sum is formed from what devices were sent then."""
    found = {}
    once = {"passes": 1} if name == "dpals" else {"steps": 1}
    for seed in range(6):
        e = experiment(small_split, name, CENTRAL, seed=seed, **once, **settings)
        sent = {}

        def told(call, message, e=e, sent=sent):
            sent.update(message.shared)
            return getattr(type(e.clients), STEP[name])(e.clients, call, message)

        setattr(e.clients, STEP[name], told)
        result = e.run()
        sums = {key: v for o in result.transcript.joined("sum") for key, v in o.tensors.items() if key[0] != "@"}
        message = replace(e.server.public(), shared=sent)
        call = Call(0, 0, STEP[name], 1, torch.arange(45), Streams.from_seed(0), e.server.schema)
        exact = {k: torch.zeros(b.shape, dtype=torch.float64) for k, b in e.server.schema.items()}
        getattr(type(e.clients), STEP[name])(e.clients, call, message).add_to(exact)
        for key, value in exact.items():
            found.setdefault(key, []).append((sums[key].double() - value).flatten())
    assert found.keys() == e.server.schema.keys()
    for key, values in found.items():
        noise, wanted = torch.cat(values), e.server.sums.deviation / e.server.schema[key].weight
        assert float(noise.std()) == pytest.approx(wanted, rel=4.5 / math.sqrt(2 * len(noise)))


@pytest.mark.parametrize("name", SETTINGS)
def test_head_scores_stand_above_the_rest_which_follows_by_popularity(small_split, name):
    run = ran(small_split, name, LITTLE)
    state, users = run.server.state(), torch.arange(45)
    scores = run.clients.score(users, run.server.public(), None, None)
    head = state["head"]
    rest = torch.tensor([item for item in range(70) if item not in set(head.tolist())])
    some = torch.from_numpy(with_head_items(small_split.train, head))
    assert (scores[some][:, rest].amax(1) < scores[some][:, head].amin(1)).all()
    wanted = state["order"][rest].argsort(descending=True)
    assert all(row.argsort(descending=True).equal(wanted) for row in scores[:, rest])
    candidates = torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])
    some = run.clients.score(torch.tensor([2, 3, 11]), run.server.public(), None, candidates)
    torch.testing.assert_close(some, scores[[2, 3, 11]].gather(1, candidates), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def crowd():
    """300 users of 90 items with tastes of 3 dimensions."""
    spec = SyntheticSpec(name="synthetic-crowd", n_users=300, n_items=90, mean_per_user=18, min_per_user=6, rank=3)
    return split(generate(spec), SplitSpec())


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dpals", {"passes": 3}), ("dpals", {"item_gram_share": 0.3}), ("private-autoencoder", {"steps": 40})],
)
def test_it_learns_more_than_popularity(crowd, name, settings):
    found = ran(crowd, name, "none:release=total", head=85, dim=8, **settings).result.test.metric("recall", 5).value
    assert found > 1.1 * ran(crowd, "popularity").result.test.metric("recall", 5).value


@pytest.mark.parametrize("name", SETTINGS)
def test_later_rounds_ask_for_nothing(small_split, name):
    result = ran(small_split, name, CENTRAL, rounds=3).result
    assert len(result.transcript.joined("sum")) == 1 + ASKS
    assert result.guarantee.rounds_counted == 1


class KilledError(Exception):
    """Stands for the process being gone."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_killed_between_two_queries_resumes_to_the_same_bits(small_split, tmp_path, name):
    def start():
        return experiment(small_split, name, CENTRAL, rounds=2)

    for folder in ("unbroken", "broken"):
        (tmp_path / folder).mkdir()
    wanted = start().run(tmp_path / "unbroken")
    broken, asked = start(), []
    step = getattr(broken.clients, STEP[name])

    def dying(call, message):
        asked.append(call.query_id)
        if call.query_id == 2:
            raise KilledError
        return step(call, message)

    setattr(broken.clients, STEP[name], dying)
    with pytest.raises(KilledError):
        broken.run(tmp_path / "broken")
    assert asked[-1] == 2
    found = start().run(tmp_path / "broken", resume=True)
    for key, value in wanted.server.state().items():
        assert found.server.state()[key].equal(value), key
    assert found.guarantee == wanted.guarantee
    assert (tmp_path / "broken" / "ledger.jsonl").read_text() == (tmp_path / "unbroken" / "ledger.jsonl").read_text()


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("chunk", [1, 7])
def test_chunks_change_rounding_and_nothing_else(small_split, name, chunk):
    e = ran(small_split, name, CENTRAL).e
    everybody, schema = torch.arange(45), e.server.schema
    whole = updates(e, STEP[name], everybody, schema).materialise(everybody)
    for users in torch.split(everybody, chunk):
        some = updates(e, STEP[name], users, schema).materialise(torch.arange(len(users)))
        for key, value in some.items():
            torch.testing.assert_close(value, whole[key][users], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_head_by_rule_grows_with_users_and_shrinks_with_noise(name):
    def side(users, deviation):
        public_info = PublicInfo(users, 3706, sums=NoisySums(users, 1.0, deviation))
        return method(name).training.server(method(name).config(), public_info, Streams.from_seed(0)).constants.head

    assert side(6040, 3.28) < side(6040, 0.55) < side(60400, 0.55)
    assert side(6040, 0.0) == 2048
    assert side(40, 100.0) == 50


def test_the_rule_is_a_factor_of_the_root_of_users_over_noise():
    assert side_of(NoisySums(6040, 1.0, 0.55), 3706, 6.0, 2048) == round(6 * math.sqrt(6040 / 0.55))
    assert side_of(NoisySums(6040, 0.1, 0.055), 3706, 6.0, 2048) == round(6 * math.sqrt(6040 / 0.55))
    assert side_of(NoisySums(6040, 1.0, 0.55), 200, 6.0, 2048) == 199


def test_a_head_is_the_most_popular_items_with_a_floor_under_their_popularity():
    found = PopularHead.from_popularity(torch.tensor([0.2, 5.0, -3.0, 9.0]), deviation=4.0, side=3)
    assert found.items.tolist() == [3, 1, 0]
    assert found.popularity.tolist() == [9, 5, 2]
    assert found.order.tolist() == [0.5, 0.75, 0.25, 1.0]


def test_own_items_on_the_head_are_named_by_their_places(small_split):
    head = torch.tensor([40, 3, 17, 8, 60, 22])
    users = torch.tensor([4, 0, 31])
    mine = on_head(UserRows(small_split.train).select(users), head)
    for j, user in enumerate(users.tolist()):
        own = set(small_split.train.items_of(user).tolist())
        assert mine.items[mine.owner == j].tolist() == [k for k, item in enumerate(head.tolist()) if item in own]
        assert int(mine.counts[j]) == sum(item in own for item in head.tolist())
    assert mine.n_items == 6


def test_scores_over_the_catalogue_put_the_tail_below_the_head():
    order = torch.tensor([0.25, 1.0, 0.5, 0.75])
    found = over_catalogue(torch.tensor([[-5.0, 7.0], [0.0, 0.0]]), torch.tensor([2, 0]), torch.tensor([3, 0]), order)
    assert found[0].tolist() == [7, -6, -6.5, -5]
    assert found[1].equal(order)
