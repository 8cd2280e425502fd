"""How clients are grouped for speed decides no bit of what one client computes."""

import pytest
import torch

from privfed.data import SplitSpec, SyntheticSpec, generate, split
from privfed.engines.transcript import Transcript

CHUNKS = [1, 7, 16, None]
ROUNDS = 2
SETTINGS = {
    "fedmf": {"dim": 8, "batch_size": 16},
    "fedncf": {"dim": 8, "batch_size": 16, "hidden": (12, 5)},
    "pfedrec": {"dim": 8, "batch_size": 16},
    "gpfedrec": {"dim": 8, "batch_size": 16, "hidden": (12, 5)},
}


def run(world, name, chunk, rounds, **more):
    everybody = Transcript(torch.arange(90), frozenset({"raw"}))
    w = world(name, chunk=chunk, transcript=everybody, **(SETTINGS[name] | more))
    return w.train(rounds)


def uploads(w, block="items"):
    return torch.stack([o.tensors[block] for o in w.simulation.transcript.joined("raw")])


def same_bits(found, wanted):
    assert found.keys() == wanted.keys()
    for name in found:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture(scope="module")
def whole():
    """Runs with the default chunk, one per method, computed once."""
    return {}


def reference(whole, world, name, rounds, label="", **more):
    key = (name, rounds, label)
    if key not in whole:
        whole[key] = run(world, name, None, rounds, **more)
    return whole[key]


MORE = {
    "small": {},
    "pull that overwrites": {"reg": 1.2, "batch_size": 4},
    "released widths": {"graph": "distance", "dim": 32, "hidden": (32, 16, 8), "batch_size": 256},
}


@pytest.mark.parametrize("chunk", CHUNKS[:-1])
@pytest.mark.parametrize("more", MORE)
def test_gpfedrec_is_bit_equal_for_any_chunk_over_whole_rounds(world, whole, few_users, chunk, more):
    """Uploads, private state and, as the graph works on released uploads, everything the server makes of them."""
    settings = MORE[more] | ({"parts": few_users} if more != "small" else {})
    wanted = reference(whole, world, "gpfedrec", ROUNDS, more, **settings)
    equal(run(world, "gpfedrec", chunk, ROUNDS, **settings), wanted)


def test_gpfedrec_is_bit_equal_in_chunks_of_64_and_all_at_once(world):
    spec = SyntheticSpec(name="synthetic-more", n_users=90, n_items=50, mean_per_user=9, min_per_user=4)
    parts = split(generate(spec), SplitSpec())
    equal(*(run(world, "gpfedrec", chunk, ROUNDS, parts=parts) for chunk in (64, 90)))


def equal(found, wanted):
    assert uploads(found).equal(uploads(wanted))
    same_bits(found.clients.state(), wanted.clients.state())
    same_bits(found.server.state(), wanted.server.state())


@pytest.mark.parametrize("chunk", CHUNKS[:-1])
@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec"])
def test_one_round_is_bit_equal_on_devices_and_close_in_float_sums(world, whole, name, chunk):
    wanted, found = reference(whole, world, name, 1), run(world, name, chunk, 1)
    for block in wanted.server.schema:
        assert uploads(found, block).equal(uploads(wanted, block)), block
    same_bits(found.clients.state(), wanted.clients.state())
    for block, value in wanted.server.state().items():
        torch.testing.assert_close(found.server.state()[block], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["pfedrec", "gpfedrec"])
def test_a_device_alone_computes_what_it_computes_in_the_crowd(world, whole, name):
    """As on a phone: one client in the process, whoever else takes part."""
    wanted = reference(whole, world, name, 1)
    alone = run(world, name, None, 1, plan="none:sampling.kind=fixed,sampling.size=1")
    (user,) = alone.simulation.members(0).tolist()
    assert uploads(alone)[0, 0].equal(uploads(wanted)[0, user])
    for key, value in alone.clients.state().items():
        assert value[user].equal(wanted.clients.state()[key][user])


def test_counts_do_not_depend_on_chunks(world, whole):
    sums = [world("popularity", chunk=chunk).train(2).server.state()["counts"] for chunk in CHUNKS]
    assert all(s.equal(sums[0]) for s in sums)
    popularity = torch.from_numpy(world("popularity").data.positives.popularity())
    assert sums[0][:, 0].long().equal(popularity)
