"""The compiled loop against the tiles of torch, which are tested against autograd, and against its own promises."""

import pytest
import torch

from privfed.federation import Purpose
from privfed.methods.hetefedrec import client, kernel
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.published import AS_PUBLISHED

GENTLE = {"lr_items": 0.3, "lr_heads": 0.05, "lr_user": 0.02, "lr_bias": 0.3, "initial_scale": 0.1,
          "initial_user_scale": 0.1, "negatives": 7}  # fmt: skip
PUBLISHED = AS_PUBLISHED.settings | GENTLE | {"local_optimiser": "sgd", "user_optimiser": "sgd"}
SETTINGS = {
    "defaults": GENTLE,
    "user steps, a penalty": GENTLE | {"user_steps": 2, "steps": 2, "user_l2": 0.3},
    "two groups of odd widths, a slope below 0": GENTLE
    | {"widths": (3, 9), "shares": (0.6, 0.4), "hidden": (5, 3, 2), "activation": "leaky_relu"},
    "no hidden layer": GENTLE | {"widths": (5, 6, 7), "hidden": ()},
    "no inner product": GENTLE | {"inner": False},
    "published": PUBLISHED,
    "published, more steps": PUBLISHED | {"steps": 3, "user_steps": 1, "item_bias": True, "inner": True},
    "published, odd widths": PUBLISHED | {"widths": (3, 5, 11), "inner": True},
    "published, on a star": PUBLISHED | {"base": "lightgcn"},
    "star, user steps, an inner product": PUBLISHED
    | {"base": "lightgcn", "inner": True, "item_bias": True, "user_steps": 2, "widths": (3, 6, 9)},
    "Adam": AS_PUBLISHED.settings | {"negatives": 7, "steps": 3},
    "direct": GENTLE | {"variant": "direct"},
    "all small": GENTLE | {"variant": "all_small"},
    "all large": GENTLE | {"variant": "all_large"},
    "exclusive": GENTLE | {"variant": "exclusive"},
    "clustered": GENTLE | {"variant": "clustered", "aggregation": "contributors", "head_aggregation": "contributors"},
    "standalone": GENTLE | {"variant": "standalone", "standalone_steps": 3},
}


def trained(w, clients):
    """User vectors and updates of one local training of `clients` on the public start."""
    own = w.clients
    layout = own.layout
    if not layout.sending:
        layout = ModelLayout.from_config(own.config.model_copy(update={"variant": "clustered"}))
    samples = own._samples(clients, w.streams, 0, 0)
    assert 0 < int(samples.counts.min()) < kernel.COLUMNS < int(samples.counts.max()), "rows of one block, and of two"
    return own._trained(layout, clients, layout.schema(w.data.n_items), samples, w.server.public(),
                        torch.ones(len(clients), dtype=torch.bool), own.config.steps)  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
def test_compiled_clients_move_as_tiles_do(world, few_users, monkeypatch, settings):
    """User vectors and every block of every upload, to 2e-5 of the largest number and to a rounding of numbers near 1.

    Adam divides by gradients that now and then all but cancel, which costs digits of one number in a thousand.
    """
    found = {}
    for compiled in (True, False):
        w = world("hetefedrec", parts=few_users, **SETTINGS[settings])
        # Somewhere off the start: item biases begin at 0.
        for value in w.server.parameters.values():
            value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
        monkeypatch.setattr(client, "compiled_for", lambda _, compiled=compiled: compiled)
        result = trained(w, torch.arange(w.data.n_users))
        found[compiled] = {name: result.updates.stacked(name) for name in result.updates.schema}
        found[compiled]["user"] = result.user
    for name, wanted in found[False].items():
        most = float(wanted.abs().max())
        assert most > 0
        far = (found[True][name] - wanted).abs() > 2e-5 * most + 2e-7
        assert float(far.float().mean()) <= (1e-3 if settings == "Adam" else 0), name


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_client_whose_training_breaks_down_leaves_no_trace(world, few_users, settings):
    w = world("hetefedrec", parts=few_users, **SETTINGS[settings])
    everybody = torch.arange(w.data.n_users)
    alone = trained(w, everybody)
    vectors = w.clients.private.rows(everybody)["user"]
    vectors[::3] = torch.nan
    w.clients.load({"user": vectors})
    beside = trained(w, everybody)
    sound = everybody % 3 != 0
    assert bool(beside.user[~sound].isnan().any(1).all())
    assert beside.user[sound].equal(alone.user[sound])
    for name in alone.updates.schema:
        assert beside.updates.stacked(name)[sound].equal(alone.updates.stacked(name)[sound]), name


def test_words_in_their_order_draw_the_samples(world):
    """One item after the other, as the first words say that name one that is free."""
    w = world("hetefedrec", excluded="all", negatives=5)
    clients = torch.arange(w.data.n_users)
    samples = w.clients._samples(clients, w.streams, 4, 2)
    for user in clients.tolist():
        own, excluded = set(w.data.positives.items_of(user).tolist()), set(w.data.excluded.items_of(user).tolist())
        free = set(range(w.data.n_items)) - own - excluded
        wanted = min(5 * len(own), len(free))
        leave_out, drawn = 2 * wanted > len(free), set()
        for word in w.streams.words(Purpose.SAMPLES, 4, 2, [user], 4000)[0].tolist():
            if len(drawn) == (len(free) - wanted if leave_out else wanted):
                break
            drawn |= free & {word * w.data.n_items >> 32}
        items = own | (free - drawn if leave_out else drawn)
        mine = samples.owner == user
        assert samples.items[mine].tolist() == sorted(items)
        assert samples.labels[mine].tolist() == [float(item in own) for item in sorted(items)]
    assert samples.counts.tolist() == torch.bincount(samples.owner).tolist()
