"""FedVAE as a federated method: what leaves, what does not depend on chunks, annealing, and learning."""

import dataclasses

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.engines.transcript import Transcript
from privfed.federation import Call, Message, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.fedvae import METHOD
from privfed.methods.shared.vae_clients import UserRows
from privfed.updates import LowRank

SMALL = {"latent": 4, "hidden": (6,), "local_steps": 3, "local_lr": 0.01}


def uploads(world, chunk, rounds=1, parts=None):
    everybody = Transcript(torch.arange(45 if parts is None else 18), frozenset({"raw"}))
    w = world("fedvae", chunk=chunk, parts=parts, transcript=everybody, **SMALL).train(rounds)
    found = w.simulation.transcript.joined("raw")
    return {block: torch.stack([o.tensors[block] for o in found]) for block in w.server.schema}, w


@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_what_a_client_uploads_depends_on_its_chunk_by_rounding_only(world, few_users, chunk):
    """The random numbers are the same to the last bit; products round differently, by about 1e-6 of the norm."""
    wanted, one = uploads(world, None, parts=few_users)
    found, other = uploads(world, chunk, parts=few_users)
    for block, value in wanted.items():
        assert float((found[block] - value).norm()) <= 1e-6 * float(value.norm()), block
    for name, value in one.server.parameters.items():
        torch.testing.assert_close(other.server.parameters[name], value, rtol=1e-4, atol=1e-4)


def test_dropout_touches_own_items_only_and_changes_with_the_round(world):
    found, w = uploads(world, None)
    rows = w.clients.rows
    mine = torch.zeros(45, 70, dtype=torch.bool)
    everybody = rows.select(torch.arange(45))
    mine[everybody.owner, everybody.items] = True
    touched = found["encoder.0.weight"][0].abs().sum(2) > 0
    assert not bool((touched & ~mine).any())
    assert 0.5 < float(touched.sum() / mine.sum()) < 1
    again, _ = uploads(world, None, rounds=2)
    assert not (again["encoder.0.weight"][1].abs().sum(2) > 0).equal(touched)


def test_nothing_of_size_clients_times_weights_is_held(world):
    w = world("fedvae", **SMALL)
    call = Call(0, 0, "train", 0, torch.arange(45), w.streams, w.server.schema)
    updates = w.clients.train(call, w.server.public())
    weights = [part for part in updates.parts if part.block.endswith("weight")]
    assert len(weights) == 4
    assert all(isinstance(part, LowRank) and part.left.shape[1] == 3 for part in weights)
    assert {part.block for part in updates.parts} == set(w.server.schema)


def test_beta_rises_linearly_to_its_cap():
    config = METHOD.config(beta_cap=0.4, anneal_rounds=10)
    assert [config.beta(t) for t in (0, 5, 10, 50)] == [0, 0.2, 0.4, 0.4]
    assert METHOD.config(anneal_rounds=0).beta(0) == 1


def test_the_mean_loss_makes_heavy_users_weigh_no_more(world):
    norms = {}
    for scale in ("sum", "mean"):
        w = world("fedvae", **(SMALL | {"local_steps": 1, "loss_scale": scale}))
        call = Call(0, 0, "train", 0, torch.arange(45), w.streams, w.server.schema)
        norms[scale] = w.clients.train(call, w.server.public()).norms(2)
    torch.testing.assert_close(norms["sum"] / norms["mean"], w.clients.rows.counts.double(), rtol=1e-5, atol=0)


def test_a_repeated_item_counts_once():
    histories = Histories(np.array([0, 3, 3, 5]), np.array([4, 1, 4, 2, 2]), 6)
    rows = UserRows(histories)
    assert rows.items.tolist() == [1, 4, 2]
    assert rows.counts.tolist() == [2, 0, 1]
    some = rows.select(torch.tensor([2, 1, 0, 2]))
    assert some.items.tolist() == [2, 1, 4, 2]
    assert some.owner.tolist() == [0, 2, 2, 3]


def test_a_client_without_items_moves_nothing_at_the_decoder():
    data = ClientData(*[Histories(np.array([0, 0, 2]), np.array([1, 3]), 5)] * 2)
    config, streams = METHOD.config(latent=2, anneal_rounds=0), Streams.from_seed(0)
    server = METHOD.training.server(config, PublicInfo(2, 5), streams)
    clients = METHOD.training.clients(config, data, streams)
    for users in ([0], [0, 1]):
        call = Call(0, 0, "train", 0, torch.tensor(users), streams, server.schema)
        updates = clients.train(call, server.public())
        assert updates.finite()
        assert not updates.stacked("decoder.0.weight")[0].any()
    assert torch.isfinite(clients.score(torch.arange(2), server.public(), None, None)).all()


def test_the_popularity_prior_starts_the_decoder_bias_from_one_count_per_item(world):
    w = world("fedvae", popularity_prior=True, server_lr=1e-9, **SMALL).train(1)
    counts = torch.bincount(w.clients.rows.items, minlength=70).double()
    wanted = (0.9 * counts / counts.sum() + 0.1 / 70).log()
    found = w.server.parameters["decoder.1.bias"].double()
    torch.testing.assert_close(found, wanted - wanted.mean(), rtol=1e-4, atol=1e-4)
    assert w.simulation._queries == 2
    w.train(2, first=1)
    assert w.simulation._queries == 1


@pytest.mark.parametrize("kind", ["adam", "sgd", "momentum"])
def test_training_lowers_the_loss(world, kind):
    lr = {"adam": 0.02, "sgd": 60.0, "momentum": 5.0}[kind]
    w = world("fedvae", latent=8, server_optimiser=kind, server_lr=lr)
    everybody = torch.arange(45)
    rows = w.clients.rows.select(everybody)

    def loss():
        logits = w.clients.score(everybody, w.server.public(), None, None)
        return -float(torch.log_softmax(logits, 1)[rows.owner, rows.items].mean())

    before = loss()
    w.train(40)
    assert loss() < before - 0.1


def test_scoring_works_for_one_message_and_any_user_order(world):
    w = world("fedvae", **SMALL).train(1)
    users = torch.tensor([7, 3, 44])
    message: Message = w.server.public().addressed_to(users)
    found = w.clients.score(users, message, None, None)
    alone = torch.cat([w.clients.score(u.view(1), message, None, None) for u in users])
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


def test_the_server_reads_sums_only():
    assert METHOD.traits.release == "total"
    assert METHOD.attack_surface.proximal_direction is None
    known = {"n_users": 3, "n_items": 4, "public": None, "sums": None, "item_info": None, "donors": None}
    assert dataclasses.asdict(PublicInfo(3, 4)) == known
