"""FedPerGNN is its paper told naively, client by client; pseudo items look like real ones on average only."""

import pytest
import torch
from torch import nn

from privfed.federation import Call
from privfed.methods import method
from privfed.methods.fedpergnn.pseudo import with_pseudo_items
from privfed.methods.shared.local_training import draw_samples
from privfed.methods.shared.samples import touched_rows
from privfed.testing import check_method

SETTINGS = {"dim": 5, "negatives": 3, "pseudo_items": 0, "server_optimiser": "sgd", "server_lr": 0.5}


def naive_logits(c, p, user, history, items):
    """One client's network, layer by layer."""

    def layer(name, x):
        y = x @ p[f"{name}.weight"] + p[f"{name}.bias"]
        return y.sigmoid() if c.activation == "sigmoid" and name in {"history", "user", "candidate"} else y

    z, own, q = layer("history", history), layer("user", user)[0], layer("candidate", items)
    raw = torch.stack([torch.cat([own, key]) @ p["attention.weight"] for key in layer("neighbour", z)])[:, 0]
    attention = nn.functional.leaky_relu(raw + p["attention.bias"][0], 0.3).softmax(0)
    graph = layer("merge", torch.cat([attention @ z, own]))[0]
    if c.predictor == "dot":
        return q @ graph
    return torch.stack([(torch.cat([graph, one]) @ p["output.weight"] + p["output.bias"][0])[0] for one in q])


@pytest.mark.parametrize(("predictor", "activation"), [("dot", "identity"), ("additive", "sigmoid")])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_one_round_of_a_naive_loop(world, predictor, activation, clip):
    w = world("fedpergnn", predictor=predictor, activation=activation, gradient_clip=clip, **SETTINGS)
    c, users = w.clients.config, torch.arange(w.data.n_users)
    samples = draw_samples(w.clients.sampler, Call(0, 0, "train", 0, users, w.streams, w.server.schema))
    before = {name: value.double() for name, value in w.server.parameters.items()}
    vectors = w.clients.state()["user"].double()
    total, moved = {name: torch.zeros_like(value) for name, value in before.items()}, []
    for user in users.tolist():
        p = {name: value.clone().requires_grad_() for name, value in before.items()}
        own, mine = vectors[user].clone().requires_grad_(), samples.owner == user
        history = p["items"][torch.from_numpy(w.data.positives.items_of(user))]
        z = naive_logits(c, p, own, history, p["items"][samples.items[mine]])
        nn.functional.binary_cross_entropy_with_logits(z, samples.labels[mine].double()).backward()
        norm = sum(value.grad.square().sum() for value in p.values()).sqrt()
        keep = 1.0 if clip is None else min(1.0, clip / norm)
        for name, value in p.items():
            total[name] -= keep * value.grad
        moved.append(vectors[user] - c.user_lr * own.grad)
    w.train(1)
    for name, value in before.items():
        found, wanted = w.server.parameters[name].double(), value + 0.5 * total[name] / len(users)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(w.clients.state()["user"].double(), torch.stack(moved), rtol=1e-4, atol=1e-5)


def test_the_released_predictor_ranks_items_alike_for_everybody(world):
    w = world("fedpergnn", predictor="additive", activation="sigmoid", dim=5).train(2)
    scores = w.clients.score(torch.arange(9), w.server.public(), None, None)
    torch.testing.assert_close(scores - scores[:, :1], (scores - scores[:, :1])[:1].expand(9, -1), rtol=0, atol=1e-5)


def test_longer_histories_are_cut_to_one_draw(world):
    w = world("fedpergnn", max_history=4, dim=5)
    users = torch.arange(w.data.n_users)
    graphs = w.clients._graphs(users)
    for user in users.tolist():
        mine, kept = w.data.positives.items_of(user), graphs.items[user][graphs.present[user]].tolist()
        assert len(kept) == min(4, len(mine)) == len(set(kept))
        assert set(kept) <= set(mine.tolist())
    assert w.clients._graphs(users).items.equal(graphs.items)


def test_pseudo_items_have_the_mean_and_covariance_of_real_gradients(world):
    w = world("fedpergnn", dim=3)
    call = Call(0, 0, "train", 0, torch.arange(1, 4), w.streams, w.server.schema)
    rows = touched_rows(draw_samples(w.clients.sampler, call), w.data.n_items)
    far = 4000
    gradients = torch.randn(len(rows.ids), 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2, 0.1])
    gradients += torch.tensor([5.0, 0, -1])
    owner, ids, values = with_pseudo_items(call, rows, gradients, far, 2000)
    key, real = owner * far + ids, rows.owner * far + rows.ids
    assert (key.diff() > 0).all()
    made_up = ~torch.isin(key, real)
    assert torch.bincount(owner[made_up]).tolist() == [2000, 2000, 2000]
    assert values[~made_up].equal(gradients)
    for client in range(3):
        mine, theirs = gradients[rows.owner == client], values[made_up & (owner == client)]
        torch.testing.assert_close(theirs.mean(0), mine.mean(0), rtol=0.05, atol=0.15)
        torch.testing.assert_close(theirs.T.cov(), mine.T.cov(correction=0), rtol=0.2, atol=0.15)


def test_no_more_pseudo_items_than_there_are(world):
    w = world("fedpergnn", pseudo_items=1000, dim=3)
    call = Call(0, 0, "train", 0, torch.arange(5), w.streams, w.server.schema)
    sent = w.clients.train(call, w.server.public())
    assert sent.parts[0].ids.equal(torch.arange(w.data.n_items).repeat(5))


def test_as_published_it_keeps_the_contract():
    check_method(method("fedpergnn"), **method("fedpergnn").presets["published"].settings)
