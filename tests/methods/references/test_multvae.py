"""Mult-VAE: the same steps as torch's own modules, rows that leave once and only where a plan shows them, learning."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from privfed.audit.attack_runs.attack_run import attack_trained
from privfed.data import Histories, SplitSpec, SyntheticSpec, generate, split
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import SERVER, Call, Purpose, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.references.multvae import METHOD
from privfed.methods.references.multvae.model import inputs
from privfed.methods.references.multvae.server import DivergedError
from privfed.privacy import Ledger, PlanError, PrivacyPlan, configure
from privfed.setup.config import ExperimentConfig, TapConfig

SMALL = {"latent": 4, "hidden": [6], "batch_size": 16}


def experiment(parts, plan="none", rounds=5, places=("raw", "wire"), protocol=None, **settings):
    config = ExperimentConfig(
        data="synthetic-tests",
        method={"name": "multvae", **(SMALL | settings)},
        privacy=PrivacyPlan.parse(plan),
        protocol=protocol or Protocol(k=(5,)),
        rounds=rounds,
        evaluate_every=rounds,
        checkpoint_every=2,
        taps=TapConfig(places=places, users=40, rounds=(0,)),
    )
    return Experiment(config, parts)


def same_bits(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) for name in found)


# The same, with torch's own modules


class Naive(nn.Module):
    """Mult-VAE as anybody would write it."""

    def __init__(self, n_items, latent, hidden):
        super().__init__()
        self.latent = latent
        ends = {"encoder": [n_items, *hidden, 2 * latent], "decoder": [latent, *reversed(hidden), n_items]}
        for name, widths in ends.items():
            layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
            setattr(self, name, nn.ModuleList(layers))

    def forward(self, x, noise):
        for name in ("encoder", "decoder"):
            for j, layer in enumerate(getattr(self, name)):
                x = layer(torch.tanh(x) if j else x)
            if name == "encoder":
                mean, log_variance = x[:, : self.latent], x[:, self.latent :]
                x = mean + noise * torch.exp(0.5 * log_variance)
        return x, mean, log_variance

    def copy_from(self, parameters):
        last = f"decoder.{len(self.decoder) - 1}.weight"
        flipped = {k: v.T if k.endswith("weight") and k != last else v for k, v in parameters.items()}
        self.load_state_dict(flipped)
        return self

    def parameters_by_name(self):
        last = f"decoder.{len(self.decoder) - 1}.weight"
        return {k: v.T if k.endswith("weight") and k != last else v for k, v in self.state_dict().items()}


def own_draws(seed):
    return Streams(Streams.from_seed(seed).words(Purpose.SAMPLES, 0, 0, [SERVER], 8).tobytes(), simulated=True)


@pytest.mark.parametrize("batch_size", [16, None])
@pytest.mark.parametrize("hidden", [(), (7, 5)])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_gradient_steps_equal_those_of_plain_torch(world, hidden, batch_size, decay):
    settings = {"latent": 4, "hidden": hidden, "batch_size": batch_size, "weight_decay": decay, "dropout": 0}
    w = world("multvae", anneal_steps=5, lr=0.01, seed=3, **settings)
    rows = torch.from_numpy(w.data.positives.mask(np.arange(45))).double()
    w.server.rows = rows
    w.server.parameters = {name: value.double() for name, value in w.server.parameters.items()}
    naive = Naive(70, 4, hidden).double().copy_from(w.server.parameters)
    adam = torch.optim.Adam(naive.parameters(), lr=0.01, weight_decay=decay)
    own, steps = own_draws(3), 0
    for t in (1, 2, 3):
        order = own.uniform(Purpose.SAMPLES, t, 0, [SERVER], 45)[0].argsort()
        for number, first in enumerate(range(0, 45, batch_size or 45)):
            batch = rows[order[first : first + (batch_size or 45)]]
            noise = own.normal(Purpose.LATENT, t, number, [SERVER], 4 * len(batch))[0].view(len(batch), 4)
            logits, mean, log_variance = naive(nn.functional.normalize(batch), noise)
            negative = -torch.mean(torch.sum(nn.functional.log_softmax(logits, 1) * batch, 1))
            kl = torch.mean(torch.sum(0.5 * (-log_variance + torch.exp(log_variance) + mean**2 - 1), 1))
            adam.zero_grad()
            (negative + min(0.2, 0.2 * steps / 5) * kl).backward()
            adam.step()
            steps += 1
    w.train(4, first=1)
    assert w.server.optimiser.steps == steps == 3 * (3 if batch_size else 1)
    for name, value in naive.parameters_by_name().items():
        torch.testing.assert_close(w.server.parameters[name], value, rtol=1e-9, atol=1e-9)


def test_dropout_drops_its_share_of_unit_rows_anew_in_every_step(world, monkeypatch):
    seen = []
    real = inputs

    def spy(rows, factors):
        seen.append(real(rows, factors))
        return seen[-1]

    monkeypatch.setattr("privfed.methods.references.multvae.server.inputs", spy)
    w = world("multvae", dropout=0.3, **SMALL | {"batch_size": None}).train(40)
    entries = int(w.server.rows.sum())
    kept = torch.stack([(read.dense()[:, 0] != 0).float().sum() / entries for read in seen])
    assert float(kept.mean()) == pytest.approx(0.7, abs=0.02)
    assert len({tuple(read.dense()[:, 0].count_nonzero(1).tolist()) for read in seen}) == 40
    read = seen[0]
    wanted = 1 / (0.7 * read.rows.counts[read.rows.owner].sqrt())
    nonzero = read.values[0] != 0
    torch.testing.assert_close(read.values[0][nonzero], wanted[nonzero])


# Rows leave once, whole, and under no other plan


def test_every_row_leaves_in_round_0_and_nothing_later(world):
    everybody = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world("multvae", transcript=everybody, **SMALL).train(4)
    assert [o.round for o in w.simulation.transcript.joined("wire")] == [0]
    assert w.simulation.costs.client_rounds == 45
    assert w.simulation.cohorts == 1
    truth = torch.from_numpy(w.data.positives.mask(np.arange(45))).float()
    assert w.simulation.transcript.joined("wire")[0].tensors["history"][:, :, 0].equal(truth)
    assert w.server.rows.equal(truth)
    assert set(w.server.public().shared) == set(w.server.parameters)


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_grouping_clients_changes_no_bit(world, chunk):
    runs = [world("multvae", chunk=c, **SMALL).train(2) for c in (None, chunk)]
    same_bits(runs[1].server.state(), runs[0].server.state())


@pytest.mark.parametrize("plan", ["none:release=total", "central-gaussian:clip_norm=1,noise_multiplier=1"])
def test_plans_that_hide_uploads_refuse_it(small_split, plan):
    with pytest.raises(PlanError, match="whole interaction list, and would see only a sum"):
        experiment(small_split, plan)


def test_noisy_rows_are_paid_for_once_and_trained_on_as_they_came(small_split):
    plan, results = "local-laplace:epsilon0=4,clip_norm=3", []
    for rounds in (1, 6):
        done = experiment(small_split, plan, rounds)
        results.append((done, done.run()))
    assert [result.guarantee.epsilon for _, result in results] == pytest.approx([4.0, 4.0], rel=1e-4)
    server = results[1][0].server
    assert 0.2 < float((server.rows > 0).float().mean()) < 0.8
    assert float(server.rows.min()) == 0
    assert all(value.isfinite().all() for value in server.parameters.values())
    noisy = results[1][1].transcript.joined("wire")[0]
    assert server.rows[noisy.users].equal(noisy.tensors["history"][:, :, 0].clamp(min=0))


def test_only_the_cohort_of_round_0_is_learned_from(world):
    w = world("multvae", plan="none:sampling.kind=poisson,sampling.rate=0.4", **SMALL).train(2)
    members = w.simulation.members(0)
    assert 0 < len(members) < 45
    assert w.server.rows.equal(torch.from_numpy(w.data.positives.mask(members.numpy())).float())


def test_an_empty_cohort_and_users_without_items_teach_nothing(world):
    w = world("multvae", plan="none:sampling.kind=poisson,sampling.rate=0.0001", **SMALL)
    assert not len(w.simulation.members(0))
    start = dict(w.server.parameters)
    same_bits(w.train(2).server.parameters, start)
    histories = Histories(np.array([0, 0, 3, 3]), np.array([1, 3, 1]), 5)
    data, config, streams = ClientData(histories, histories), METHOD.config(latent=2), Streams.from_seed(0)
    server, clients = (
        METHOD.training.server(config, PublicInfo(3, 5), streams),
        METHOD.training.clients(config, data, streams),
    )
    plan = PrivacyPlan.named("none")
    Simulation(clients, plan, 3, streams, Ledger(plan, 3)).run(server, 0)
    assert server.rows.tolist() == [[0, 1, 0, 1, 0]]
    assert clients.score(torch.arange(3), server.public(), None, None).isfinite().all()
    call = Call(0, 0, "reveal", 0, torch.tensor([2, 1]), streams, server.schema)
    assert clients.reveal(call, server.public()).stacked("history")[:, :, 0].tolist() == [[0] * 5, [0, 1, 0, 1, 0]]


def test_the_server_keeps_a_key_of_its_own_and_no_clients(world):
    server = world("multvae", **SMALL).server
    assert not [name for name, value in vars(server).items() if isinstance(value, Streams)]
    root = Streams.from_seed(3)
    own = Streams(server._key, simulated=True)
    for user in (SERVER, 0, 44):
        mine, theirs = (s.words(Purpose.DROPOUT, 0, 0, [user], 8).tolist() for s in (own, root))
        assert mine != theirs


@pytest.mark.parametrize("plan", ["none", "local-laplace:epsilon0=2,clip_norm=3"])
def test_a_killed_run_continues_to_the_same_bits(small_split, tmp_path, plan):
    class KilledError(Exception):
        pass

    def kill(t, evaluated):
        if t == 2:
            raise KilledError

    wanted = experiment(small_split, plan).run()
    with pytest.raises(KilledError):
        experiment(small_split, plan).run(tmp_path, progress=kill)
    found = experiment(small_split, plan).run(tmp_path, resume=True)
    same_bits(found.server.state(), wanted.server.state())
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee


# What it is good for, and what it gives away


def test_it_learns_what_popularity_cannot_know():
    spec = SyntheticSpec(
        name="synthetic-tests", n_users=300, n_items=150, mean_per_user=25, min_per_user=8, sharpness=3.0
    )
    parts, protocol = split(generate(spec), SplitSpec()), Protocol(k=(10,))
    found = experiment(parts, rounds=40, places=(), protocol=protocol, latent=16, hidden=[], batch_size=100).run().test
    config = ExperimentConfig(method={"name": "popularity"}, rounds=1, protocol=protocol, taps=TapConfig(places=()))
    popularity = Experiment(config, parts).run().test
    assert found.metric("hr", 10).value > 1.5 * popularity.metric("hr", 10).value


def test_whoever_sees_the_rows_knows_the_histories(small_split):
    def support(plan):
        done = experiment(small_split, plan)
        result = done.run()
        rows = attack_trained(done, result.transcript.joined, 5)
        assert {row.tap for row in rows} == {"raw", "wire", "scores"}
        assert {tuple(row.rounds) for row in rows if row.tap == "wire"} == {(1,)}
        return [r.auc.value for r in rows if (r.attack, r.tap, r.scope) == ("row support", "wire", "all items")]

    assert support("none") == [1.0, 1.0]
    assert support("local-laplace:epsilon0=1,clip_norm=1") == pytest.approx([0.5, 0.5], abs=0.02)


def test_scores_of_candidates_are_those_columns_of_the_whole_catalogue(world):
    w = world("multvae", **SMALL).train(1)
    users, candidates = torch.tensor([7, 3, 44]), torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])
    whole = w.clients.score(users, w.server.public(), None, None)
    assert whole.shape == (3, 70)
    torch.testing.assert_close(w.clients.score(users, w.server.public(), None, candidates), whole.gather(1, candidates))
    alone = torch.cat([w.clients.score(u.view(1), w.server.public(), None, None) for u in users])
    torch.testing.assert_close(whole, alone, rtol=1e-5, atol=1e-5)


# Settings


def test_beta_rises_with_gradient_steps_to_its_cap():
    assert [METHOD.config(anneal_steps=10).beta(s) for s in (0, 5, 10, 50)] == [0, 0.1, 0.2, 0.2]
    assert METHOD.config(anneal_steps=0, beta_cap=1).beta(0) == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"dropout": 1}, "dropout"),
        ({"latent": 0}, "latent"),
        ({"hidden": [0]}, "hidden"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr": 0}, "lr"),
        ({"anneal": 3}, "anneal"),
        ({"initialisation": "zeros"}, "initialisation"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(setting, words):
    with pytest.raises(ValueError, match=words) as caught:
        configure(METHOD.config, setting)
    assert "\n" not in str(caught.value)


def test_divergence_is_said_in_one_sentence(world):
    with pytest.raises(
        DivergedError, match=r"^training of multvae diverged: .* lower its lr, now 1e\+30, and"
    ) as caught:
        world("multvae", lr=1e30, **SMALL).train(3)
    assert "\n" not in str(caught.value)
