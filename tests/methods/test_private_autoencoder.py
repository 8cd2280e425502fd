"""`private-autoencoder` equals the same told naively: one device at a time, autograd, whole weights, torch's Adam."""

import math

import numpy as np
import pytest
import torch

from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Cohort, Message, Streams, Total
from privfed.methods import PublicInfo
from privfed.methods.private_autoencoder import PrivateAutoencoderConfig, PrivateAutoencoderServer
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import LowRank

HEAD, DIM = 30, 4
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=0.2,delta=0.001"


@pytest.fixture(scope="module")
def run(small_split):
    """Trained a little, under some noise, so that weights are large enough to tell."""
    config = ExperimentConfig(
        data="synthetic-tests",
        method={"name": "private-autoencoder", "head": HEAD, "dim": DIM, "steps": 4, "initial_scale": 0.4, "lr": 0.1},
        privacy=PrivacyPlan.parse(CENTRAL), protocol=Protocol(k=(5,), state="received"), rounds=1, seed=4,
        taps=TapConfig(places=()), fidelity="analytic",
    )  # fmt: skip
    e = Experiment(config, small_split)
    e.run()
    return e


def row(train, user, head):
    own = set(train.items_of(user).tolist())
    return torch.tensor([float(item in own) for item in head.tolist()], dtype=torch.float64)


def logits(x, weights, bias):
    encoder, decoder = weights
    return bias + decoder @ torch.tanh(encoder.T @ (x / x.norm()))


def naive(train, user, state):
    """The unit step down the gradient of both layers, and the head's scores."""
    x = row(train, user, state["head"])
    weights = [state[name].double().requires_grad_() for name in ("encoder", "decoder")]
    if not x.any():
        return [torch.zeros_like(w) for w in weights], None
    scores = logits(x, weights, state["bias"].double())
    (-(x * torch.log_softmax(scores, 0)).sum()).backward()
    length = math.sqrt(sum(float(w.grad.square().sum()) for w in weights))
    return [-w.grad / length for w in weights], scores.detach()


def sent(e, users):
    call = Call(0, 0, "train", 1, users, Streams.from_seed(0), e.server.schema)
    return e.clients.train(call, e.server.public())


def test_updates_and_scores_are_those_of_naive_devices(run, small_split):
    users = torch.arange(45)
    found, state = sent(run, users).materialise(users), run.server.state()
    scores = run.clients.score(users, run.server.public(), None, None).double()
    for user in range(45):
        updates, wanted = naive(small_split.train, user, state)
        for name, update in zip(("encoder", "decoder"), updates, strict=True):
            torch.testing.assert_close(found[name][user].double(), update, rtol=1e-4, atol=1e-6)
        if wanted is not None:
            torch.testing.assert_close(scores[user, state["head"]], wanted, rtol=1e-4, atol=1e-4)


def test_nobody_forms_the_weights_of_a_device(run):
    updates = sent(run, torch.arange(45))
    assert all(isinstance(part, LowRank) and part.left.shape[1] == 1 for part in updates.parts)
    assert {part.block for part in updates.parts} == {"encoder", "decoder"}


def test_every_update_is_exactly_as_long_as_its_share(run, small_split):
    head = set(run.server.state()["head"].tolist())
    known = torch.tensor([bool(head & set(small_split.train.items_of(user).tolist())) for user in range(45)])
    norms = sent(run, torch.arange(45)).norms(2)
    share = math.sqrt(0.9 / 4)
    assert norms.max() <= share
    assert norms[known].min() == pytest.approx(share, rel=1e-6)
    assert (norms[~known] == 0).all()


class Replay:
    """A federation that answers with sums that were drawn beforehand."""

    def __init__(self, popularity, sums):
        self.popularity, self.sums, self.messages = popularity, iter(sums), []

    def sample_cohort(self, round):
        return Cohort(round, 0, "all", 45.0)

    def aggregate(self, step, cohort, message: Message, schema):
        self.messages.append(dict(message.shared))
        return Total({"popularity": self.popularity} if step == "popularity" else next(self.sums), 45.0)


def test_the_server_is_torchs_adam_along_the_mean_and_its_bias_is_fixed_log_popularity():
    rng = torch.Generator().manual_seed(0)
    popularity = torch.rand(70, 1, generator=rng) * 20 - 4
    sums = [{name: torch.randn(HEAD, DIM, generator=rng) for name in ("encoder", "decoder")} for _ in range(5)]
    config = PrivateAutoencoderConfig(head=HEAD, dim=DIM, steps=5, lr=0.03)
    server = PrivateAutoencoderServer(config, PublicInfo(45, 70), Streams.from_seed(1))
    start = {name: value.clone() for name, value in server.state().items()}
    federation = Replay(popularity, sums)
    server.round(federation, 0)
    weights = {name: start[name].clone().requires_grad_() for name in ("encoder", "decoder")}
    adam = torch.optim.Adam(weights.values(), lr=0.03, betas=(config.first_beta, config.second_beta))
    for step in sums:
        for name, value in weights.items():
            value.grad = -step[name] / 45
        adam.step()
    for name, value in weights.items():
        torch.testing.assert_close(server.state()[name], value.detach(), rtol=1e-4, atol=1e-6)
    head = np.argsort(-popularity[:, 0].numpy(), kind="stable")[:HEAD]
    floored = popularity[head, 0].clamp(min=0.5)
    torch.testing.assert_close(server.state()["bias"], (floored / floored.sum()).log())
    assert server.state()["head"].tolist() == head.tolist()
    assert all(message["bias"].equal(server.state()["bias"]) for message in federation.messages[1:])
    assert server.state()["encoder"].std() > 0


def test_initial_weights_are_public_and_as_wide_as_they_are_set():
    config = PrivateAutoencoderConfig(head=400, dim=8, initial_scale=0.05)
    server, same = (PrivateAutoencoderServer(config, PublicInfo(45, 700), Streams.from_seed(1)) for _ in range(2))
    state = server.state()
    assert float(state["encoder"].std()) == pytest.approx(0.05, rel=0.1)
    assert float(state["decoder"].std()) == pytest.approx(0.05, rel=0.1)
    assert not state["encoder"].equal(state["decoder"])
    assert state["encoder"].equal(same.state()["encoder"])
