"""Noisy steps equal a client told naively; their noise, sampling and sensitivity are those that are accounted."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from privfed.contracts import NoisySteps
from privfed.data import Histories
from privfed.engines.transcript import Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, FederationError, Streams, perform
from privfed.methods import ClientData, PublicInfo, method, methods
from privfed.methods.shared.interaction_dp import InteractionTrainer
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

SMALL = {"fedncf": {"dim": 8, "hidden": (12, 5), "negatives": 3}, "pfedrec": {"dim": 8, "negatives": 3}}
MILD = {"fedncf": {"user_lr_factor": 8.0, "item_lr_factor": 1.0}, "pfedrec": {"item_lr_factor": 1.0}}
PLAN = "interaction-dpsgd:clip_norm=0.5,noise_multiplier=0.7,local_rate=0.4,local_steps=3,expected_records=12"
SILENT = NoisySteps(clip_norm=0.5, noise_multiplier=0.0, rate=0.4, steps=3, expected_records=12.0)
LOUD = NoisySteps(clip_norm=0.5, noise_multiplier=0.7, rate=0.4, steps=3, expected_records=12.0)


def call(w, how, users=None, query_id=0, round=0):
    users = torch.arange(w.data.n_users) if users is None else users
    return Call(round, round, "train", query_id, users, w.streams, w.server.schema, noisy_steps=how)


def upload(w, how, **more):
    """Stacked blocks of every client, and the private state that it staged."""
    made = call(w, how, **more)
    updates = perform(w.clients, made, w.server.public())
    staged = w.clients.private.staged(made.clients)
    w.clients.discard()
    return {name: updates.stacked(name) for name in w.server.schema}, staged


# A client told naively: autograd, one record after the other, a whole table of its own, float64.


def logits(name, p, items):
    if name == "pfedrec":
        return items @ p["w"] + p["b"]
    h, last = torch.cat([p["user"].expand(len(items), -1), items], 1), (len(p) - 2) // 2 - 1
    for j in range(last + 1):
        h = h @ p[f"W{j}"] + p[f"b{j}"]
        h = h if j == last else torch.relu(h)
    return h[:, 0]


def naive(name, w, user, how):
    trainer, alone = w.clients.noisily, torch.tensor([user])
    p = {key: value[user].double() for key, value in w.clients.state().items()}
    p |= {key: value.double() for key, value in w.server.public().shared.items()}
    scales = {key: math.sqrt(trainer.rates[key] / w.clients.config.lr) for key in p}
    counts = torch.tensor([w.data.positives.counts[user]])
    clipped = 0
    for step in range(how.steps):
        records = trainer._draw(call(w, how), how.rate, alone, counts, step)
        sums = {key: torch.zeros_like(value) for key, value in p.items()}
        for items in records.items[0][records.drawn[0]]:
            own = {key: value.clone().requires_grad_() for key, value in p.items()}
            y = torch.tensor([1.0] + [0.0] * (len(items) - 1), dtype=torch.float64)
            scored = logits(name, own, own["items"][items])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scored, y)
            gradients = dict(zip(own, torch.autograd.grad(loss, list(own.values())), strict=True))
            norm = math.sqrt(sum((scales[key] * g).square().sum() for key, g in gradients.items()))
            clipped += norm > how.clip_norm
            for key, g in gradients.items():
                sums[key] += min(1.0, how.clip_norm / norm) * g
        p = {key: value - trainer.rates[key] * sums[key] / how.divisor for key, value in p.items()}
    return p, clipped


@pytest.mark.parametrize("name", SMALL)
def test_silent_steps_equal_a_naive_client(world, name):
    w, how = world(name, **SMALL[name], **MILD[name]), replace(SILENT, clip_norm=0.5 if name == "pfedrec" else 0.1)
    uploads, staged = upload(w, how)
    public, clipped = w.server.public().shared, 0
    for user in (0, 7, 44):
        wanted, over = naive(name, w, user, how)
        clipped += over
        for block, values in uploads.items():
            change = wanted[block] - public[block].double()
            torch.testing.assert_close(values[user].double(), change, rtol=1e-4, atol=2e-6)
        for key, values in staged.items():
            torch.testing.assert_close(values[user].double(), wanted[key], rtol=1e-4, atol=2e-6)
    assert clipped > 20


def without_gradients(trainer, seen=None):
    """The trainer's clipped sums replaced by zeros; what they were shown is kept."""

    def zeros(p, q, drawn, clip_norm, scales):
        if seen is not None:
            seen.append((q, drawn))
        return {name: torch.zeros_like(value) for name, value in p.items()}, torch.zeros_like(q)

    trainer.gradients = zeros


def standard(x, deviation):
    x = (x.double().flatten() / deviation).numpy()
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert x.std() == pytest.approx(1, abs=4.5 / math.sqrt(2 * len(x)))


@pytest.mark.parametrize("name", SMALL)
def test_noise_on_every_coordinate_has_the_variance_of_all_steps(world, name):
    """Rows that were read along the way, rows that never were, shared blocks and the private state alike."""
    w = world(name, **SMALL[name])
    trainer, public = w.clients.noisily, w.server.public().shared
    seen = []
    without_gradients(trainer, seen)
    uploads, staged = upload(w, LOUD)
    unit = LOUD.noise_multiplier * LOUD.clip_norm / LOUD.divisor * math.sqrt(LOUD.steps)
    deviation = {key: unit * rate / trainer.scales[key] for key, rate in trainer.rates.items()}
    read = torch.zeros(uploads["items"].shape[:2], dtype=torch.bool)
    for user in range(len(read)):
        for step in range(1, LOUD.steps):
            count = torch.tensor([w.data.positives.counts[user]])
            records = trainer._draw(call(w, LOUD), LOUD.rate, torch.tensor([user]), count, step)
            read[user, records.items[records.drawn]] = True
    assert 0.2 < read.double().mean() < 0.9
    standard(uploads["items"][read], deviation["items"])
    standard(uploads["items"][~read], deviation["items"])
    for key, values in staged.items():
        standard(values - w.clients.state()[key], deviation[key])
    for block in public.keys() - {"items"}:
        assert float(uploads[block].std()) == pytest.approx(deviation[block], rel=0.3)
    flat = torch.cat([uploads[b].flatten(1) / deviation[b] for b in uploads], 1)
    standard(flat, 1.0)
    # Independent from client to client.
    assert float(torch.corrcoef(flat).fill_diagonal_(0).abs().max()) < 6 / math.sqrt(flat.shape[1])


def test_a_row_is_read_with_the_noise_of_the_steps_before(world):
    w = world("pfedrec", **SMALL["pfedrec"])
    trainer, seen, how = w.clients.noisily, [], NoisySteps(0.5, 0.7, 1.0, 3, 12.0)
    without_gradients(trainer, seen)
    users = torch.arange(16)
    upload(w, how, users=users)
    start = w.server.public().shared["items"]
    deviation = how.noise_multiplier * how.clip_norm / how.divisor * trainer.rates["items"] / trainer.scales["items"]
    per_step = len(seen) // how.steps
    for step in range(how.steps):
        differences = []
        counts = torch.from_numpy(w.data.positives.counts)[users].sort(descending=True, stable=True)
        records = trainer._draw(call(w, how), how.rate, counts.indices, counts.values, step)
        for part, (q, drawn) in enumerate(seen[step * per_step : (step + 1) * per_step]):
            items = records.items[:, 16 * part : 16 * (part + 1)]
            keep = drawn.bool()
            difference = (q - start[items])[keep]
            differences.append(difference[:, 0])
        moved = torch.cat(differences)
        if step == 0:
            assert not bool(moved.any())
        else:
            # Positives of one user are distinct, so these rows are independent.
            standard(moved, deviation * math.sqrt(step))


@pytest.mark.parametrize("name", SMALL)
def test_numbers_of_a_table_take_no_noise_from_the_rows_that_are_read(world, name):
    """A server that sends large ones must not see by the noise that is left which rows a device read."""
    w = world(name, **SMALL[name])
    without_gradients(w.clients.noisily)
    public, uploads = w.server.public(), []
    for size in (0.0, 2.0**30):
        message = replace(public, shared={**public.shared, "items": torch.full_like(public.shared["items"], size)})
        uploads.append(perform(w.clients, call(w, LOUD), message).stacked("items"))
        w.clients.discard()
    assert uploads[0].equal(uploads[1])


@pytest.mark.parametrize("size", [3e38, 2.0**33, math.nan])
@pytest.mark.parametrize("name", SMALL)
def test_numbers_that_overflow_for_whoever_has_an_item_are_refused_by_everybody(name, size):
    """NaN in one upload, or zeros in its place, would show the item that no noise may show."""
    hidden = {"hidden": (64, 32, 16)} if name == "fedncf" else {}
    server, clients, streams = built(name, [[3], [7], []], 60, **SMALL[name] | hidden)
    public = server.public()
    shared = {key: torch.full_like(values, min(size, 1.0)) for key, values in public.shared.items()}
    shared["items"][3] = size
    for user in range(3):
        made = Call(0, 0, "train", 0, torch.tensor([user]), streams, server.schema, noisy_steps=LOUD)
        with pytest.raises(FederationError, match="drop the message"):
            perform(clients, made, replace(public, shared=shared))


def test_bits_and_negatives(world):
    """Joined at the promised rate, independently of step and record; negatives blind to the rest of the history."""
    n_users, n_items, each = 400, 50, 20
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(n_items)[:each] for _ in range(n_users)])
    histories = Histories.from_pairs(np.repeat(np.arange(n_users), each), items, n_users, n_items)
    trainer = InteractionTrainer(histories, 3, lambda *a: None, {"items": 1.0}, 1.0)
    users, counts = torch.arange(n_users), torch.full((n_users,), each)
    own = torch.from_numpy(items).view(n_users, each)
    joined, negatives = [], []
    for step in range(4):
        made = Call(0, 0, "train", 0, users, Streams.from_seed(5), {})
        records = trainer._draw(made, 0.3, users, counts, step)
        chosen = torch.zeros(n_users, n_items, dtype=torch.bool)
        owner = torch.arange(n_users)[:, None].expand_as(records.drawn)[records.drawn]
        chosen[owner, records.items[..., 0][records.drawn]] = True
        joined.append(chosen.gather(1, own))
        negatives.append(records.items[..., 1:][records.drawn])
        hit = (negatives[-1].unsqueeze(2) == own[owner].unsqueeze(1)).any(2)
        assert float(hit.double().mean()) == pytest.approx((each - 1) / (n_items - 1), abs=0.02)
    joined = torch.stack(joined).double()
    assert float(joined.mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / joined.numel()))
    assert float((joined[0] * joined[1]).mean()) == pytest.approx(0.09, abs=0.02)
    assert float((joined[:, :, 0] * joined[:, :, 1]).mean()) == pytest.approx(0.09, abs=0.03)
    assert joined.sum(2).var() == pytest.approx(each * 0.21, rel=0.15)
    share = torch.bincount(torch.cat(negatives).flatten(), minlength=n_items).double()
    assert float((share / share.sum() - 1 / n_items).abs().max()) < 0.003


def histories_of(lists, n_items):
    owners = np.repeat(np.arange(len(lists)), [len(items) for items in lists])
    return Histories.from_pairs(
        owners, np.array([i for items in lists for i in items], dtype=np.int64), len(lists), n_items
    )


def built(name, lists, n_items, **settings):
    data = ClientData(histories_of(lists, n_items), histories_of(lists, n_items))
    registered, streams = method(name), Streams.from_seed(3)
    config = registered.config(**settings)
    server = registered.training.server(config, PublicInfo(data.n_users, n_items), streams)
    clients = registered.training.clients(config, data, streams)
    return server, clients, streams


@pytest.mark.parametrize("clip_norm", [0.01, 0.5, 50.0])
@pytest.mark.parametrize("name", SMALL)
def test_one_interaction_more_moves_an_upload_by_at_most_what_is_accounted(name, clip_norm):
    """Neighbouring histories, one step, same sample, no noise: C / divisor, upload and private state together."""
    how, n_items = NoisySteps(clip_norm, 0.0, 0.6, 1, 12.0), 60
    rng, lists = np.random.default_rng(1), []
    for size in range(24):
        lists.append(list(rng.permutation(n_items - 1)[:size]))
    worlds = []
    for histories in (lists, [[*items, n_items - 1] for items in lists]):
        server, clients, streams = built(name, histories, n_items, **SMALL[name])
        made = Call(0, 0, "train", 0, torch.arange(24), streams, server.schema, noisy_steps=how)
        updates = perform(clients, made, server.public())
        rates, scales = clients.noisily.rates, clients.noisily.scales
        staged = clients.private.staged(made.clients)
        moved = {**{n: updates.stacked(n) for n in server.schema}, **staged}
        worlds.append({n: v.double() * scales[n] / rates[n] for n, v in moved.items()})
    distance = sum((worlds[0][n] - worlds[1][n]).view(24, -1).square().sum(1) for n in worlds[0]).sqrt()
    bound = clip_norm / how.divisor
    assert bool((distance <= bound * (1 + 1e-4)).all())
    joined = distance > 0
    assert 5 < int(joined.sum()) < 24
    if clip_norm < 1:
        torch.testing.assert_close(distance[joined], torch.full_like(distance[joined], bound), rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", SMALL)
def test_a_user_without_interactions_uploads_noise_like_anybody_else(name):
    lists = [[], [3], list(range(30))]
    server, clients, streams = built(name, lists, 60, **SMALL[name])
    made = Call(0, 0, "train", 0, torch.arange(3), streams, server.schema, noisy_steps=LOUD)
    updates = perform(clients, made, server.public())
    touched = updates.touched(torch.arange(3))
    assert all(bool(t.all()) for t in touched.values())
    deviation = updates.stacked("items").flatten(1).std(1)
    assert float(deviation[0] / deviation[1]) == pytest.approx(1, rel=0.15)
    nobody = perform(clients, Call(0, 0, "train", 0, torch.tensor([0]), streams, server.schema, noisy_steps=LOUD),
                     server.public())  # fmt: skip
    assert nobody.stacked("items")[0].equal(updates.stacked("items")[0])


def test_rounds_and_queries_have_noise_of_their_own(world):
    w = world("pfedrec", **SMALL["pfedrec"])
    without_gradients(w.clients.noisily)
    ones = [
        upload(w, LOUD, query_id=query_id, round=round)[0]["items"].flatten()
        for query_id, round in [(0, 0), (1, 0), (0, 1)]
    ]
    assert upload(w, LOUD)[0]["items"].flatten().equal(ones[0])
    assert float(torch.corrcoef(torch.stack(ones)).fill_diagonal_(0).abs().max()) < 0.03


def test_addresses_run_out_rather_than_overlap(world):
    w = world("pfedrec", **SMALL["pfedrec"])
    with pytest.raises(FederationError, match="no fresh addresses"):
        upload(w, LOUD, query_id=65_536)
    with pytest.raises(FederationError, match="no fresh addresses"):
        upload(w, NoisySteps(0.5, 0.7, 0.4, 32_768, 12.0))
    with pytest.raises(FederationError, match="without saying how noisy"):
        w.clients.noisily.train(call(w, None), {}, w.server.items)


# Groups of clients, whole runs, refusals.


@pytest.mark.parametrize("chunk", [1, 7, 16])
@pytest.mark.parametrize("name", SMALL)
def test_chunks_decide_no_bit_of_what_a_device_computes(world, name, chunk):
    runs = []
    for size in (None, chunk):
        everybody = Transcript(torch.arange(45), frozenset({"wire"}))
        runs.append(world(name, plan=PLAN, chunk=size, transcript=everybody, **SMALL[name]).train(1))
    for one, other in zip(*(r.simulation.transcript.joined("wire") for r in runs), strict=True):
        assert all(one.tensors[block].equal(other.tensors[block]) for block in one.tensors)
    states = [r.clients.state() for r in runs]
    assert all(states[0][key].equal(states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", SMALL)
def test_what_is_uploaded_is_what_was_trained(world, name):
    """The guard neither clips nor noises again: raw and wire are the same bits, dense, for everybody."""
    tapped = Transcript(torch.arange(45), frozenset({"raw", "wire"}))
    w = world(name, plan=PLAN, transcript=tapped, **SMALL[name]).train(2)
    for raw, fidelity in zip(tapped.joined("raw"), tapped.joined("wire"), strict=True):
        assert all(raw.tensors[block].equal(fidelity.tensors[block]) for block in raw.tensors)
        assert all(bool((value != 0).all()) for value in fidelity.tensors.values())
    size = sum(block.size for block in w.server.schema.values())
    assert w.simulation.costs.up_bytes == 2 * 45 * 4 * size
    assert w.simulation.client_guard.counts.fraction is None


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.untyped_storage().nbytes() // value.element_size())
        return out


@pytest.mark.parametrize("name", SMALL)
def test_no_tensor_is_larger_than_the_uploads_however_long_histories_are(name):
    n_items, dim = 600, 8
    lists = [list(range(500)) for _ in range(32)]
    settings = SMALL[name] | {"dim": dim}
    server, clients, streams = built(name, lists, n_items, **settings)
    made = Call(0, 0, "train", 0, torch.arange(32), streams, server.schema, noisy_steps=NoisySteps(1, 1, 1, 2, 12.0))
    with Largest() as mode:
        perform(clients, made, server.public())
    assert mode.numel <= 32 * n_items * dim


def config(settings, plan=PLAN, **changes):
    made = ExperimentConfig(
        data="synthetic-tests",
        method=settings,
        privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(5,)),
        rounds=4,
        seed=4,
        evaluate_every=1,
        checkpoint_every=2,
        taps=TapConfig(places=("wire",), users=6, rounds=(0, 2)),
    )
    return made.model_copy(update=changes)


def json_settings(name):
    return {"name": name, **{k: list(v) if isinstance(v, tuple) else v for k, v in SMALL[name].items()}}


class KilledError(Exception):
    """Stands for the process being gone."""


@pytest.mark.parametrize("sampling", ["", ",sampling.kind=poisson,sampling.rate=0.5"])
@pytest.mark.parametrize("name", SMALL)
def test_a_resumed_run_equals_an_unbroken_one(small_split, tmp_path, name, sampling):
    def start():
        return Experiment(config(json_settings(name), PLAN + sampling), small_split)

    def die(t, _):
        if t == 2:
            raise KilledError

    unbroken, folder = tmp_path / "unbroken", tmp_path / "run"
    unbroken.mkdir()
    folder.mkdir()
    wanted = start().run(unbroken)
    with pytest.raises(KilledError):
        start().run(folder, progress=die)
    found = start().run(folder, resume=True)
    for half in ("server", "clients"):
        one, other = getattr(found, half).state(), getattr(wanted, half).state()
        assert all(one[key].equal(other[key]) for key in other)
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee
    assert (folder / "ledger.jsonl").read_text() == (unbroken / "ledger.jsonl").read_text()


@pytest.mark.parametrize("name", SMALL)
def test_devices_are_evaluated_and_recommend_behind_the_same_noise(small_split, name):
    """What a device trains alone goes through the noisy steps too: nothing else has ever touched the history."""
    experiment = Experiment(config(json_settings(name), rounds=1), small_split)
    users = torch.arange(45)
    message, rehearsed = experiment.rehearse(users, 0, experiment.server.schema)
    wanted = perform(experiment.clients, call_of(experiment, users), message)
    assert rehearsed.stacked("items").equal(wanted.stacked("items"))
    experiment.clients.discard()
    assert experiment.recommend(3, 1).shape == (70,)


def call_of(experiment, users):
    how = experiment.config.privacy.mechanism.noisy_steps
    return Call(0, 0, "train", 0, users, experiment.streams, experiment.server.schema, noisy_steps=how)


@pytest.mark.parametrize("name", sorted(methods().keys() - SMALL.keys()))
def test_methods_without_a_bound_per_interaction_are_refused(small_split, name):
    with pytest.raises(PlanError, match=r"cannot run behind the plan .*no training step with a bounded gradient"):
        Experiment(config({"name": name}), small_split)


@pytest.mark.parametrize("name", sorted(methods()))
def test_what_a_method_declares_is_what_its_clients_do(world, name):
    w, registered = world(name), methods()[name]
    steps = getattr(w.clients, "noisy", frozenset())
    assert registered.traits.interaction_level == (registered.training.step in steps)


@pytest.mark.parametrize("name", ["fedmf", "gpfedrec"])
def test_a_simulation_never_runs_another_step_under_this_plan(world, name):
    """Also where nobody asked an `Experiment`: the charge is in the ledger, the release never happens."""
    with pytest.raises(FederationError, match="trains without that noise"):
        world(name, plan=PLAN).train(1)


def test_a_catalogue_without_room_for_negatives_is_refused():
    with pytest.raises(ValueError, match="no 3 others to draw"):
        InteractionTrainer(histories_of([[0]], 3), 3, lambda *a: None, {"items": 1.0}, 1.0)


@pytest.mark.parametrize(("name", "clip", "settings"), [("pfedrec", 20.0, {}), ("fedncf", 2.0, {"lr": 1.0})])
def test_loose_noise_still_learns(world, name, clip, settings):
    """Not a benchmark: steps go downhill, so training items end up above the others."""
    steps = "noise_multiplier=0.05,local_rate=1,local_steps=1,expected_records=12"
    w = world(name, plan=f"interaction-dpsgd:clip_norm={clip},{steps}", **settings).train(25)
    scores = w.clients.score(torch.arange(45), w.server.public(), None, None)
    positive = torch.from_numpy(w.data.positives.mask(np.arange(45)))
    assert float(scores[positive].mean() - scores[~positive].mean()) > 0.5
