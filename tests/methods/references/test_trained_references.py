"""MF, NeuMF, LightGCN, SGL, LogMF, RecVAE and CentDAE: equal to naive ones, and lists that leave once."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence
from torch.nn import functional

from privfed.api.data import load
from privfed.api.running import configured
from privfed.cli.settings import run_config
from privfed.data import Histories
from privfed.engines.transcript import Transcript
from privfed.experiment import Experiment
from privfed.federation import SERVER, Purpose, Streams
from privfed.methods import PublicInfo, method
from privfed.methods.references.centdae import mixed
from privfed.methods.references.lightgcn.graph import Edges
from privfed.methods.references.logmf.model import Side, item_gradient, user_gradient
from privfed.methods.references.neumf import model as neumf
from privfed.methods.references.recvae import model as recvae
from privfed.methods.references.sgl.server import contrast
from privfed.methods.references.shared.rows import dropped, epoch_of_rows, multinomial
from privfed.methods.references.shared.training import DivergedError, Draws
from privfed.methods.references.shared.triples import epoch_of_triples, ranking_loss
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from privfed.testing import check_method

SMALL = {
    "mf": {"dim": 4, "batch_size": 64},
    "neumf": {"dim": 4, "mlp_dim": 4, "hidden": [6, 3], "batch_size": 64},
    "lightgcn": {"dim": 4, "batch_size": 64, "layers": 2},
    "sgl": {"dim": 4, "batch_size": 64, "layers": 2},
    "logmf": {"dim": 4},
    "recvae": {"latent": 4, "hidden": 6, "depth": 3, "batch_size": 16, "encoder_epochs": 2},
    "centdae": {"latent": 4, "hidden": [6], "batch_size": 16},
}
OWN_VECTORS = ("mf", "neumf", "lightgcn", "sgl", "logmf")
"""Methods that send each device a vector of its own."""
ALL = pytest.mark.parametrize("name", SMALL)


@pytest.fixture
def lists():
    """Nine users and twelve items; two users have nothing, and two items nobody."""
    taken = np.random.default_rng(5).random((9, 12)) < 0.35
    taken[[0, 7]], taken[:, [3, 11]] = False, False
    return Histories.from_pairs(*taken.nonzero(), 9, 12)


def draws(t=0):
    return Draws(Streams.from_seed(1), t)


def matrix(histories):
    return torch.from_numpy(histories.mask(np.arange(histories.n_users))).double()


def server_of(name, histories, **settings):
    """A server that has collected `histories`."""
    registered = method(name)
    info = PublicInfo(histories.n_users, histories.n_items)
    server = registered.training.server(registered.config(**SMALL[name] | settings), info, Streams.from_seed(3))
    server.keep(histories)
    return server


def same_bits(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) for name in found)


# The contract


@ALL
def test_it_keeps_the_contract(name):
    check_method(method(name), **SMALL[name])


@pytest.mark.parametrize(
    ("name", "rounds"), [*((name, 30) for name in [*SMALL, "multvae"]), ("ials", 16), ("eals", 16), ("ease", 1)]
)
def test_unasked_a_reference_is_trained_for_as_long_as_its_settings_were_chosen_for(name, rounds):
    assert run_config([{"method": {"name": name}}])[0].rounds == rounds
    assert configured(name, load("synthetic-small"), {}, rounds=None, protocol="honest").rounds == rounds


@ALL
def test_every_list_leaves_in_round_0_and_nothing_later(world, name):
    everybody = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world(name, transcript=everybody, **SMALL[name]).train(3)
    assert [o.round for o in w.simulation.transcript.joined("wire")] == [0]
    truth = torch.from_numpy(w.data.positives.mask(np.arange(45))).float()
    assert w.simulation.transcript.joined("wire")[0].tensors["history"][:, :, 0].equal(truth)
    assert set(w.server.public().personal) == ({"user"} if name in OWN_VECTORS else set())
    assert not [key for key in w.server.public().shared if key.startswith(("lists", "optimisers", "squares", "prior"))]


@ALL
@pytest.mark.parametrize("plan", ["none:release=total", "central-gaussian:clip_norm=1,noise_multiplier=1"])
def test_plans_that_hide_uploads_refuse_it(few_users, name, plan):
    config = ExperimentConfig(method={"name": name, **SMALL[name]}, privacy=PrivacyPlan.parse(plan), rounds=1)
    with pytest.raises(PlanError, match="whole interaction list, and would see only a sum"):
        Experiment(config, few_users)


@ALL
def test_only_the_cohort_of_round_0_is_learned_from_under_its_pseudonyms(world, name):
    w = world(name, plan="none:sampling.kind=poisson,sampling.rate=0.4", **SMALL[name]).train(2)
    members = w.simulation.members(0)
    assert 0 < len(members) < 45
    outside = np.setdiff1d(np.arange(45), members)
    assert (w.server.lists.counts[outside] == 0).all()
    found, wanted = w.server.lists.subset(members.numpy()), w.data.positives.subset(members.numpy())
    assert (found.pairs(70) == wanted.pairs(70)).all()
    if name in OWN_VECTORS:
        assert not w.server.public().personal["user"][outside].any()
        scores = w.clients.score(members, w.server.public().addressed_to(members), None, None)
        assert not scores.equal(w.server.public().shared["popularity"].expand_as(scores))


@ALL
def test_an_empty_cohort_teaches_nothing(world, name):
    w = world(name, plan="none:sampling.kind=poisson,sampling.rate=0.0001", **SMALL[name])
    assert not len(w.simulation.members(0))
    start = w.server.state()
    same_bits(w.train(2).server.state(), start)
    everybody = torch.arange(45)
    assert w.clients.score(everybody, w.server.public().addressed_to(everybody), None, None).isfinite().all()


@pytest.mark.parametrize("name", OWN_VECTORS)
def test_users_without_history_get_what_is_popular(world, name, lists):
    server, users = server_of(name, lists), torch.tensor([0, 7, 2])
    server.epoch(lists, draws())
    message = server.published(lists).addressed_to(users)
    clients = world(name, **SMALL[name]).clients
    model, rows = {**message.shared, **message.personal}, clients.rows.select(users)
    found = clients.predict(type(rows)(rows.owner, rows.items % 12, rows.counts, 12), model)
    popularity = torch.from_numpy(lists.popularity() / lists.popularity().max()).float()
    torch.testing.assert_close(found[:2], popularity.expand(2, -1))
    assert not found[2].allclose(popularity)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "logmf"])
def test_divergence_is_said_in_one_sentence(world, name):
    known = rf"^training of {name} diverged: its loss is .*; lower its lr, now 1e\+30, and start again$"
    with pytest.raises(DivergedError, match=known):
        world(name, **SMALL[name] | {"lr": 1e30}).train(4)


@ALL
def test_no_two_tensors_of_a_checkpoint_share_memory(world, name):
    server = world(name, **SMALL[name]).train(1).server
    places = [value.untyped_storage().data_ptr() for value in server.state().values() if value.numel()]
    assert len(places) == len(set(places))


# The trainer


def test_an_epoch_has_every_interaction_once_and_negatives_that_the_user_has_not(lists):
    batches = list(epoch_of_triples(lists, 3, 8, draws()))
    assert [len(batch.users) for batch in batches][:-1] == [8] * (len(batches) - 1)
    users, items = (torch.cat([getattr(b, side) for b in batches]) for side in ("users", "items"))
    assert sorted((users * 12 + items[:, 0]).tolist()) == lists.pairs(12).tolist()
    assert not matrix(lists)[users.unsqueeze(1), items[:, 1:]].any()
    assert users.tolist() != sorted(users.tolist())


def test_negatives_are_drawn_evenly_from_what_is_left():
    one = Histories.from_pairs(np.zeros(2, np.int64), np.array([1, 4]), 1, 6)
    drawn = torch.cat([batch.items[:, 1:] for t in range(20) for batch in epoch_of_triples(one, 50, 8, draws(t))])
    counts = torch.bincount(drawn.flatten(), minlength=6)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert counts[[0, 2, 3, 5]].numpy() == pytest.approx(500, abs=80)


def test_draws_differ_by_call_and_round_and_repeat_by_address():
    one, other = draws(), draws()
    words = [one.words(4).tolist() for _ in range(2)]
    assert words == [other.words(4).tolist() for _ in range(2)]
    assert words[0] != words[1]
    assert draws(1).words(4).tolist() != words[0]
    assert sorted(draws().order(9).tolist()) == list(range(9))
    assert float(draws().kept(20_000, 0.3).float().mean()) == pytest.approx(0.7, abs=0.02)


def test_losses_are_those_of_torch():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = -functional.logsigmoid(logits[:, :1] - logits[:, 1:]).mean()
    torch.testing.assert_close(ranking_loss("bpr", logits), wanted)
    labels = torch.eye(4, dtype=torch.float64)[0].expand(5, 4)
    wanted = functional.binary_cross_entropy_with_logits(logits, labels)
    torch.testing.assert_close(ranking_loss("bce", logits), wanted)


@pytest.mark.parametrize("name", ["mf", "lightgcn"])
def test_an_epoch_equals_plain_torch(name, lists):
    """Oracle: one embedding module for each side, the graph as a dense matrix, and torch's Adam."""
    server = server_of(name, lists, lr=0.02, regularisation=0.01, batch_size=8)
    table = server.parameters["vectors"].clone().double().requires_grad_()
    adam, graph = torch.optim.Adam([table], lr=0.02), dense_mean(lists, 2 if name == "lightgcn" else 0)
    for t in (0, 1):
        for batch in epoch_of_triples(lists, 1, 8, draws(t)):
            final, users, (ours, drawn) = graph @ table, 12 + batch.users, batch.items.T
            better = (final[users] * final[ours]).sum(1) - (final[users] * final[drawn]).sum(1)
            lengths = sum(table[nodes].square().sum() for nodes in (users, ours, drawn)) / len(users)
            adam.zero_grad()
            (functional.softplus(-better).mean() + 0.005 * lengths).backward()
            adam.step()
        server.epoch(lists, draws(t))
    torch.testing.assert_close(server.parameters["vectors"].double(), table.detach(), rtol=1e-4, atol=1e-5)
    message = server.published(lists)
    wanted = (graph @ table).detach()
    torch.testing.assert_close(message.shared["items"].double(), wanted[:12], rtol=1e-4, atol=1e-5)
    some = torch.from_numpy(lists.counts > 0)
    torch.testing.assert_close(message.personal["user"].double()[some], wanted[12:][some], rtol=1e-4, atol=1e-5)


# LightGCN and SGL


def dense_mean(lists, layers):
    """The mean over 0 to L powers of the normalised adjacency matrix of items and users, in float64."""
    x, (users, items) = matrix(lists), (lists.n_users, lists.n_items)
    adjacency = torch.zeros(items + users, items + users, dtype=torch.float64)
    adjacency[:items, items:], adjacency[items:, :items] = x.T, x
    root = adjacency.sum(1).clamp(min=1).rsqrt()
    step = root.unsqueeze(1) * adjacency * root
    return sum((torch.linalg.matrix_power(step, l) for l in range(layers + 1)), 0 * step) / (layers + 1)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_propagation_is_that_of_the_dense_matrix_and_so_is_its_gradient(lists, layers):
    table = torch.randn(21, 5, generator=torch.Generator().manual_seed(0))
    wanted_of = dense_mean(lists, layers)
    one, other = table.clone().requires_grad_(), table.double().requires_grad_()
    found, wanted = Edges(lists).graph(layers).propagate(one), wanted_of @ other
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    found.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-5, atol=1e-6)
    assert Edges(lists).graph(layers).propagate(table).equal(found.detach())


def test_a_graph_without_some_edges_is_the_graph_of_the_rest(lists):
    kept = torch.arange(len(lists)) % 3 != 0
    rest = Histories.from_pairs(lists.owners[kept.numpy()], lists.items[kept.numpy()], 9, 12)
    table = torch.randn(21, 5, generator=torch.Generator().manual_seed(0))
    found = Edges(lists).graph(2, kept).mean(table)
    assert found.equal(Edges(rest).graph(2).mean(table))
    torch.testing.assert_close(found.double(), dense_mean(rest, 2) @ table.double(), rtol=1e-5, atol=1e-6)


def test_contrast_is_the_mean_over_a_batch_that_names_nodes_twice():
    one, other = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    batch = torch.tensor([4, 1, 4, 4, 0])
    wanted = 0.0
    for node in batch:
        cosines = functional.cosine_similarity(one[node].unsqueeze(0), other) / 0.3
        wanted += float(cosines.logsumexp(0) - cosines[node]) / 5
    assert float(contrast(one, other, batch, 0.3)) == pytest.approx(wanted, rel=1e-5)


def test_sgl_draws_two_views_in_every_pass_and_adds_their_contrast(lists):
    server = server_of("sgl", lists, dropout=0.4, contrast=0.7, temperature=0.3, batch_size=100)
    views = []
    for t in (0, 1):
        server.epoch(lists, draws(t))
        views += server.views
    edges = [view.to_users.sources.tolist() for view in views]
    assert len({tuple(own) for own in edges}) == 4
    assert 0 < min(map(len, edges)) < max(map(len, edges)) < len(lists)
    vectors, batch = server.parameters["vectors"], next(epoch_of_triples(lists, 1, 100, draws()))
    plain = super(type(server), server).loss(vectors, batch)
    one, other = (view.mean(vectors) for view in server.views)
    both = contrast(one[12:], other[12:], batch.users, 0.3) + contrast(one[:12], other[:12], batch.items[:, 0], 0.3)
    torch.testing.assert_close(server.loss(vectors, batch), plain + 0.7 * both)


# NeuMF


class NaiveNeuMF(nn.Module):
    """NeuMF of one user and one item, as anybody would write it."""

    def __init__(self, config, parameters):
        super().__init__()
        self.config, self.linear = config, nn.ModuleDict()
        for name in config.layers:
            weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
            layer = nn.Linear(*weight.shape)
            layer.load_state_dict({"weight": weight.T, "bias": bias})
            self.linear[name.replace(".", "_")] = layer

    def forward(self, user, item):
        h = torch.cat([user[self.config.dim :], item[self.config.dim :]])
        for j in range(len(self.config.hidden)):
            h = torch.relu(self.linear[f"layer_{j}"](h))
        both = torch.cat([user[: self.config.dim] * item[: self.config.dim], h])
        return self.linear["score"](both)[0]


def test_neumf_scores_are_those_of_one_pair_after_the_other(lists):
    server = server_of("neumf", lists, initial_scale=1.0)
    naive = NaiveNeuMF(server.config, server.parameters)
    users, items = server.parameters["users"], server.parameters["items"]
    wanted = torch.stack([torch.stack([naive(user, item) for item in items]) for user in users]).detach()
    found = neumf.logits(server.config, server.parameters, users.unsqueeze(1), items.unsqueeze(0))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    batch = next(epoch_of_triples(lists, 2, 8, draws()))
    wanted = ranking_loss("bce", wanted[batch.users.unsqueeze(1), batch.items])
    torch.testing.assert_close(server.loss(server.parameters, batch), wanted, rtol=1e-4, atol=1e-5)


def test_devices_score_a_few_at_a_time(world, monkeypatch):
    w, users = world("neumf", **SMALL["neumf"]).train(1), torch.arange(45)
    message = w.server.public().addressed_to(users)
    together = w.clients.score(users, message, None, None)
    monkeypatch.setattr("privfed.methods.references.neumf._VALUES_AT_ONCE", 3 * 70 * 6)
    torch.testing.assert_close(w.clients.score(users, message, None, None), together, rtol=1e-5, atol=1e-6)


# LogMF


def likelihood(users, items, x, alpha, reg):
    """As the paper writes it, all pairs at once."""
    z = users.vectors @ items.vectors.T + users.biases.unsqueeze(1) + items.biases
    value = (alpha * x * z - (1 + alpha * x) * functional.softplus(z)).sum()
    return value - reg / 2 * (users.vectors.square().sum() + items.vectors.square().sum())


def sides(lists, dim=3):
    generator = torch.Generator().manual_seed(2)
    sizes = (lists.n_users, lists.n_items)
    return [Side(*(torch.randn(*shape, generator=generator) for shape in ((n, dim), (n,)))) for n in sizes]


@pytest.mark.parametrize("at_once", [1, 40, 2**22])
def test_logmf_gradients_are_those_of_the_likelihood(monkeypatch, lists, at_once):
    monkeypatch.setattr("privfed.methods.references.logmf.model._PAIRS_AT_ONCE", at_once)
    users, items = sides(lists)
    tracked = [Side(*(part.double().requires_grad_() for part in side)) for side in (users, items)]
    likelihood(*tracked, matrix(lists), 2.5, 0.3).backward()
    for found, side in zip((user_gradient, item_gradient), tracked, strict=True):
        by_side = found(users, items, lists, 2.5, 0.3)
        for part, wanted in zip(by_side, side, strict=True):
            torch.testing.assert_close(part.double(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_logmf_takes_steps_of_adagrad_users_first(lists):
    server = server_of("logmf", lists, alpha=2.0, reg=0.1, gamma=0.5)
    tensors = {name: value.double() for name, value in server.parameters.items() if not name.startswith("squares")}
    squares = {name: torch.zeros_like(value) for name, value in tensors.items()}
    for _ in range(3):
        for side in ("users", "items"):
            tracked = {name: value.clone().requires_grad_() for name, value in tensors.items()}
            both = [Side(tracked[f"{s}.vectors"], tracked[f"{s}.biases"]) for s in ("users", "items")]
            likelihood(*both, matrix(lists), 2.0, 0.1).backward()
            for name in (f"{side}.vectors", f"{side}.biases"):
                squares[name] += tracked[name].grad ** 2
                tensors[name] = tensors[name] + 0.5 * tracked[name].grad / squares[name].sqrt()
        server.epoch(lists, draws())
    for name, wanted in tensors.items():
        torch.testing.assert_close(server.parameters[name].double(), wanted, rtol=1e-3, atol=1e-4)
    message = server.published(lists)
    z = tensors["users.vectors"] @ tensors["items.vectors"].T + tensors["users.biases"].unsqueeze(1)
    wanted = (z + tensors["items.biases"])[torch.from_numpy(lists.counts > 0)]
    found = (message.personal["user"] @ message.shared["items"].T)[torch.from_numpy(lists.counts > 0)]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-3)


def test_logmf_weighs_interactions_like_zeros_unless_it_is_told(lists):
    ones = len(lists)
    assert method("logmf").config(alpha=None).weight(lists) == pytest.approx((9 * 12 - ones) / ones)
    assert method("logmf").config(alpha=3.0).weight(lists) == 3.0


# Autoencoders


def rows_of(lists):
    (rows,) = epoch_of_rows(lists, None, draws())
    return rows


def test_rows_come_once_without_those_of_users_who_have_nothing(lists):
    batches = list(epoch_of_rows(lists, 3, draws()))
    assert [len(rows.counts) for rows in batches] == [3, 3, 1]
    found = sorted(items.tolist() for rows in batches for items in rows.items.split(rows.counts.tolist()))
    assert found == sorted(lists.items_of(user).tolist() for user in range(9) if user not in (0, 7))


def test_multinomial_is_the_log_softmax_of_own_items(lists):
    rows = rows_of(lists)
    logits = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))
    chances = logits.softmax(1).log()
    wanted = [float(chances[u, own].sum()) for u, own in enumerate(rows.items.split(rows.counts.tolist()))]
    torch.testing.assert_close(multinomial(logits, rows), torch.tensor(wanted))


def test_the_composite_prior_is_a_mixture_of_normals():
    """Oracle: torch.distributions, coordinate by coordinate."""
    z, mean, log_variance = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    mixture = (0.2, 0.5, 0.3)
    means = torch.stack([torch.zeros_like(z), mean, torch.zeros_like(z)], -1)
    deviations = torch.stack([torch.ones_like(z), (log_variance / 2).exp(), torch.full_like(z, math.exp(5))], -1)
    weights = Categorical(torch.tensor(mixture).expand(5, 4, 3))
    wanted = MixtureSameFamily(weights, Normal(means, deviations)).log_prob(z)
    torch.testing.assert_close(recvae.log_prior(z, mean, log_variance, mixture), wanted)
    torch.testing.assert_close(
        recvae.log_normal(z, mean, log_variance), Normal(mean, (log_variance / 2).exp()).log_prob(z)
    )


def naive_posterior(depth, encoder, x):
    """The encoder on dense rows, one skip connection after the other."""
    outputs = []
    for j in range(depth):
        linear = (x if not j else outputs[-1]) @ encoder[f"{j}.weight"] + encoder[f"{j}.bias"]
        for earlier in outputs:
            linear = linear + earlier
        swished = linear * torch.sigmoid(linear)
        centred = swished - swished.mean(1, keepdim=True)
        normed = centred / (centred.square().mean(1, keepdim=True) + 0.1).sqrt()
        outputs.append(normed * encoder[f"{j}.gain"] + encoder[f"{j}.shift"])
    return (outputs[-1] @ encoder[f"{depth}.weight"] + encoder[f"{depth}.bias"]).chunk(2, 1)


def test_recvae_has_the_loss_of_its_paper(lists):
    server = server_of("recvae", lists, gamma=0.02)
    generator = torch.Generator().manual_seed(4)
    parameters = {k: v + 0.3 * torch.randn(v.shape, generator=generator) for k, v in server.parameters.items()}
    rows = rows_of(lists)
    read, noise = dropped(rows, 0.5, draws(3)), torch.randn(7, 4, generator=generator)
    encoder, prior = (
        {name.removeprefix(part): value for name, value in parameters.items() if name.startswith(part)}
        for part in ("encoder.", "prior.")
    )
    x = torch.zeros(7, 12)
    x[rows.owner, rows.items] = 1
    mean, log_variance = naive_posterior(3, encoder, read.dense()[:, 0])
    former = naive_posterior(3, prior, functional.normalize(x))
    z = mean + noise * (log_variance / 2).exp()
    logits = z @ parameters["decoder.0.weight"].T + parameters["decoder.0.bias"]
    divergence = Normal(mean, (log_variance / 2).exp()).log_prob(z) - recvae.log_prior(z, *former, (0.15, 0.75, 0.1))
    wanted = -(x * logits.log_softmax(1)).sum(1) + 0.02 * x.sum(1) * divergence.sum(1)
    found = recvae.loss(server.config, parameters, read, noise)
    torch.testing.assert_close(found, wanted.mean(), rtol=1e-4, atol=1e-4)


def test_recvae_trains_encoder_and_decoder_in_turns(lists, monkeypatch):
    server, seen = server_of("recvae", lists, batch_size=4), []
    descend = type(server).descend

    def watched(self, loss, *batch, part=""):
        before = dict(self.parameters)
        descend(self, loss, *batch, part=part)
        moved = {name for name, value in self.parameters.items() if not value.equal(before[name])}
        assert moved
        assert all(name.startswith(part) for name in moved)
        seen.append(part)

    monkeypatch.setattr(type(server), "descend", watched)
    server.epoch(lists, draws())
    assert seen == ["encoder."] * 4 + ["decoder."] * 2
    same = recvae.as_prior(server.parameters)
    assert all(server.parameters[name].equal(value) for name, value in same.items())


def test_centdae_mixes_two_encoders_that_start_apart_by_a_gate_on_the_row(lists):
    server, rows = server_of("centdae", lists), rows_of(lists)
    p, read = server.parameters, dropped(rows, 0.0, draws())
    assert not p["encoder.0.weight"].equal(p["second.0.weight"])
    x, outputs = read.dense()[:, 0], []
    for encoder in ("encoder", "second"):
        h = torch.tanh(x @ p[f"{encoder}.0.weight"] + p[f"{encoder}.0.bias"])
        outputs.append(h @ p[f"{encoder}.1.weight"] + p[f"{encoder}.1.bias"])
    gate = torch.softmax(x @ p["gate.weight"] + p["gate.bias"], 1)
    assert float(gate.min()) > 0
    (m1, v1), (m2, v2) = (output.chunk(2, 1) for output in outputs)
    mean = gate[:, :1] * m1 + gate[:, 1:] * m2
    variance = gate[:, :1] ** 2 * v1.exp() + gate[:, 1:] ** 2 * v2.exp()
    found = mixed(server.architecture, p, read)
    torch.testing.assert_close(found.mean, mean, rtol=1e-4, atol=1e-5)
    standard = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    wanted = kl_divergence(Independent(Normal(mean, variance.sqrt()), 1), standard)
    torch.testing.assert_close(found.divergence(), wanted, rtol=1e-4, atol=1e-5)
    noise = draws(1).normal(7, 4)
    z = mean + noise * variance.sqrt()
    h = torch.tanh(z @ p["decoder.0.weight"] + p["decoder.0.bias"])
    logits = h @ p["decoder.1.weight"].T + p["decoder.1.bias"]
    server.optimisers[""].steps = 10**6
    likelihoods = multinomial(logits, rows)
    found = server.loss(p, read, noise)
    torch.testing.assert_close(found, (server.config.beta_cap * wanted - likelihoods).mean(), rtol=1e-4, atol=1e-4)


# What they are good for


def test_the_server_keeps_a_key_of_its_own(world):
    server, root = world("mf", **SMALL["mf"]).server, Streams.from_seed(3)
    own = Streams(server._key, simulated=True)
    for user in (SERVER, 0, 44):
        mine, theirs = (s.words(Purpose.SAMPLES, 0, 0, [user], 8).tolist() for s in (own, root))
        assert mine != theirs
