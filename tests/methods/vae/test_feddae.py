"""FedDAE as a federated method: personal state stays and is kept, and each switch does what it is named for."""

import pytest
import torch
from pydantic import ValidationError

from privfed.engines.transcript import Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call
from privfed.methods.feddae import METHOD
from privfed.methods.feddae.client import PersonalMemoryError
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

SMALL = {"latent": 4, "hidden": (6, 5), "local_steps": 3, "local_lr": 0.01}
KINDS = ["embedding", "sparse_first_layer", "full"]
FORGETFUL = {"forget_personal_state": True}


def train_call(w, users=None, t=0):
    return Call(t, t, "train", 0, torch.arange(45) if users is None else users, w.streams, w.server.schema)


def same(found, wanted):
    return found.keys() == wanted.keys() and all(found[name].equal(wanted[name]) for name in found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_round_continues_from_committed_personal_state(world, kind):
    """The released code wrote it into a copy and lost it."""
    w = world("feddae", local_encoder=kind, **SMALL)
    states = [w.clients.state()]
    for t in range(2):
        w.train(t + 1, first=t)
        states.append(w.clients.state())
    for name in states[0]:
        assert not states[1][name].equal(states[0][name]), name
        assert not states[2][name].equal(states[1][name]), name
    other = world("feddae", local_encoder=kind, **SMALL)
    other.clients.load(states[1])
    messages = [w.server.public(), w.server.public()]
    reached = []
    for half, message in zip((w, other), messages, strict=True):
        half.clients.load(states[1])
        half.clients.train(train_call(w, t=5), message)
        half.clients.commit()
        reached.append(half.clients.state())
    assert same(*reached)


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_round_leaves_personal_state_as_it_was(world, kind):
    w = world("feddae", local_encoder=kind, **SMALL).train(1)
    before, message, users = w.clients.state(), w.server.public(), torch.tensor([4, 30])
    received = w.clients.score(users, message, None, None)
    updates = w.clients.train(train_call(w, users), message)
    assert not w.clients.score(users, message, updates, None).equal(received)
    assert w.clients.score(users, message, None, None).equal(received)
    w.clients.discard()
    assert same(w.clients.state(), before)
    w.clients.commit()
    assert same(w.clients.state(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_only_declared_blocks_leave_and_personal_ones_are_not_declared(world, kind):
    w = world("feddae", local_encoder=kind, **SMALL)
    updates = w.clients.train(train_call(w), w.server.public())
    assert {part.block for part in updates.parts} == set(w.server.schema)
    assert set(w.server.schema) == set(world("fedvae", **SMALL).server.schema)
    assert not set(w.server.schema) & set(w.clients.state())


@pytest.mark.parametrize("chunk", [1, 7, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_does_depends_on_its_chunk_by_rounding_only(world, few_users, kind, chunk):
    runs = []
    for size in (None, chunk):
        taps = Transcript(torch.arange(18), frozenset({"raw"}))
        settings = SMALL | {"local_encoder": kind, "personal_optimiser": "sgd"}
        w = world("feddae", parts=few_users, chunk=size, transcript=taps, **settings).train(1)
        found = {name: torch.stack([o.tensors[name] for o in taps.joined("raw")]) for name in w.server.schema}
        runs.append(found | w.clients.state())
    for name, value in runs[0].items():
        # The gate's gradient is a difference of like numbers.
        tolerance = 1e-5 if name == "gate" else 1e-6
        assert float((runs[1][name] - value).norm()) <= tolerance * float(value.norm()), name


def test_users_of_other_users_rows_do_not_mix(world):
    """State is committed at the right places for a cohort in any order."""
    w = world("feddae", local_encoder="full", **SMALL)
    before, users = w.clients.state(), torch.tensor([30, 2])
    w.clients.train(train_call(w, users), w.server.public())
    w.clients.commit()
    after = w.clients.state()
    mine = torch.zeros(len(w.clients.rows.items), dtype=torch.bool)
    mine[w.clients.rows.entries(users)] = True
    assert after["first.rows"][~mine].equal(before["first.rows"][~mine])
    assert not after["first.rows"][mine].equal(before["first.rows"][mine])
    for name in set(after) - {"first.rows"}:
        changed = (after[name] != before[name]).flatten(1).any(1)
        assert changed.nonzero()[:, 0].tolist() == [2, 30], name


def test_personal_state_too_large_for_memory_is_refused_in_one_sentence(world):
    with pytest.raises(PersonalMemoryError, match=r"'full' keeps .* GiB .* 45 users") as caught:
        world("feddae", local_encoder="full", personal_memory_gib=1e-6, **SMALL)
    assert "\n" not in str(caught.value)
    world("feddae", local_encoder="embedding", personal_memory_gib=1e-4, **SMALL)


def test_the_memory_named_is_that_of_the_state(world):
    w = world("feddae", local_encoder="full", **SMALL)
    held = sum(value.nbytes for name, value in w.clients.state().items() if name != "gate")
    with pytest.raises(PersonalMemoryError):
        world("feddae", local_encoder="full", personal_memory_gib=2 * held / 2**30 * 0.999, **SMALL)
    world("feddae", local_encoder="full", personal_memory_gib=2 * held / 2**30 * 1.001, **SMALL)


def test_upload_local_encoder_declares_and_sends_a_second_encoder(world):
    w = world("feddae", upload_local_encoder=True, **SMALL)
    second = {name for name in w.server.schema if name.startswith("local_encoder")}
    assert {name.removeprefix("local_") for name in second} == {n for n in w.server.schema if n.startswith("encoder")}
    assert set(w.clients.state()) == {"gate"}
    start = w.server.public().shared
    assert not start["local_encoder.0.weight"].equal(start["encoder.0.weight"])
    w.train(1)
    assert all(not w.server.parameters[name].equal(start[name]) for name in second)


def test_a_frozen_random_gate_is_random_and_stays(world):
    w = world("feddae", frozen_random_gate=True, **SMALL)
    before = w.clients.state()
    assert float((before["gate"][:, 0] - before["gate"][:, 1]).abs().min()) > 0
    w.train(2)
    assert w.clients.state()["gate"].equal(before["gate"])
    assert not w.clients.state()["vectors"].equal(before["vectors"])
    assert not world("feddae", **SMALL).clients.state()["gate"].any()


def test_a_fixed_gate_trusts_the_shared_encoder_by_its_weight_and_stays(world):
    w = world("feddae", fixed_gate=0.75, **SMALL)
    for t in range(2):
        gate = w.clients.state()["gate"]
        assert torch.allclose(gate.softmax(1), torch.tensor([0.75, 0.25]).expand(len(gate), 2))
        w.train(t + 1, first=t)
    with pytest.raises(ValueError, match="two gates that do not learn"):
        world("feddae", fixed_gate=0.75, frozen_random_gate=True, **SMALL)


def test_forgotten_personal_state_starts_over_each_round(world):
    w = world("feddae", **FORGETFUL, **SMALL)
    before = w.clients.state()
    w.train(2)
    assert same(w.clients.state(), before)
    message = w.server.public()
    updates = w.clients.train(train_call(w), message)
    users = torch.arange(45)
    assert not w.clients.score(users, message, updates, None).equal(w.clients.score(users, message, None, None))


def test_beta_is_zero_after_the_first_round_only_as_released():
    released = METHOD.config(beta_zero_after_first_round=True, beta_cap=0.7)
    assert [released.beta(t) for t in (0, 1, 99)] == [0.7, 0, 0]
    assert [METHOD.config().beta(t) for t in (0, 50, 200)] == [0, 0.5, 1]


def test_accumulated_gradients_upload_about_e_plus_one_halves_as_much(world):
    """With a tiny learning rate and nothing random, E equal gradients sum to E g, accumulated to E (E + 1) / 2 g."""
    norms = {}
    for accumulate in (False, True):
        settings = SMALL | {"local_lr": 1e-7, "personal_lr": 1e-9, "dropout": 0.0, "local_steps": 4, "latent": 1}
        w = world("feddae", accumulate_gradients=accumulate, **settings)
        silent = w.streams.normal
        w.streams.normal = lambda *a, silent=silent: silent(*a).zero_()
        norms[accumulate] = w.clients.train(train_call(w), w.server.public()).norms(2)
    torch.testing.assert_close(norms[True] / norms[False], torch.full((45,), 2.5).double(), rtol=1e-3, atol=0)


def test_every_switch_of_the_released_code_is_off_by_default():
    config = METHOD.config()
    switches = ["upload_local_encoder", "frozen_random_gate", "forget_personal_state"]
    switches += ["beta_zero_after_first_round", "accumulate_gradients"]
    assert [getattr(config, name) for name in switches] == [False] * 5
    assert not [name for name in METHOD.config.model_fields if "predict" in name or "score" in name]
    with pytest.raises(ValidationError):
        METHOD.config(upload_predictions=True)


class KilledError(Exception):
    """Stands for the process being gone."""


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedvae", "latent": 4, "popularity_prior": True},
        {"name": "fedvae", "latent": 4, "hidden": [6], "server_optimiser": "momentum"},
        {"name": "feddae", "latent": 4, "hidden": [6], "local_encoder": "sparse_first_layer", "local_steps": 2},
        {"name": "feddae", "latent": 4, "hidden": [6], "local_encoder": "full"},
    ],
    ids=["fedvae", "fedvae, momentum", "feddae, sparse", "feddae, full"],
)
def test_a_resumed_run_equals_an_unbroken_one(small_split, tmp_path, method):
    config = ExperimentConfig(
        data="synthetic-tests",
        method=method,
        privacy=PrivacyPlan.parse("none:sampling.kind=fixed,sampling.size=30"),
        protocol=Protocol(k=(5,)),
        rounds=4,
        seed=2,
        evaluate_every=2,
        checkpoint_every=1,
        taps=TapConfig(places=()),
    )
    wanted = Experiment(config, small_split).run()

    def kill(t, evaluated):
        if t == 1:
            raise KilledError

    with pytest.raises(KilledError):
        Experiment(config, small_split).run(tmp_path, progress=kill)
    found = Experiment(config, small_split).run(tmp_path, resume=True)
    for half in ("server", "clients"):
        assert same(getattr(found, half).state(), getattr(wanted, half).state())
    assert found.history == wanted.history
