"""HeteFedRec's parts against hand computations, its invariants, its baselines, and what it refuses."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from privfed.audit.attack_runs.attack_run import attack_trained
from privfed.audit.attack_runs.rows_seen import rows_seen
from privfed.compute.tiles import ladder
from privfed.data import Histories, SplitSpec, load, split
from privfed.engines.transcript import Transcript
from privfed.experiment import Experiment
from privfed.federation import Purpose, Streams, Total
from privfed.methods import method
from privfed.methods.hetefedrec import METHOD, HeteFedRecConfig
from privfed.methods.hetefedrec.decorrelation import Decorrelation
from privfed.methods.hetefedrec.distillation import distillation_gradients, distilled_items
from privfed.methods.hetefedrec.groups import assign_groups
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.padding import clients_per_tile
from privfed.methods.hetefedrec.published import AS_PUBLISHED
from privfed.methods.hetefedrec.sampling import draw_distinct
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig

NAMES = ("small", "medium", "large")
VARIANTS = ["hetefedrec", "direct", "all_small", "all_large", "exclusive", "standalone", "clustered"]
FAST = {"widths": (4, 8, 16), "lr_items": 0.01, "lr_heads": 0.01, "lr_user": 0.01, "standalone_steps": 3}


@pytest.fixture
def world(world):
    """Worlds with the published settings, where a test does not say otherwise."""
    published = AS_PUBLISHED.settings
    return lambda name, **settings: world(name, **(published | settings if name == "hetefedrec" else settings))


def published(**settings):
    return HeteFedRecConfig(**(AS_PUBLISHED.settings | settings))


def uploads(w, block):
    return torch.cat([o.tensors[block] for o in w.simulation.transcript.joined("raw")])


def watched(users=45):
    return Transcript(torch.arange(users), frozenset({"raw"}))


# ---- groups


@pytest.mark.parametrize("groups", ["activity", "capacity", "random"])
def test_groups_have_about_the_shares_they_were_given(groups):
    config = published(groups=groups)
    counts = np.random.default_rng(0).integers(1, 10_000, 3000)
    group = assign_groups(config, counts, Streams.from_seed(1))
    np.testing.assert_allclose(np.bincount(group) / 3000, config.shares, atol=0.04)
    other = assign_groups(config, counts[::-1].copy(), Streams.from_seed(1))
    assert (group == other).all() == (groups != "activity")


def test_activity_begins_a_group_at_its_threshold():
    counts = np.array([0, 76, 77, 202, 203, 900])
    config = published(thresholds=(77, 203))
    assert assign_groups(config, counts, Streams.from_seed(0)).tolist() == [0, 0, 1, 1, 2, 2]


def test_percentiles_of_everybody_entangle_users():
    """Others change groups with one user's data; public thresholds, one group and other ways move nobody else."""
    assert "percentiles" in METHOD.disclosure.cross_user_dependence(
        HeteFedRecConfig(groups="activity", thresholds=None)
    )
    free = [{"thresholds": (77, 203)}, {"variant": "all_large"}, {"widths": (8,), "shares": (1.0,)}]
    assert not any(
        METHOD.disclosure.cross_user_dependence(HeteFedRecConfig(groups="activity", **settings)) for settings in free
    )
    assert METHOD.disclosure.cross_user_dependence(HeteFedRecConfig(groups="capacity")) is None


def test_what_groups_disclose():
    assert "training items" in METHOD.disclosure.side_disclosures(published())[0]
    assert "capacity" in METHOD.disclosure.side_disclosures(HeteFedRecConfig(groups="capacity"))[0]
    assert METHOD.disclosure.side_disclosures(HeteFedRecConfig(variant="all_large")) == ()


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, True),
        ({"variant": "exclusive"}, True),
        ({"thresholds": (8, 16)}, False),
        ({"groups": "random"}, False),
        ({"groups": "capacity"}, False),
        ({"variant": "all_small"}, False),
        ({"variant": "all_large"}, False),
    ],
)
def test_percentiles_of_activity_are_refused_where_something_is_guaranteed(small_split, settings, refused):
    """Leave one user out and others change group: no bound on one upload bounds what that does."""
    given = published(**settings).model_dump(mode="json")
    config = ExperimentConfig(privacy=PrivacyPlan.parse(CENTRAL), method={"name": "hetefedrec", **given})
    if refused:
        with pytest.raises(PlanError, match="move other users too"):
            Experiment(config, small_split)
    else:
        Experiment(config, small_split)


# ---- samples


def drawn(users, positives, excluded, negatives=4, round=0):
    streams = Streams.from_seed(5)
    return draw_distinct(
        positives, excluded, negatives, np.array(users),
        lambda who, count: streams.words(Purpose.SAMPLES, round, 0, who, count),
    )  # fmt: skip


@pytest.fixture(scope="module")
def histories():
    rng = np.random.default_rng(3)
    sets = [rng.choice(60, size, replace=False) for size in (3, 0, 10, 13, 40, 60)]
    owners = np.repeat(np.arange(6), [len(s) for s in sets])
    return Histories.from_pairs(owners, np.concatenate(sets), 6, 60)


def test_samples_are_distinct_and_as_many_as_there_are(histories):
    samples = drawn(range(6), histories, histories)
    assert samples.counts.tolist() == [15, 0, 50, 60, 60, 60]
    for user in range(6):
        mine = samples.owner == user
        items, labels = samples.items[mine], samples.labels[mine]
        assert bool((items[1:] > items[:-1]).all())
        assert sorted(items[labels == 1].tolist()) == sorted(histories.items_of(user).tolist())


def test_samples_of_a_client_do_not_depend_on_its_company(histories):
    everyone = drawn(range(6), histories, histories)
    for user in range(6):
        alone = drawn([user], histories, histories)
        assert alone.items.equal(everyone.items[everyone.owner == user])


def test_excluded_items_are_never_drawn_and_the_others_equally_often(histories):
    pairs = np.array([[0, item] for item in range(30, 50)])
    excluded = histories.union(Histories.from_pairs(pairs[:, 0], pairs[:, 1], 6, 60))
    count = np.zeros(60)
    for t in range(600):
        samples = drawn([0], histories, excluded, round=t)
        count[samples.items[samples.labels == 0].numpy()] += 1
    assert count[excluded.items_of(0)].sum() == 0
    free = np.setdiff1d(np.arange(60), excluded.items_of(0))
    expected = 600 * 12 / len(free)
    assert ((count[free] - expected) ** 2 / expected).sum() < 80  # chi-square on some 36 degrees of freedom


# ---- decorrelation


def test_decorrelation_of_white_columns_is_one_over_the_root_of_their_number():
    z = torch.randn(64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    white = torch.linalg.qr(z - z.mean(0)).Q.float().T.unsqueeze(0) + 3
    part = Decorrelation(1.0, torch.ones(1, 64), torch.tensor([64.0]))
    assert float(part.loss(white)) == pytest.approx(8**-0.5, rel=1e-5)


def test_decorrelation_gradient_equals_autograd_and_padding_stays_still():
    rng = torch.Generator().manual_seed(1)
    items = torch.randn(3, 4, 32, generator=rng) + torch.randn(3, 4, 1, generator=rng)
    count = torch.tensor([32.0, 20.0, 3.0])
    real = (torch.arange(32) < count.unsqueeze(1)).float()
    items = (items * real.unsqueeze(1)).requires_grad_()
    part = Decorrelation(0.7, real, count)
    part.loss(items).sum().backward()
    gradient = torch.zeros(3, 4, 32)
    part.add_gradient_(gradient, items.detach())
    torch.testing.assert_close(gradient, items.grad * real.unsqueeze(1), rtol=1e-4, atol=1e-7)
    assert gradient[2].abs().sum() == 0


# ---- distillation


def test_distillation_gradient_equals_autograd():
    rng = torch.Generator().manual_seed(2)
    tables = [torch.randn(20, width, generator=rng, dtype=torch.float64, requires_grad=True) for width in (4, 8, 12)]
    units = [nn / nn.norm(dim=1, keepdim=True) for nn in tables]
    teacher = (sum(unit @ unit.T for unit in units) / 3).detach()
    for unit in units:
        ((unit @ unit.T - teacher) ** 2).mean().backward(retain_graph=True)
    for table, gradient in zip(tables, distillation_gradients([t.detach() for t in tables]), strict=True):
        torch.testing.assert_close(gradient, table.grad)


def test_distilled_items_are_distinct_and_new_every_step():
    first = distilled_items([1, 2], 0, 0, 100, 30)
    assert len(first.unique()) == 30
    assert not first.equal(distilled_items([1, 2], 1, 0, 100, 30))
    assert distilled_items([1, 2], 0, 0, 10, 30).sort().values.equal(torch.arange(10))


def test_distillation_brings_the_similarities_together(world):
    apart = {}
    for steps in (0, 5):
        w = world("hetefedrec", distillation=steps, distillation_lr=0.02, **FAST).train(4)
        tables = [w.server.parameters[f"items.{name}"] for name in ("small", "medium", "large")]
        units = [table / table.norm(dim=1, keepdim=True) for table in tables]
        apart[steps] = float(torch.stack([unit @ unit.T for unit in units]).var(0).mean())
    assert apart[5] < 0.8 * apart[0]


# ---- invariants


def test_tables_stay_prefixes_of_one_without_distillation(world):
    w = world("hetefedrec", distillation=0, item_bias=True, **FAST).train(3)
    small, medium, large = (w.server.parameters[f"items.{name}"] for name in ("small", "medium", "large"))
    assert medium.equal(large[:, :8])
    assert small.equal(large[:, :4])
    w = world("hetefedrec", distillation=1, **FAST).train(1)
    assert not w.server.parameters["items.small"].equal(w.server.parameters["items.large"][:, :4])


@pytest.mark.parametrize(("variant", "name", "width"), [("all_small", "small", 4), ("all_large", "large", 16)])
def test_one_group_is_one_size_for_all(world, variant, name, width):
    """From the same start; with one size there is nothing to nest, to decorrelate or to distil."""
    same = world("hetefedrec", variant=variant, **FAST)
    one = world("hetefedrec", **(FAST | {"widths": (width,), "shares": (1.0,)}))
    start = {key: value.clone() for key, value in same.server.state().items()}
    one.server.load({key.replace(f".{name}", ".small"): value for key, value in start.items()})
    one.clients.load({"user": same.clients.state()["user"][:, :width].clone()})
    one.train(3)
    same.train(3)
    for key, value in same.server.parameters.items():
        assert one.server.parameters[key.replace(f".{name}", ".small")].equal(value)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("more", [{"base": "ncf"}, {"base": "lightgcn"}, {"widths": (3, 5, 9), "hidden": (5, 3)}])
def test_chunks_decide_no_bit_of_an_upload(world, more, chunk):
    settings = {"steps": 2, "user_steps": 1, "inner": True, "item_bias": True} | more
    runs = [world("hetefedrec", chunk=c, transcript=watched(), **settings).train(1) for c in (chunk, None)]
    for block in runs[0].server.schema:
        assert uploads(runs[0], block).equal(uploads(runs[1], block)), block
    assert runs[0].clients.state()["user"].equal(runs[1].clients.state()["user"])


def test_a_run_continues_from_its_state(world):
    settings = FAST | {"server_optimiser": "adam", "aggregation": "fixed", "head_aggregation": "fixed"}
    one, other = world("hetefedrec", **settings).train(2), world("hetefedrec", **settings)
    other.server.load({key: value.clone() for key, value in one.server.state().items()})
    other.clients.load({key: value.clone() for key, value in one.clients.state().items()})
    other.simulation.cohorts = one.simulation.cohorts
    one.train(4, first=2)
    other.train(4, first=2)
    for half in ("server", "clients"):
        found, wanted = getattr(other, half).state(), getattr(one, half).state()
        assert found.keys() == wanted.keys()
        assert all(found[key].equal(wanted[key]) for key in wanted)


def test_widths_of_tiles_follow_a_ladder_of_whole_tiles():
    rungs = ladder(5000)
    assert bool((rungs % 16 == 0).all())
    assert int(rungs[-1]) >= 5000
    assert float((rungs[5:] / rungs[4:-1]).max()) < 1.5
    assert [clients_per_tile(w) for w in (16, 1024, 2048, 5000)] == [16, 16, 8, 2]


# ---- aggregation


def test_a_mean_over_contributors_divides_every_row_by_those_who_sent_it(world):
    w = world("hetefedrec", aggregation="contributors", head_aggregation="contributors", distillation=0,
              transcript=watched(), **FAST)  # fmt: skip
    before = {name: value.clone() for name, value in w.server.parameters.items()}
    w.train(1)
    group = w.clients.group
    sent = {block: uploads(w, block) for block in ("items.0:4", "items.4:8", "items.8:16", "head.medium.W1")}
    for start, stop, holders in ((0, 4, group >= 0), (4, 8, group >= 1), (8, 16, group == 2)):
        block = sent[f"items.{start}:{stop}"]
        touched = (block != 0).any(2)
        assert not bool(touched[~holders].any())
        mean = block.sum(0) / touched.sum(0).clamp(min=1).unsqueeze(1)
        moved = w.server.parameters["items.large"] - before["items.large"]
        torch.testing.assert_close(moved[:, start:stop], mean, rtol=1e-4, atol=1e-6)
    moved = w.server.parameters["head.medium.W1"] - before["head.medium.W1"]
    torch.testing.assert_close(moved, sent["head.medium.W1"][group >= 1].mean(0), rtol=1e-4, atol=1e-6)


def test_a_fixed_mean_divides_by_public_numbers(world):
    w = world("hetefedrec", aggregation="fixed", head_aggregation="fixed", touch_rate=0.2, distillation=0,
              item_bias=True, **FAST)  # fmt: skip
    schema, layout = w.server.schema, w.server.layout
    release = Total({name: torch.ones(block.shape) for name, block in schema.items()}, 40.0)
    moves = w.server._updates(release)
    for columns, share in ((slice(0, 4), 1.0), (slice(4, 8), 0.5), (slice(8, 16), 0.2)):
        torch.testing.assert_close(moves["items.large"][:, columns].mean().item(), 1 / (40 * share * 0.2))
    assert moves["bias"].mean().item() == pytest.approx(1 / (40 * 0.2))
    assert moves["head.medium.b0"].mean().item() == pytest.approx(1 / (40 * 0.5))
    assert layout.head_share(2) == pytest.approx(0.2)


def test_only_the_last_group_counts_where_it_is_exclusive(world):
    w = world("hetefedrec", variant="exclusive", transcript=watched(), **FAST).train(1)
    sent = uploads(w, "items.0:16").abs().sum((1, 2)) > 0
    assert sent.equal(w.clients.group == 2)
    start = world("hetefedrec", variant="exclusive", **FAST).clients.state()["user"]
    assert bool((w.clients.state()["user"] != start).any(1).all())


def test_clustered_groups_learn_nothing_from_each_other(world):
    w = world("hetefedrec", variant="clustered", transcript=watched(), **FAST)
    before = w.server.parameters["items.medium"].clone()
    w.train(1)
    moved = w.server.parameters["items.medium"] - before
    mine = uploads(w, "items.0:8.medium")
    assert bool((mine[w.clients.group != 1] == 0).all())
    torch.testing.assert_close(moved, mine.sum(0), rtol=1e-4, atol=1e-6)


def test_devices_alone_send_nothing_and_train_when_asked(world):
    w = world("hetefedrec", variant="standalone", **(FAST | {"standalone_steps": 30})).train(2)
    assert dict(w.server.schema) == {}
    assert w.simulation.costs.up_bytes == 0
    users = torch.arange(45)
    message = w.server.public()
    trained = w.clients.score(users, message, None, None)
    again = w.clients.score(users[5:9], message, None, None)
    torch.testing.assert_close(again, trained[5:9], rtol=1e-5, atol=1e-6)
    fresh = world("hetefedrec", variant="standalone", **(FAST | {"standalone_steps": 1}))
    start = fresh.clients.score(users, message, None, None)
    mask = torch.from_numpy(w.data.positives.mask(np.arange(45)))
    gap = [(s * mask).sum(1) / mask.sum(1) - (s * ~mask).sum(1) / (~mask).sum(1) for s in (trained, start)]
    assert float(gap[0].mean()) > float(gap[1].mean()) + 0.05


# ---- privacy


def test_a_secure_sum_is_the_plain_sum(world):
    settings = FAST | {"aggregation": "fixed", "head_aggregation": "fixed", "inner": True, "item_bias": True}
    plain = world("hetefedrec", **settings).train(1)
    secure = world("hetefedrec", plan="secure-sum:clip_norm=100,bits=64", **settings).train(1)
    for name, value in plain.server.parameters.items():
        torch.testing.assert_close(secure.server.parameters[name], value, rtol=1e-4, atol=1e-5)


CENTRAL = "central-gaussian:clip_norm=0.5,noise_multiplier=1,sampling.kind=poisson,sampling.rate=0.3"


def test_central_noise_has_a_finite_epsilon_with_public_denominators(world):
    w = world("hetefedrec", plan=CENTRAL, aggregation="fixed", head_aggregation="fixed", **FAST).train(2)
    assert 0 < w.ledger.guarantee().epsilon < np.inf


def test_counting_contributors_is_refused_under_noise(world):
    w = world("hetefedrec", plan=CENTRAL, aggregation="contributors", **FAST)
    with pytest.raises(PlanError, match="counts"):
        w.train(1)


# ---- every variant


@pytest.mark.parametrize("base", ["ncf", "lightgcn"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_and_scores(world, variant, base):
    w = world("hetefedrec", variant=variant, base=base, **FAST).train(2)
    assert METHOD.disclosure.side_disclosures(w.server.config) is not None
    users, candidates = torch.tensor([2, 3, 11]), torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])
    message = w.server.public().addressed_to(users)
    whole = w.clients.score(users, message, None, None)
    assert whole.shape == (3, 70)
    some = w.clients.score(users, message, None, candidates)
    torch.testing.assert_close(some, whole.gather(1, candidates), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "standalone"])
def test_item_rows_are_what_a_client_moved(world, variant):
    """Its segments and biases side by side, in columns of their own: sums of groups apart are not mixed."""
    w = world("hetefedrec", variant=variant, item_bias=True, transcript=watched(), **FAST).train(1)
    blocks = {name: uploads(w, name) for name in w.server.schema}
    rows = METHOD.attack_surface.item_blocks(w.server.config, w.server.schema).rows(blocks)
    moved = [value for name, value in blocks.items() if name.startswith(("items.", "bias"))]
    assert rows.shape == (45, 70, sum(value.shape[2] for value in moved))
    for user in range(45):
        sent = [value[user] for value in moved if value[user].any()]
        mine = rows[user][:, rows[user].any(0)]
        assert mine.equal(torch.cat(sent, 1)[:, torch.cat(sent, 1).any(0)] if sent else mine[:, :0])


def test_a_user_without_items_takes_no_part(world, few_users):
    from dataclasses import replace

    train = few_users.train
    keep = train.owners != 4
    parts = replace(few_users, train=Histories.from_pairs(train.owners[keep], train.items[keep], 18, 70))
    w = world("hetefedrec", parts=parts, transcript=watched(18), **FAST).train(1)
    assert float(uploads(w, "items.0:4")[4].abs().sum()) == 0
    assert torch.isfinite(w.clients.score(torch.tensor([4]), w.server.public(), None, None)).all()


def test_it_beats_popularity_on_the_small_data(world):
    settings = {"widths": (4, 8, 16), "lr_items": 0.05, "lr_heads": 0.02, "lr_user": 0.1, "steps": 4, "inner": True}
    parts = split(load("synthetic-small"), SplitSpec())
    w = world(
        "hetefedrec", parts=parts, aggregation="contributors", head_aggregation="contributors", seed=0, **settings
    )
    w.train(12)
    users = np.arange(w.data.n_users)
    scores = w.clients.score(torch.from_numpy(users), w.server.public(), None, None).numpy()
    popular = np.tile(parts.train.popularity(), (len(users), 1))
    test, train = parts.test.mask(users), parts.train.mask(users)

    def ahead(ranking):
        """Share of unseen items that stand before the held-out one."""
        return np.mean([(s[~seen] > s[t]).mean() for s, t, seen in zip(ranking, test, train, strict=True) if t.any()])

    assert ahead(scores) < ahead(popular) - 0.005


def test_devices_alone_are_evaluated_like_all_others():
    """Nothing is sent, yet the observer of a round sees every device train."""
    settings = {"name": "hetefedrec", "variant": "standalone", "standalone_steps": 2}
    config = ExperimentConfig(data="synthetic-small", rounds=1, method=settings)
    run = Experiment.on(config, load("synthetic-small")).run()
    assert run.history[-1].results["test"].n_users == 120
    assert np.isfinite(run.history[-1].results["test"].merit)


@pytest.mark.parametrize("plan", ["none", "secure-sum:clip_norm=1", "central-gaussian:clip_norm=1,noise_multiplier=1"])
def test_devices_alone_give_an_attack_nothing_but_what_they_show(small_split, plan):
    settings = {"name": "hetefedrec", "variant": "standalone", "standalone_steps": 1}
    experiment = Experiment(ExperimentConfig(rounds=1, method=settings, privacy=PrivacyPlan.parse(plan)), small_split)
    transcript = experiment.run(parts=("test",)).transcript
    assert experiment.item_blocks is None
    assert rows_seen(experiment, 1) is None
    assert {row.tap for row in attack_trained(experiment, transcript.joined, 1)} == {"scores"}


# ---- settings


def test_published_settings_are_the_papers():
    paper, other = published(), published(base="lightgcn")
    assert (paper.base, other.base, paper.widths, paper.hidden) == ("ncf", "lightgcn", (8, 16, 32), (8, 8))
    assert (paper.groups, paper.shares, paper.negatives, paper.lr_items) == ("activity", (0.5, 0.3, 0.2), 4, 1e-3)
    assert (paper.aggregation, paper.head_aggregation, paper.server_optimiser) == ("sum", "sum", "average")
    assert (paper.inner, paper.item_bias, paper.dual_task) == (False, False, True)
    assert min(paper.decorrelation, paper.distillation) > 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"widths": (8, 8, 16)}, "ascending order"),
        ({"widths": (4, 8, 12, 16), "shares": (0.25,) * 4}, "one to three"),
        ({"shares": (0.5, 0.5)}, "one share for every width"),
        ({"shares": (0.5, 0.3, 0.3)}, "whose sum is 1"),
        ({"hidden": (8, 0)}, "hidden width"),
        ({"thresholds": (5,), "groups": "activity"}, "one less than groups"),
        ({"thresholds": (9, 5), "groups": "activity"}, "ascending"),
        ({"thresholds": (5, 9), "groups": "random"}, "training counts"),
        ({"variant": "exclusive", "widths": (8,), "shares": (1.0,)}, "nobody would be left out"),
        ({"alpha": 1.0}, "extra"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(settings, said):
    with pytest.raises(ValidationError, match=said):
        HeteFedRecConfig(**settings)


def test_the_default_runs_under_a_budget_as_it_is_and_its_groups_say_nothing_about_data(world):
    defaults = HeteFedRecConfig().model_dump()
    w = world("hetefedrec", plan="central-gaussian:clip_norm=0.1,noise_multiplier=2", **defaults).train(2)
    assert np.isfinite(w.ledger.guarantee().epsilon)
    assert "capacity" in METHOD.disclosure.side_disclosures(HeteFedRecConfig())[0]


def test_a_device_downloads_its_own_table_and_the_heads_it_trains(world):
    w = world("hetefedrec", widths=(4, 8, 16), hidden=(3,), item_bias=True)
    items, shared = w.data.n_items, w.server.public().shared
    heads = [sum(v.nbytes for name, v in shared.items() if name.startswith(f"head.{g}.")) for g in NAMES]
    each = [4 * items * (width + 1) + sum(heads[: k + 1]) for k, width in enumerate((4, 8, 16))]
    wanted = sum(share * size for share, size in zip((0.5, 0.3, 0.2), each, strict=True))
    assert w.server.public().bytes_per_client() == pytest.approx(wanted, abs=1)
    assert w.server.public().addressed_to(torch.arange(3)).bytes_per_client() == w.server.public().bytes_per_client()


def test_it_is_registered_and_its_layout_is_nested():
    assert method("hetefedrec") is METHOD
    layout = ModelLayout.from_config(published())
    assert [s.block for s in layout.segments] == ["items.0:8", "items.8:16", "items.16:32"]
    assert [layout.head_holders(k) for k in range(3)] == [(0, 1, 2), (1, 2), (2,)]
