"""Taps copy exactly what passed, for the audited users only, and nothing when off."""

import pytest
import torch

from privfed.contracts import TAPS
from privfed.engines.transcript import PROXIMAL, Transcript, load_observations

AUDITED = torch.tensor([0, 3, 16, 17, 44])
SETTINGS = {"dim": 4, "batch_size": 32}
GP = SETTINGS | {"hidden": (4,)}


def tapped(*taps, **options):
    return Transcript(AUDITED, frozenset(taps), **options)


def seen_by_observer(w):
    """Raw updates of the audited users, per round, read at the observer's place."""
    found = {}

    def look(clients, call, message, updates):
        at = torch.isin(call.clients, AUDITED).nonzero()[:, 0]
        copies = updates.materialise(at)
        for place, user in enumerate(call.clients[at].tolist()):
            found[call.round, user] = {name: value[place].clone() for name, value in copies.items()}

    w.simulation.observers.append(look)
    return found


@pytest.mark.parametrize("chunk", [1, 7, None])
@pytest.mark.parametrize("plan", ["none", "clip:clip_norm=0.5", "local-laplace:epsilon0=1,clip_norm=2"])
@pytest.mark.parametrize("name", ["pfedrec", "fedncf", "gpfedrec"])
def test_raw_is_the_update_before_any_mechanism(world, name, plan, chunk):
    w = world(name, plan=plan, chunk=chunk, transcript=tapped("raw"), **(GP if name != "pfedrec" else SETTINGS))
    wanted = seen_by_observer(w)
    w.train(2)
    observations = w.simulation.transcript.joined("raw")
    assert [o.round for o in observations] == [0, 1]
    for o in observations:
        assert o.users.equal(AUDITED)
        for place, user in enumerate(AUDITED.tolist()):
            for block in w.server.schema:
                assert o.tensors[block][place].equal(wanted[o.round, user][block])


@pytest.mark.parametrize("chunk", [1, 7, None])
@pytest.mark.parametrize("plan", ["none", "clip:clip_norm=0.5", "local-laplace:epsilon0=1,clip_norm=2"])
def test_wire_is_what_the_server_received(toy, plan, chunk):
    t = toy(plan, individual=True, chunk=chunk, transcript=tapped("wire"))
    for round in range(2):
        t.simulation.run(t.server, round)
    for o, release in zip(t.simulation.transcript.joined("wire"), t.server.releases, strict=True):
        assert o.users.equal(AUDITED)
        for block in t.schema:
            assert o.tensors[block].equal(release.uploads[block][AUDITED])


@pytest.mark.parametrize("chunk", [1, 7, None])
@pytest.mark.parametrize("plan", ["none", "clip:clip_norm=0.5", "local-laplace:epsilon0=1,clip_norm=2"])
def test_wire_adds_up_to_the_released_sum(toy, plan, chunk):
    everybody = Transcript(torch.arange(45), frozenset({"wire", "sum"}))
    t = toy(plan, chunk=chunk, transcript=everybody)
    t.simulation.run(t.server, 0)
    (fidelity,), (total,) = (t.simulation.transcript.joined(tap) for tap in ("wire", "sum"))
    for block in t.schema:
        torch.testing.assert_close(fidelity.tensors[block].double().sum(0).float(), total.tensors[block])
        assert total.tensors[block].equal(t.server.releases[0].sums[block])


def test_unprotected_wire_is_raw_and_with_a_clip_its_multiple(world):
    both = tapped("raw", "wire")
    w = world("gpfedrec", transcript=both, **GP).train(1)
    raw, fidelity = (w.simulation.transcript.joined(tap)[0].tensors["items"] for tap in ("raw", "wire"))
    assert raw.equal(fidelity)
    w = world("gpfedrec", plan="clip:clip_norm=0.5", transcript=tapped("raw", "wire"), **GP).train(1)
    raw, fidelity = (w.simulation.transcript.joined(tap)[0].tensors["items"] for tap in ("raw", "wire"))
    norms = raw.flatten(1).abs().sum(1)
    assert (norms > 0.5).all()
    torch.testing.assert_close(fidelity, raw * (0.5 / norms).view(-1, 1, 1), rtol=1e-5, atol=1e-8)


def test_where_only_the_sum_is_seen_no_upload_is_on_the_wire(world):
    w = world("pfedrec", plan="none:release=total", transcript=tapped("wire", "sum"), **SETTINGS).train(1)
    assert w.simulation.transcript.joined("wire") == []
    assert len(w.simulation.transcript.joined("sum")) == 1


def test_model_is_what_everybody_receives_next(world):
    w = world("pfedrec", transcript=tapped("model"), **SETTINGS)
    wanted = []
    for t in range(3):
        w.train(t + 1, first=t)
        wanted.append(w.server.public().shared["items"].clone())
    found = w.simulation.transcript.joined("model")
    assert [o.round for o in found] == [0, 1, 2]
    assert all(o.tensors["items"].equal(v) and len(o.users) == 0 for o, v in zip(found, wanted, strict=True))


@pytest.mark.parametrize("chunk", [7, None])
def test_the_servers_own_direction_travels_with_the_uploads(world, chunk):
    from privfed.methods import method

    registered = method("gpfedrec")
    w = world(
        "gpfedrec", chunk=chunk, transcript=tapped("wire", proximal=registered.attack_surface.proximal_direction), **GP
    )
    w.train(1)
    before = w.server.public()
    targets, items = before.personal["targets"].clone(), before.shared["items"].clone()
    w.train(2, first=1)
    seen = w.simulation.transcript.joined("wire")[1]
    assert seen.tensors[PROXIMAL].equal(targets[AUDITED] - items)


@pytest.mark.parametrize("name", ["pfedrec", "gpfedrec"])
def test_taps_off_record_nothing_and_ask_for_no_copy(world, name):
    for transcript in (tapped(), tapped("raw", "wire", "sum", "model", rounds=frozenset({7}))):
        w = world(name, transcript=transcript, **(GP if name == "gpfedrec" else SETTINGS)).train(2)
        assert transcript.observations == []
        assert all(transcript.joined(tap) == [] for tap in TAPS)
        quiet = world(name, **(GP if name == "gpfedrec" else SETTINGS)).train(2)
        assert w.server.state()["items"].equal(quiet.server.state()["items"])


def test_uploads_are_not_even_asked_for_where_the_tap_is_off(world):
    w = world("pfedrec", **SETTINGS)
    transcript = tapped("model")

    def uploads(_):
        raise AssertionError("a tap that is off asked for a copy")

    def look(clients, call, message, updates):
        transcript.record_uploads("raw", call, message, uploads)

    w.simulation.observers.append(look)
    w.train(1)
    assert transcript.observations == []


def test_taps_change_no_bit_of_the_run(world):
    plain = world("gpfedrec", **GP).train(3)
    watched = world("gpfedrec", transcript=tapped(*TAPS), **GP).train(3)
    for half in ("server", "clients"):
        one, other = getattr(plain, half).state(), getattr(watched, half).state()
        assert all(one[name].equal(other[name]) for name in one)


def test_only_wanted_rounds_and_sampled_audited_users_are_copied(world):
    plan = "none:sampling.kind=fixed,sampling.size=20"
    w = world("pfedrec", plan=plan, transcript=tapped("wire", rounds=frozenset({1, 2, 4})), **SETTINGS).train(5)
    found = w.simulation.transcript.joined("wire")
    wanted = {t: [u for u in AUDITED.tolist() if u in w.simulation.members(t)] for t in (1, 2, 4)}
    assert {o.round: o.users.tolist() for o in found} == {t: users for t, users in wanted.items() if users}


def test_copies_are_not_changed_by_later_rounds(world):
    w = world("gpfedrec", transcript=tapped("raw", "wire", "model"), **GP).train(1)
    before = [(o.tap, {k: v.clone() for k, v in o.tensors.items()}) for o in w.simulation.transcript.observations]
    w.train(3, first=1)
    for o, (tap, tensors) in zip(w.simulation.transcript.observations, before, strict=False):
        assert o.tap == tap
        assert all(o.tensors[name].equal(value) for name, value in tensors.items())


def test_what_was_saved_is_read_back(world, tmp_path):
    w = world("gpfedrec", transcript=tapped(*TAPS), chunk=7, **GP).train(3)
    transcript = w.simulation.transcript
    transcript.save(tmp_path / "taps")
    for tap in TAPS:
        wanted, found = transcript.joined(tap), load_observations(tmp_path / "taps", [tap])
        assert [(o.tap, o.round) for o in found] == [(o.tap, o.round) for o in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert one.users.equal(other.users)
            assert one.tensors.keys() == other.tensors.keys()
            assert all(one.tensors[name].equal(other.tensors[name]) for name in one.tensors)
    again = tapped(*TAPS)
    again.load(tmp_path / "taps", before=2)
    assert {o.round for o in again.observations} == {0, 1}
    assert again.joined("wire")[1].tensors["items"].equal(transcript.joined("wire")[1].tensors["items"])
