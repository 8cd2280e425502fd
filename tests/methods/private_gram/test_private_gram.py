"""`private-gram`: what leaves a device has norm 1, what comes back is one release, and scores are what the sums say."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from privfed.contracts import NoisySums
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Message, Streams
from privfed.guards import ClientGuard
from privfed.methods import PublicInfo, method
from privfed.methods.private_gram import HeadShown, NoFeaturesError, PrivateGramConfig, PrivateGramConstants
from privfed.methods.private_gram.model.content import Content
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.private_gram.queries import centred
from privfed.methods.shared.popular_head import HEAD as HEAD_ITEMS
from privfed.methods.shared.popular_head import SCALE, SHARES, PopularHead
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.privacy import PlanError, PrivacyPlan, forecast, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates, packed_size, unpacked

HEAD = 40
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=2,delta=0.001"
VARIANTS = {"long": True, "short": False}
PLAIN = {"head": HEAD, "head_share": 0, "histories": "long", "min_items": 0, "select": False}
"""A head that small populations would not get, and nothing decided by what was released."""


@pytest.fixture(scope="module")
def described(small_split):
    """The small split with genres and years for its 70 items."""
    rng = np.random.default_rng(5)
    genres = ["|".join(np.array(["Drama", "Comedy", "War"])[rng.random(3) < 0.5]) for _ in range(70)]
    titles = [f"Item {i} ({1960 + rng.integers(0, 40)})" for i in range(70)]
    return replace(small_split, item_info=pd.DataFrame({"title": titles, "genres": genres}))


def experiment(split, plan="none:release=total", fidelity="exact", seed=4, rounds=1, chunk=None, **settings):
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "private-gram", **PLAIN, **settings},
        privacy=PrivacyPlan.parse(plan), protocol=Protocol(k=(5,), state="received"), rounds=rounds, seed=seed,
        taps=TapConfig(places=("sum",)), fidelity=fidelity, chunk=chunk, checkpoint_every=1, evaluate_every=1,
    )  # fmt: skip
    # One noise for all settings, so that what they make of it can be compared.
    return Experiment(config, split, Streams.from_seed(seed))


def ran(split, plan="none:release=total", **options):
    e = experiment(split, plan, **options)
    result = e.run()
    sums = {name: value for o in result.transcript.joined("sum") for name, value in o.tensors.items()}
    return SimpleNamespace(e=e, server=e.server, clients=e.clients, result=result, sums=sums)


def updates(e, step="gram", users=None, message=None):
    """What clients upload in a step, before any guard."""
    users = torch.arange(e.n_users) if users is None else users
    schema = e.server.schemas[step == "gram"]
    call = Call(0, 0, step, int(step == "gram"), users, Streams.from_seed(0), schema)
    return getattr(e.clients, step)(call, message or e.server.public())


def exact(e, step="gram"):
    sent = updates(e, step)
    sums = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in sent.schema.items()}
    sent.add_to(sums)
    return sums[step]


def naive_centred(train, server):
    """y of every user, by the definition, in float64."""
    head, shares, scale = (server.state()[name].double().numpy() for name in ("head", "shares", "scale"))
    rows = []
    for user in range(train.n_users):
        own = set(train.items_of(user).tolist())
        on_head = sum(int(item) in own for item in head)
        rows.append(
            [
                w * ((int(item) in own) - min(1.0, on_head * share))
                for item, share, w in zip(head, shares, scale, strict=True)
            ]
        )
    return np.array(rows)


def naive_gram(train, server, diagonal):
    total = np.zeros((HEAD, HEAD))
    for y in naive_centred(train, server):
        length = math.sqrt(sum(v * v for v in y))
        if length == 0:
            continue
        outer = np.outer(y, y)
        if diagonal:
            total += outer / length**2
        else:
            np.fill_diagonal(outer, 0)
            total += outer * min(1 / np.linalg.norm(outer), 1.5 / length**2)
    return total


# ---- what leaves a device


@pytest.mark.parametrize("histories", VARIANTS)
def test_every_packed_upload_has_the_norm_of_its_unit_vector_squared(described, histories):
    e = ran(described, CENTRAL, histories=histories).e
    block = e.server.schema["gram"]
    for step, share in (("popularity", e.server.constants.share), ("gram", 1 - e.server.constants.share)):
        norms = updates(e, step).norms(2) / math.sqrt(share)
        assert norms.max() <= 1
        assert norms.max() == pytest.approx(1, abs=1e-6)
        assert step == "gram" or norms.min() == pytest.approx(1, abs=1e-6)
    dense = updates(e).materialise(torch.arange(e.n_users))["gram"].double()
    assert block.weight == math.sqrt(1 - e.server.constants.share)
    torch.testing.assert_close(dense.norm(dim=1) * block.weight, updates(e).norms(2), rtol=1e-6, atol=0)
    if histories == "long":
        units = [y / np.linalg.norm(y) for y in naive_centred(described.train, e.server)]
        assert dense.norm(dim=1).tolist() == pytest.approx([float(u @ u) for u in units], rel=1e-6)


@pytest.mark.parametrize("plan", ["none:release=total", CENTRAL.replace("clip_norm=1", "clip_norm=0.01")])
@pytest.mark.parametrize("histories", VARIANTS)
def test_adding_or_removing_a_user_moves_both_sums_together_by_at_most_the_clip_norm(described, plan, histories):
    """Also for a user of every item, of one item, and of none on the head: their uploads are no longer."""
    e = ran(described, plan, histories=histories).e
    guard = ClientGuard(PrivacyPlan.parse(CENTRAL), Streams.from_seed(0))
    everybody, moved = torch.arange(e.n_users), torch.zeros(e.n_users, dtype=torch.float64)
    for step in ("popularity", "gram"):
        sent = updates(e, step)
        schema = experiment(described, CENTRAL, histories=histories).server.schemas[step == "gram"]
        scaled = ClientUpdates(sent.clients, schema, sent.parts)
        assert guard.clip_(scaled) == len(everybody)
        (block,) = scaled.schema.values()
        total = torch.zeros(block.shape, dtype=torch.float64)
        scaled.add_to({step: total})
        for user in everybody.tolist():
            rest = updates(e, step, torch.cat([everybody[:user], everybody[user + 1 :]]))
            without = torch.zeros(block.shape, dtype=torch.float64)
            rest.add_to({step: without})
            moved[user] += (block.weight * (total - without)).square().sum()
    assert moved.sqrt().max() <= 1 + 1e-5
    assert moved.sqrt().max() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("histories", VARIANTS)
def test_the_head_is_asked_for_its_popularity_again_within_the_same_norm(described, histories):
    e = ran(described, CENTRAL, histories=histories, head_share=0.3).e
    rest = 1 - e.server.constants.share
    assert {name: block.share for name, block in e.server.schema.items()} == pytest.approx(
        {"gram": 0.7 * rest, "head_popularity": 0.3 * rest}
    )
    sent = updates(e)
    assert sent.norms(2).max() <= math.sqrt(rest)
    assert sent.norms(2).max() == pytest.approx(math.sqrt(rest), abs=1e-6)
    dense = sent.materialise(torch.arange(e.n_users))["head_popularity"][:, :, 0].double()
    head = e.server.state()["head"].numpy()
    for user in range(e.n_users):
        own = np.isin(head, described.train.items_of(user))
        np.testing.assert_allclose(dense[user], own / math.sqrt(max(own.sum(), 1)), atol=1e-6)


def test_two_sums_of_popularity_are_pooled_by_their_noise():
    rng = np.random.default_rng(1)
    wanted = np.sort(rng.gamma(2.0, 100.0, 300))[::-1].copy()
    longer, deviations = 3.0, (60.0, 20.0)
    errors = []
    for _ in range(20):
        first = torch.from_numpy(np.concatenate([wanted, np.zeros(50)]) + deviations[0] * rng.normal(size=350))
        head = PopularHead.from_popularity(first, deviations[0], 300)
        again = torch.from_numpy(
            longer * np.append(wanted, np.zeros(50))[head.items] + deviations[1] * rng.normal(size=300)
        )
        pooled = head.pooled(first, deviations[0], again, deviations[1])
        assert pooled.items.equal(head.items)
        assert sorted(pooled.order.tolist()) == sorted(head.order.tolist())
        outside = np.setdiff1d(np.arange(350), head.items)
        assert pooled.order[outside].equal(head.order[outside])
        ranked = pooled.popularity[pooled.order[pooled.items].argsort(descending=True)]
        assert (ranked.diff() <= 0).all()
        truth = np.append(wanted, np.zeros(50))[head.items]
        errors.append([np.square(one.popularity.numpy() - truth).mean() for one in (head, pooled)])
    before, after = np.sqrt(np.mean(errors, 0))
    # By inverse variance: sqrt(1 / (1 / 60^2 + 3^2 / 20^2)) is 6.6.
    assert before > 50
    assert after < 15


def test_exact_popularity_is_left_as_it_is():
    exact = torch.arange(5.0, dtype=torch.float64)
    head = PopularHead.from_popularity(exact, 0.0, 3)
    assert head.pooled(exact, 0.0, exact[:3], 0.0) is head


def test_the_head_is_asked_again_where_noise_drowns_it():
    def again(clients, items, mu):
        return PrivateGramConstants.from_config(
            PrivateGramConfig(), NoisySums(clients, 1.0, 1 / mu), items, content=False
        ).again

    assert again(1000, 5000, 0.3) == 0.15
    assert 0 < again(1000, 2000, 1.0) < 0.15
    assert again(10_000, 2000, 1.0) == 0
    assert PrivateGramConstants.from_config(PrivateGramConfig(), NoisySums(50), 500, content=False).again == 0


@pytest.mark.parametrize("histories", VARIANTS)
def test_the_summed_gram_is_the_naive_loop(described, histories):
    run = ran(described, histories=histories)
    diagonal = VARIANTS[histories]
    found = unpacked(exact(run.e), HEAD, diagonal=diagonal).numpy()
    np.testing.assert_allclose(found, naive_gram(described.train, run.server, diagonal), rtol=0, atol=2e-5)
    np.testing.assert_allclose(unpacked(run.sums["gram"], HEAD, diagonal=diagonal).numpy(), found, rtol=0, atol=1e-5)


def test_popularity_is_the_sum_of_unit_histories(described):
    run = ran(described)
    wanted = np.zeros(70)
    for user in range(45):
        own = described.train.items_of(user)
        wanted[own] += 1 / math.sqrt(len(own))
    np.testing.assert_allclose(run.sums["popularity"][:, 0].numpy(), wanted, rtol=1e-5)
    assert run.server.state()["head"].tolist() == np.argsort(-wanted, kind="stable")[:HEAD].tolist()


@pytest.mark.parametrize("histories", VARIANTS)
def test_a_history_that_says_nothing_sends_zeros(described, histories):
    e = ran(described, histories=histories).e
    message = e.server.public()
    nobody = torch.tensor([k for k in range(70) if k not in set(described.train.items_of(3).tolist())][:HEAD])
    elsewhere = replace_shared(message, head=nobody)
    sent = updates(e, users=torch.tensor([3]), message=elsewhere)
    assert float(sent.norms(2)) == 0
    assert not sent.materialise(torch.arange(1))["gram"].any()


def replace_shared(message, **tensors):
    return replace(message, shared={**message.shared, **tensors})


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_uploads_are_bit_equal_for_every_chunk_size(described, chunk):
    e = ran(described).e
    whole = updates(e)
    for users in torch.split(torch.arange(45), chunk):
        some = updates(e, users=users)
        assert some.parts[0].vectors.equal(whole.parts[0].vectors[users])
        assert some.materialise(torch.arange(len(users)))["gram"].equal(whole.materialise(users)["gram"])


# ---- noise and accounting


@pytest.mark.parametrize("plan", [CENTRAL, CENTRAL.replace("clip_norm=1", "clip_norm=0.01")])
def test_noise_is_sigma_g_on_the_diagonal_and_sigma_g_over_root_two_off_it(small_split, plan):
    """mu = 1/2, split by the shares of the two queries, whatever the clip norm is."""
    ends, others, popularity = [], [], []
    for seed in range(8):
        run = ran(small_split, plan, seed=seed, fidelity="analytic")
        noise = unpacked(run.sums["gram"].double() - exact(run.e), HEAD).numpy()
        ends.append(noise.diagonal())
        others.append(noise[np.triu_indices(HEAD, 1)])
        popularity.append((run.sums["popularity"].double() - exact(run.e, "popularity")).numpy().ravel())
    share = run.server.constants.share
    sigma_g, sigma_p = 2 / math.sqrt(1 - share), 2 / math.sqrt(share)
    for values, wanted in ((ends, sigma_g), (others, sigma_g / math.sqrt(2)), (popularity, sigma_p)):
        found = np.concatenate(values)
        assert found.std() == pytest.approx(wanted, rel=4 / math.sqrt(2 * len(found)))
        assert abs(found.mean()) < 4 * wanted / math.sqrt(len(found))


def mu_of(epsilon, delta):
    def excess(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 1e-3, 50)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("share", [None, 0.37])
def test_both_releases_together_cost_what_one_gaussian_of_the_plan_costs(small_split, epsilon, share):
    delta = 45**-1.1
    plan = f"central-gaussian:clip_norm=1,noise_multiplier={1 / mu_of(epsilon, delta)!r},delta={delta!r}"
    run = ran(small_split, plan, fidelity="analytic", popularity_share=share)
    guarantee = run.result.guarantee
    assert guarantee.epsilon == pytest.approx(epsilon, rel=5e-4)
    assert (guarantee.neighbours, guarantee.trust, guarantee.unit) == ("add_or_remove_one", "central", "user")
    program = run.e.registered.training.program(run.server)
    foreseen = forecast(run.e.config.privacy, rounds=1, population=45, up=[ask.schema for ask in program], down=0.0)
    assert foreseen.guarantee.epsilon == guarantee.epsilon
    assert foreseen.uploads_bound == 2


def test_the_ledger_records_two_multipliers_of_one_draw_and_reads_them_back(small_split, tmp_path):
    e = experiment(small_split, CENTRAL, fidelity="analytic")
    e.run(tmp_path)
    header, *entries = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    queries = [(entry["cohort_id"], entry["step"], entry["share"]) for entry in entries]
    share = e.server.constants.share
    assert queries == [(0, "popularity", share), (0, "gram", 1 - share)]
    assert header["plan"]["mechanism"]["noise_multiplier"] == 2
    multipliers = [entry["event"]["noise_multiplier"] for entry in entries]
    assert multipliers == pytest.approx([2 / math.sqrt(share), 2 / math.sqrt(1 - share)])
    assert sum(m**-2 for m in multipliers) == pytest.approx(2.0**-2)


@pytest.mark.parametrize(
    "plan",
    [
        "none:release=total", "none", "secure-sum:clip_norm=1", "clip:clip_norm=1,order=2", "shared-sum:clip_norm=1",
        "published-noise",
    ],
)  # fmt: skip
def test_plans_that_bound_nothing_say_so(small_split, plan):
    run = ran(small_split, plan)
    assert run.result.guarantee.epsilon == math.inf
    assert run.result.guarantee.reason_if_inf


@pytest.mark.parametrize(
    "plan",
    [
        "local-gaussian:clip_norm=1,noise_multiplier=8,delta=0.001",
        "local-laplace:clip_norm=1,epsilon0=1,delta=0.001",
        "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=40,delta=0.001",
        CENTRAL + ",adaptive.count_noise=5",
        CENTRAL + ",sampling.kind=poisson,sampling.rate=0.5",
    ],
)
def test_plans_with_noise_are_accounted_as_forecast(small_split, plan):
    run = ran(small_split, plan, head=12)
    program = [ask.schema for ask in run.e.registered.training.program(run.server)]
    foreseen = forecast(run.e.config.privacy, rounds=1, population=45, up=program, down=0.0)
    assert 0 < run.result.guarantee.epsilon == foreseen.guarantee.epsilon < math.inf


def test_interaction_noise_is_refused(small_split):
    with pytest.raises(PlanError, match="private-gram cannot run behind the plan"):
        experiment(small_split, "interaction-dpsgd:clip_norm=1,noise_multiplier=1")


def test_a_target_is_met_with_integer_noise_in_shares(small_split):
    start = PrivacyPlan.parse("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=40,delta=0.001")
    program = experiment(small_split, start_words(start), head=12).server.program()
    sized = plan_for_target(start, 4.0, 1, 45, program=[ask.schema for ask in program])
    run = ran(small_split, start_words(sized), head=12)
    assert 3.99 < run.result.guarantee.epsilon <= 4.0


def start_words(plan):
    mechanism = plan.to_dict()["mechanism"]
    fields = ",".join(f"{key}={mechanism[key]!r}" for key in ("clip_norm", "noise_multiplier", "n_min_honest"))
    return f"distributed-gaussian:{fields},delta=0.001"


# ---- through the ring


@pytest.mark.parametrize("histories", VARIANTS)
@pytest.mark.parametrize("fidelity", ["exact", "protocol"])
def test_the_ring_path_is_the_float_path_up_to_quantisation(described, histories, fidelity):
    run = ran(described, "secure-sum:clip_norm=1", histories=histories, fidelity=fidelity)
    for step in ("popularity", "gram"):
        torch.testing.assert_close(run.sums[step].double(), exact(run.e, step), rtol=0, atol=1e-5)
    direct = run.e.server
    diagonal = VARIANTS[histories]
    head = direct.state()["head"].numpy()
    popularity = np.maximum(exact(run.e, "popularity")[:, 0].numpy(), 0.5)[head]
    gram = unpacked(exact(run.e), HEAD, diagonal=diagonal).numpy()
    evidence = NoisyGram(gram, popularity, 45, 0.0, Content.from_features(direct.features, head, 6.0), diagonal)
    wanted = evidence.weights(EstimatorSettings(smoothing=0.6, threshold=None if diagonal else 0.6))
    np.testing.assert_allclose(direct.state()["weights"].numpy(), wanted, rtol=0, atol=5e-3)


def test_shares_of_noise_have_the_variance_that_the_server_was_told(small_split):
    plan = "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=36,delta=0.001"
    found = []
    for seed in range(3):
        run = ran(small_split, plan, seed=seed)
        found.append((run.sums["gram"].double() - exact(run.e)).numpy())
    sums = run.e.config.privacy.noisy_sums(45)
    assert sums.deviation == pytest.approx(2 * math.sqrt(45 / 36))
    noise = np.concatenate(found)
    assert noise.std() == pytest.approx(sums.deviation / math.sqrt(0.9), rel=4 / math.sqrt(2 * len(noise)))


# ---- the rule


ML_1M, ML_100K = (6040, 3706), (943, 1682)


def constants(shape, epsilon, content, **settings):
    users, items = shape
    mu = mu_of(epsilon, users**-1.1)
    return PrivateGramConstants.from_config(
        PrivateGramConfig(**settings), NoisySums(users, 1.0, 1 / mu), items, content=content
    )


@pytest.mark.parametrize(
    ("shape", "content", "heads"),
    [
        (ML_1M, True, [429, 583, 785, 1046]),
        (ML_1M, False, [301, 408, 550, 732]),
        (ML_100K, True, [185, 248, 331, 435]),
    ],
)
def test_heads_follow_from_users_and_noise(shape, content, heads):
    assert [constants(shape, e, content).head for e in (1, 2, 4, 8)] == heads


@pytest.mark.parametrize("users", [943, 1372, 1892, 6040])
def test_without_metadata_histories_are_damped_from_epsilon_4(users):
    assert [constants((users, 10**5), e, content=False).damping for e in (1, 2, 4, 8)] == [0, 0, 0.25, 0.25]
    assert [constants((users, 10**5), e, content=True).damping for e in (1, 8)] == [0.25, 0.25]


@pytest.mark.parametrize(("users", "damped", "plain"), [(10_690, 2, 1), (29_858, 1, 0.25)])
def test_large_populations_damp_at_less(users, damped, plain):
    assert constants((users, 10**5), damped, content=False).damping == 0.25
    assert constants((users, 10**5), plain, content=False).damping == 0


@pytest.mark.parametrize(("shape", "ends"), [((1372, 7957), (0.29, 0.12)), ((1892, 17632), (0.37, 0.16))])
def test_large_catalogues_give_popularity_more(shape, ends):
    found = [constants(shape, e, content=False).share for e in (1, 8)]
    assert found == pytest.approx(ends, abs=0.006)
    assert constants(ML_1M, 8, content=False).share == 0.1


def test_settings_overrule_the_rule_and_shares_add_up_to_one():
    chosen = constants(ML_1M, 1, content=True, head=77, damping=0.5, smoothing=0.1, popularity_share=0.25)
    assert (chosen.head, chosen.damping, chosen.smoothing, chosen.share) == (77, 0.5, 0.1, 0.25)
    server = method("private-gram").training.server(PrivateGramConfig(), public_info(6040, 3706), Streams.from_seed(0))
    assert sum(block.share for schema in server.schemas for block in schema.values()) == 1


def public_info(users, items, sums=None):
    return PublicInfo(users, items, sums=sums)


def test_without_noise_the_head_is_limited_by_size_alone():
    server = method("private-gram").training.server(PrivateGramConfig(), public_info(6040, 3706), Streams.from_seed(0))
    assert server.constants.head == 2048
    assert server.schema["gram"].shape == (packed_size(2048),)


def test_without_features_there_is_no_content(small_split, described):
    bare = replace(small_split, item_info=None)
    plain, rich = (experiment(parts, CENTRAL, head=None).server for parts in (bare, described))
    off = experiment(described, CENTRAL, head=None, metadata=False).server
    assert plain.features is None is off.features
    assert plain.constants == off.constants
    assert (plain.constants.smoothing, plain.constants.damping) == (0, 0)
    assert (rich.constants.smoothing, rich.constants.damping) == (0.6, 0.25)
    one, other = (ran(parts, CENTRAL, metadata=False, fidelity="analytic").server for parts in (bare, described))
    assert one.state()["weights"].equal(other.state()["weights"])


def test_one_known_feature_is_enough(described):
    titles = described.item_info[["title"]].assign(title="no year")
    assert experiment(replace(described, item_info=titles)).server.features is None
    genres = replace(described, item_info=titles.assign(genres=described.item_info["genres"]))
    years = replace(described, item_info=described.item_info[["title"]])
    for parts in (genres, years):
        server = ran(parts, CENTRAL, fidelity="analytic").server
        assert server.constants.smoothing == 0.6
        assert np.isfinite(server.state()["weights"].numpy()).all()


# ---- what a device recommends


def test_scores_are_the_naive_prediction(described):
    run = ran(described, CENTRAL, fidelity="analytic")
    state = {name: value.double().numpy() for name, value in run.server.state().items()}
    head, users = state["head"].astype(int), torch.arange(45)
    found = run.clients.score(users, run.server.public(), None, None).numpy()
    for user, y in enumerate(naive_centred(described.train, run.server)):
        own = set(described.train.items_of(user).tolist())
        owned = sum(item in own for item in head.tolist())
        wanted = [
            max(1, owned) * state["shares"][j]
            + sum(state["weights"][j, i] * y[i] for i in range(HEAD)) / state["scale"][j]
            for j in range(HEAD)
        ]
        np.testing.assert_allclose(found[user, head], wanted, rtol=1e-4, atol=1e-4)
        rest = np.setdiff1d(np.arange(70), head)
        assert found[user, rest].max() < found[user, head].min()
        assert np.argsort(-found[user, rest]).tolist() == np.argsort(-state["order"][rest]).tolist()


def test_users_without_head_items_get_popularity_and_no_ties(described):
    run = ran(described, CENTRAL, fidelity="analytic")
    own = described.train.items_of(3)
    message = run.server.public()
    elsewhere = torch.from_numpy(np.setdiff1d(np.arange(70), own)[:HEAD])
    scores = run.clients.score(torch.tensor([3]), replace_shared(message, head=elsewhere), None, None)[0]
    assert scores.equal(message.shared["order"])
    noisy = run.sums["popularity"][:, 0]
    assert scores.argsort(descending=True).equal(noisy.argsort(descending=True))
    assert len(scores.sigmoid().unique()) == 70


def test_candidates_are_columns_of_the_whole_catalogue(described):
    run = ran(described, CENTRAL, fidelity="analytic")
    users, candidates = torch.tensor([2, 3, 11]), torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])
    whole = run.clients.score(users, run.server.public(), None, None)
    assert run.clients.score(users, run.server.public(), None, candidates).equal(whole.gather(1, candidates))


def test_all_of_the_budget_for_popularity_ranks_by_it(small_split):
    run = ran(small_split, CENTRAL, fidelity="analytic", popularity_share=1.0)
    assert list(run.sums) == ["popularity", *(name for name in run.sums if name.startswith("@"))]
    (noise,) = ((run.sums["popularity"].double() - exact(run.e, "popularity")).numpy(),)
    assert noise.std() == pytest.approx(2, rel=4 / math.sqrt(2 * 70))
    scores = run.clients.score(torch.arange(3), run.server.public(), None, None)
    order = run.sums["popularity"][:, 0].argsort(descending=True)
    assert all(row.argsort(descending=True).equal(order) for row in scores)
    assert len(run.e.registered.training.program(run.server)) == 1


def test_rank_zero_leaves_popularity_and_content(described):
    """The weights are those of the content kernels alone, which a private matrix scales by three numbers."""
    server = ran(described, CENTRAL, fidelity="analytic", rank=0).server
    weights = server.state()["weights"].double().numpy()
    covariance = np.linalg.inv(np.eye(HEAD) - weights) / HEAD - np.eye(HEAD) / HEAD
    content = Content.from_features(server.features, server.state()["head"].numpy(), 6.0)
    kernels = np.stack([kernel.ravel() for kernel in content.kernels], 1)
    found, left, *_ = np.linalg.lstsq(kernels, covariance.ravel(), rcond=None)
    assert left.sum() < 1e-6 * (covariance**2).sum()
    assert found.min() > -1e-6
    assert not ran(described, CENTRAL, fidelity="analytic", rank=0, metadata=False).server.state()["weights"].any()


def test_it_beats_popularity_without_noise(small_split):
    found = ran(small_split, metadata=False, head=60).result.test.metric("ndcg", 5).value
    alone = ran(small_split, popularity_share=1.0).result.test.metric("ndcg", 5).value
    assert found > alone


# ---- rounds and checkpoints


# ---- what is decided inside the budget


def test_histories_are_short_where_their_mean_root_length_is_small(small_split):
    for deviation, margin in ((0.0, 1e-4), (2.0, 4 * 2 * math.sqrt(70) / 45)):
        plan = "none:release=total" if deviation == 0 else CENTRAL
        server = ran(small_split, plan, fidelity="analytic", histories="auto").server
        lengths = np.sqrt(small_split.train.counts)
        assert server.decisions["mean root of history lengths"] == pytest.approx(lengths.mean(), abs=4 * margin)
    assert HeadShown(4.9, 100).short(PrivateGramConfig())
    assert not HeadShown(5.1, 100).short(PrivateGramConfig())
    assert HeadShown(5.1, 100).short(PrivateGramConfig(histories="short"))


def test_the_second_ask_has_a_diagonal_only_where_histories_are_long(small_split):
    for histories in ("auto", "long"):
        run = ran(small_split, CENTRAL, fidelity="analytic", histories=histories)
        long = histories == "long" or run.server.decisions["mean root of history lengths"] >= 5
        assert len(run.sums["gram"]) == packed_size(HEAD, diagonal=long)
        assert run.result.guarantee.epsilon == pytest.approx(
            ran(small_split, CENTRAL, fidelity="analytic").result.guarantee.epsilon
        )


def test_items_stand_out_of_noise_or_do_not():
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=20_000) * 3)
    assert abs(HeadShown.from_popularity(noise, 1000, 3.0).standing_out) < 25
    noise[:60] += 30
    assert abs(HeadShown.from_popularity(noise, 1000, 3.0).standing_out - 60) < 25
    assert HeadShown.from_popularity(torch.tensor([0.0, 0.5, 2.0]), 10, 0.0).standing_out == 2


def test_short_histories_need_more_items_above_the_noise():
    by_rule, set_to = PrivateGramConfig(), PrivateGramConfig(min_items=5)
    assert [HeadShown(9.0, items).few(by_rule) for items in (19, 20)] == [True, False]
    assert [HeadShown(2.0, items).few(by_rule) for items in (39, 40)] == [True, False]
    assert [HeadShown(2.0, items).few(set_to) for items in (4, 5)] == [True, False]


@pytest.mark.parametrize("fidelity", ["analytic", "exact"])
def test_a_head_that_noise_hides_makes_popularity_more_exact_instead(small_split, fidelity):
    run = ran(small_split, CENTRAL, fidelity=fidelity, min_items=71)
    assert "gram" not in run.sums
    assert not len(run.server.state()["head"])
    first, second = (o.tensors["popularity"][:, 0].double() for o in run.result.transcript.joined("sum"))
    share = run.server.constants.share
    order = (share * first + (1 - share) * second).argsort(descending=True)
    scores = run.clients.score(torch.arange(3), run.server.public(), None, None)
    assert all(row.argsort(descending=True).equal(order) for row in scores)
    assert run.result.guarantee.epsilon == pytest.approx(
        ran(small_split, CENTRAL, fidelity=fidelity).result.guarantee.epsilon
    )
    noise = (share * first + (1 - share) * second - exact(run.e, "popularity")[:, 0]).numpy()
    assert noise.std() == pytest.approx(2, rel=4 / math.sqrt(2 * 70))


def test_the_choice_changes_nothing_that_was_asked_and_is_reported(described):
    settled, chosen = (ran(described, CENTRAL, fidelity="analytic", select=select) for select in (False, True))
    assert settled.sums["gram"].equal(chosen.sums["gram"])
    assert settled.result.guarantee.epsilon == chosen.result.guarantee.epsilon
    assert chosen.server.decisions["variants compared"] >= 7
    assert chosen.result.decisions == chosen.server.decisions
    again = ran(described, CENTRAL, fidelity="analytic", select=True)
    assert again.server.state()["weights"].equal(chosen.server.state()["weights"])


def test_without_noise_there_is_nothing_to_judge_with(described):
    assert "variants compared" not in ran(described, select=True).server.decisions


# ---- beyond the head


def test_items_outside_the_head_are_ranked_by_content(described):
    run = ran(described, CENTRAL, fidelity="analytic", beyond_head="content")
    plain = ran(described, CENTRAL, fidelity="analytic")
    state = run.server.state()
    assert sorted([*state["head"].tolist(), *state["beyond"].tolist()]) == list(range(70))
    users = torch.arange(45)
    found, behind = (r.clients.score(users, r.server.public(), None, None) for r in (run, plain))
    head, beyond = state["head"], state["beyond"]
    assert found[:, head].equal(behind[:, head])
    y = torch.from_numpy(naive_centred(described.train, run.server))
    owned = torch.tensor([sum(int(i) in set(described.train.items_of(u).tolist()) for i in head) for u in range(45)])
    wanted = owned.clamp(min=1)[:, None] * state["beyond_shares"] + y @ state["beyond_weights"].double().T
    torch.testing.assert_close(found[:, beyond].double()[owned > 0], wanted[owned > 0], rtol=1e-4, atol=1e-4)
    assert (behind[:, beyond].amax(1) < behind[:, head].amin(1)).all()


def test_content_outside_the_head_needs_features(small_split):
    with pytest.raises(NoFeaturesError, match="beyond_head"):
        experiment(replace(small_split, item_info=None), CENTRAL, beyond_head="content")


# ---- rounds


def test_later_rounds_ask_for_nothing(small_split):
    e = experiment(small_split, CENTRAL, fidelity="analytic", rounds=3)
    result = e.run()
    assert len(result.transcript.joined("sum")) == 2
    assert result.guarantee.rounds_counted == 1
    assert result.guarantee.epsilon == ran(small_split, CENTRAL, fidelity="analytic").result.guarantee.epsilon


class KilledError(Exception):
    """Stands for the process being gone."""


@pytest.mark.parametrize("fidelity", ["analytic", "exact"])
def test_a_killed_run_resumes_to_the_same_bits(described, tmp_path, fidelity):
    def start():
        return experiment(
            described, CENTRAL if fidelity == "analytic" else "secure-sum:clip_norm=1", fidelity=fidelity, rounds=2
        )

    def kill(t, _):
        raise KilledError

    for name in ("unbroken", "before", "after"):
        (tmp_path / name).mkdir()
    wanted = start().run(tmp_path / "unbroken")
    with pytest.raises(KilledError):
        start().run(tmp_path / "after", progress=kill)
    broken = start()

    def dying(call, message):
        raise KilledError

    broken.clients.gram = dying
    with pytest.raises(KilledError):
        broken.run(tmp_path / "before")
    for name in ("before", "after"):
        found = start().run(tmp_path / name, resume=True)
        for key, value in wanted.server.state().items():
            assert found.server.state()[key].equal(value), key
        assert found.history == wanted.history
        assert found.guarantee == wanted.guarantee
        assert (tmp_path / name / "ledger.jsonl").read_text() == (tmp_path / "unbroken" / "ledger.jsonl").read_text()


def test_noise_is_the_same_for_every_chunk_size(small_split):
    states = [ran(small_split, CENTRAL, fidelity="analytic", chunk=chunk).server.state() for chunk in (7, None)]
    for key, value in states[0].items():
        torch.testing.assert_close(value, states[1][key], rtol=0, atol=1e-4)


def test_an_aborted_round_asks_again(small_split):
    plan = "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=20,delta=0.001"
    e = experiment(small_split, f"{plan},sampling.kind=poisson,sampling.rate=0.4", rounds=8, head=10)
    result = e.run()
    assert result.costs.aborted_rounds > 0
    assert bool(e.server.queried)
    assert result.guarantee.rounds_counted == 1


def test_vectors_are_those_of_torch_to_the_bit():
    """Items off the head, a user without any on it, and histories so long that popularity is cut at one."""
    draw, side = torch.Generator().manual_seed(0), 30
    own = torch.rand(20, 40, generator=draw) < torch.arange(20).unsqueeze(1) / 20
    owner, items = own.nonzero(as_tuple=True)
    head = torch.randperm(40, generator=draw)[:side]
    shares, scale = torch.rand(side, generator=draw) / 5, torch.rand(side, generator=draw) + 0.1
    message = Message({HEAD_ITEMS: head, SHARES: shares, SCALE: scale})
    vectors, mine = centred(OwnRows(owner, items, own.sum(1), 40), message)
    expected = (own[:, head].float() - (mine.counts.unsqueeze(1) * shares).clamp(max=1)).mul_(scale)
    assert mine.counts.tolist() == own[:, head].sum(1).tolist()
    assert (mine.counts.unsqueeze(1) * shares > 1).any()
    assert vectors.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("short", [HEAD_ITEMS, SHARES, SCALE])
def test_a_hostile_message_of_unequal_lengths_is_refused_and_read_nowhere_else(short):
    lengths = {name: 20 if name == short else 30 for name in (HEAD_ITEMS, SHARES, SCALE)}
    shared = {name: torch.ones(length) for name, length in lengths.items()}
    shared[HEAD_ITEMS] = torch.arange(lengths[HEAD_ITEMS])
    rows = OwnRows(torch.zeros(2, dtype=torch.int64), torch.tensor([3, 25]), torch.tensor([2]), 40)
    with pytest.raises(RuntimeError, match="must match the size"):
        centred(rows, Message(shared))
