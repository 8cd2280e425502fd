"""FAIR in the federation: privacy plans, tiers that are too small, chunks, devices' memory, ratings, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.contracts import Block, UpdateError, upload_bytes
from privfed.data import Histories
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.experiment import Experiment
from privfed.federation import Call, Streams
from privfed.guards import ClientGuard
from privfed.methods import ClientData, PublicInfo, method
from privfed.methods.fair import METHOD, RatingsError, device_memory
from privfed.methods.fair.attack_surface import item_rows
from privfed.methods.fair.message import PLACES
from privfed.methods.fair.subspaces import CapacityError, group_tiers
from privfed.methods.fair.tiers import Tiers
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from privfed.updates import ClientUpdates

SMALL = {"epochs": 2, "batch_size": 16, "lr": 0.01, "initial_scale": 0.3}
TIER = {"placement": "tier", "scheme": "1x-2x-4x"}


def states(world):
    return world.server.state() | world.clients.state()


def close(found, wanted, atol=1e-6):
    assert found.keys() == wanted.keys()
    for name in found:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def test_it_is_registered():
    assert method("fair") is METHOD


def test_recommendations_become_better(world):
    """Training positives rise above the other items."""
    w = world("fair", **(SMALL | {"lr": 0.02, "initial_scale": 0.1}))
    held = torch.from_numpy(w.data.positives.mask(np.arange(45)))

    def lead():
        users = torch.arange(45)
        s = w.clients.score(users, w.server.public().addressed_to(users), None, None)
        return float(s[held].mean() - s[~held].mean())

    before = lead()
    w.train(20)
    assert lead() > before + 0.4


@pytest.mark.parametrize("short", ["demote", "lift"])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_a_sum_for_each_tier_is_one_sum_where_no_tier_is_short(world, short, weights):
    """Levels, weights and pull are the same; only the basis in which sums are taken differs."""
    more = {"weights": weights, "shares": "realised", **SMALL}
    server = world("fair", **(TIER | more | {"placement": "server"})).train(2)
    tier = world("fair", **(TIER | more | {"short": short})).train(2)
    close(states(tier), states(server))


@pytest.mark.parametrize("min_tier", [1, 3])
def test_expected_shares_need_no_count(world, min_tier):
    """Everybody takes part and tiers are equal, so the expected shares are the realised ones."""
    server = world("fair", scheme="1x-2x-4x", **SMALL).train(2)
    tier = world("fair", min_tier=min_tier, **TIER, **SMALL).train(2)
    close(states(tier), states(server))


ALONE = {"min_tier": 16, **TIER, **SMALL}
"""45 users in three tiers of 15: none has 16."""


def places(w):
    """What the server told devices in the last round."""
    seen = []

    def look(clients, call, message, updates):
        if call.step == "train":
            seen.append((message.shared[PLACES].tolist(), updates))

    w.simulation.observers.append(look)
    return seen


def test_larger_devices_are_demoted(world):
    w = world("fair", short="demote", **ALONE)
    seen = places(w)
    w.train(1)
    # Tiers 4x and 2x meet at 4x with 30 members; the 15 of 1x are left over and join them.
    assert seen[0][0] == [[2, 2], [2, 2], [2, 2]]
    small = world("fair", variant="hom", scheme="1x-2x-4x", **SMALL).train(1)
    for name, value in small.server.state().items():
        torch.testing.assert_close(w.server.state()[name], value, rtol=0, atol=1e-6)


def test_smaller_devices_are_lifted(world):
    """Only 4x is short; its update is sent in the basis of 2x, and nothing is lost."""
    scheme = "1x:0.4-2x:0.4-4x:0.2"
    w = world("fair", short="lift", **(ALONE | {"scheme": scheme}))
    seen = places(w)
    w.train(1)
    assert seen[0][0] == [[0, 0], [1, 1], [2, 1]]
    sent = {part.block for part in seen[0][1].parts}
    assert not {block for block in sent if block.startswith("tier.2")}
    close(states(w), states(world("fair", scheme=scheme, **SMALL).train(1)))


def test_nobody_is_lifted_to_hide_a_larger_tier_that_is_short(world):
    """1x has too few, and no smaller device could hide them: they train at 2x; then 4x is lifted."""
    w = world("fair", short="lift", **ALONE)
    seen = places(w)
    w.train(1)
    assert seen[0][0] == [[1, 1], [1, 1], [2, 1]]


def test_short_tiers_sit_out(world):
    """With shares of 30, 10 and 5 users and 16 needed, only the first tier is summed."""
    scheme = "1x:0.667-2x:0.223-4x:0.11"
    w = world("fair", short="skip", **(ALONE | {"scheme": scheme}))
    before = w.clients.state()
    seen = places(w)
    w.train(1)
    assert seen[0][0] == [[0, 0], [-1, -1], [-1, -1]]
    levels = w.clients.tiering.of_user
    moved = (w.clients.state()["user.mlp"] != before["user.mlp"]).any(1)
    assert moved.equal(levels == 0)
    alone = world("fair", variant="full_trn", shares="realised", **(SMALL | {"scheme": scheme})).train(1)
    close(states(w), states(alone))


def test_a_round_in_which_nothing_can_be_summed_changes_nothing(world):
    w = world("fair", **(ALONE | {"min_tier": 46}))
    before = w.server.state()
    w.train(1)
    close(w.server.state(), before, atol=0)


@pytest.mark.parametrize("blocks", ["all", "held"])
@pytest.mark.parametrize("settings", [{}, TIER, TIER | {"weights": "samples"}], ids=str)
def test_a_secure_sum_is_the_plain_sum(world, settings, blocks):
    norm = 1e5 if "weights" in settings else 1e3
    plan = f"secure-sum:clip_norm={norm},bits=64,blocks={blocks}"
    close(states(world("fair", plan=plan, **settings, **SMALL).train(2)),
          states(world("fair", **settings, **SMALL).train(2)))  # fmt: skip


def test_clipped_norms_are_the_same_in_every_basis(world):
    """Blocks of tiers carry the weight of their basis, so a joint clip acts as in the server's basis."""
    plan = "secure-sum:clip_norm=0.05,bits=64"
    even = {"scheme": "1x-2x-4x", "shares": "realised", **SMALL}
    server = world("fair", plan=plan, **even).train(1)
    tier = world("fair", plan=plan, placement="tier", **even).train(1)
    close(states(tier), states(server), atol=1e-5)


PLANS = [
    "central-gaussian:clip_norm=1,noise_multiplier=2",
    "central-gaussian:clip_norm=1,noise_multiplier=2,sampling.kind=poisson,sampling.rate=0.5",
    "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=30",
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("settings", [{}, {"variant": "heterofl"}, TIER | {"min_tier": 1}], ids=str)
def test_user_level_guarantees_are_finite(world, plan, settings):
    w = world("fair", plan=plan, **settings, **SMALL).train(2)
    assert 0 < w.ledger.guarantee().epsilon < 100
    assert all(torch.isfinite(value).all() for value in w.server.state().values())


@pytest.mark.parametrize("settings", [TIER, {"shares": "realised"}, {"weights": "samples"}], ids=str)
def test_counts_and_weights_are_refused_where_something_is_guaranteed(world, settings):
    with pytest.raises(PlanError):
        world("fair", plan=PLANS[0], **settings, **SMALL).train(1)


REFUSED = [
    ({"placement": "tier", "variant": "fedhm"}, "do not add up"),
    ({"min_tier": 3, "short": "lift"}, "there is one: use 'demote'"),
    ({"placement": "tier", "variant": "heterofl"}, "has no subspaces"),
    ({"placement": "tier", "subspace": "signed"}, "slots of equal weight"),
    ({"variant": "full_trn", "scheme": "2x-4x"}, "add 1x"),
    ({"variant": "fedhm", "budgets": (10**9,)}, "give a scheme"),
    ({"scheme": "3x"}, "powers of two"),
    ({"proximal": 1.5}, "less than or equal to 1"),
    ({"hidden": ()}, "at least 1 item"),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED, ids=str)
def test_refused_settings(settings, said):
    with pytest.raises(ValueError, match=said):
        METHOD.config(**settings)


def test_refused_data(small_split):
    streams, config = Streams.from_seed(1), METHOD.config(task="rating")
    positives = small_split.train
    with pytest.raises(RatingsError, match="have none"):
        METHOD.training.clients(config, ClientData(positives, positives), streams)
    with pytest.raises(CapacityError, match="known on devices only"):
        Tiers.from_config(METHOD.config(assigned="activity"), 10, 70).levels_of(torch.arange(2))
    with pytest.raises(CapacityError, match="numbers at most 2147483647"):
        Tiers.from_config(METHOD.config(scheme="1x-4x", dim=4), 10, 2**29)
    assert Tiers.from_config(METHOD.config(scheme="4x-8x", dim=4), 10, 2**29).levels == (2, 3)


SETTINGS = {
    "fair": {"scheme": "1x-2x-8x"},
    "odd widths": {"scheme": "1x-4x", "dim": 5, "hidden": (7, 3), "batch_size": 11},
    "tier": TIER,
    "fedhm": {"variant": "fedhm", "scheme": "1x-4x"},
    "heterofl": {"variant": "heterofl", "scheme": "1x-4x"},
    "signed": {"subspace": "signed"},
}


def taps(world, chunk, settings):
    everybody = Transcript(torch.arange(45), frozenset({"raw"}), step="train")
    w = world("fair", chunk=chunk, transcript=everybody, **(SMALL | settings)).train(1)
    return w, w.simulation.transcript.joined("raw")


@pytest.mark.parametrize("name", SETTINGS)
def test_uploads_and_private_state_do_not_depend_on_chunks(world, name):
    wanted, all_at_once = taps(world, 45, SETTINGS[name])
    for chunk in (1, 7, 16):
        found, pieces = taps(world, chunk, SETTINGS[name])
        for block in wanted.server.schema:
            one, other = (torch.cat([o.tensors[block] for o in taken]) for taken in (all_at_once, pieces))
            assert one.equal(other), block
        close(found.clients.state(), wanted.clients.state(), atol=0)
        close(found.server.state(), wanted.server.state())


def raw(world, **settings):
    """A method's halves, a call to everybody, the message and the updates."""
    w = world("fair", **(SMALL | settings))
    users = torch.arange(45)
    message = w.server.public().addressed_to(users)
    call = Call(0, 0, "train", 0, users, w.streams, w.server.schema)
    return w, call, message, w.clients.train(call, message)


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_speak_of_the_dense_blocks_that_they_stand_for(world, name):
    w, call, _, updates = raw(world, **SETTINGS[name])
    everyone = torch.arange(45)
    dense = updates.materialise(everyone)
    for order in (1, 2):
        powers = [(values.double() * w.server.schema[b].weight).abs().pow(order).flatten(1).sum(1)
                  for b, values in dense.items()]  # fmt: skip
        wanted = torch.stack(powers, 1)
        torch.testing.assert_close(updates.norm_powers(order), wanted, rtol=1e-5, atol=1e-9)
    sums = {block: torch.zeros(b.shape, dtype=torch.float64) for block, b in w.server.schema.items()}
    updates.add_to(sums)
    for block, values in dense.items():
        torch.testing.assert_close(sums[block], values.sum(0, dtype=torch.float64), rtol=0, atol=1e-5)
        assert updates.materialise(torch.tensor([3, 1]))[block].equal(values[[3, 1]])
    tables = [block for block in dense if block.startswith(("items", "tier"))]
    for block in tables:
        owner, ids = torch.tensor([0, 7, 7, 30]), torch.tensor([1, 0, 3, 2])
        torch.testing.assert_close(updates.rows_at(block, owner, ids), dense[block][owner, ids])
    factors = torch.rand(45, generator=torch.Generator().manual_seed(1))
    scaled = updates.scale_(factors).materialise(everyone)
    for block, values in dense.items():
        torch.testing.assert_close(scaled[block], values * factors.view(-1, *[1] * (values.dim() - 1)))
    assert updates.finite()
    assert ClientUpdates(call.clients, call.schema, updates.parts).nbytes <= 45 * upload_bytes(w.server.schema)


def test_uploads_that_fit_no_block_are_refused(world):
    w, _, _, updates = raw(world)
    from privfed.methods.fair.parts import TablePart

    part = updates.parts[0]
    for block, clients, said in [
        (Block((70, 9)), 45, "the update makes"),
        (w.server.schema[part.block], 3, "positions 0..2"),
    ]:
        with pytest.raises(UpdateError, match=said):
            part.check(block, clients)
    with pytest.raises(UpdateError, match="twice"):
        TablePart(part.block, [*part.groups, part.groups[0]]).check(w.server.schema[part.block], 45)
    part.groups[0].values[0] = torch.nan
    assert not updates.finite()


@pytest.mark.parametrize("name", [*SETTINGS, "samples"])
def test_a_device_scores_by_its_own_tables_right_after_training(world, name):
    """Its version of the tables, changed by what it uploads, with its own layers and staged rows."""
    from privfed.methods.fair.neumf import scores
    from privfed.methods.fair.spaces import from_block

    settings = SETTINGS.get(name, {"weights": "samples"})
    w, _, message, updates = raw(world, **settings)
    users = torch.arange(45)
    found = w.clients.score(users, message, updates, None)
    some = torch.tensor([[5, 69, 0]]).expand(45, 3)
    torch.testing.assert_close(w.clients.score(users, message, updates, some), found[:, [5, 69, 0]])
    tiering, model = w.clients.tiering, w.clients.model
    share = 1 / torch.from_numpy(w.data.positives.counts).float() if name == "samples" else torch.ones(45)
    staged, dense = w.clients.private.staged(users), updates.materialise(users)
    for user in (0, 20, 44):
        level, tables = int(tiering.of_user[user]), {}
        for table in model.tables:
            if "placement" in settings:
                change = from_block(dense[f"tier.{level}.{table}"][user], tiering.subspaces[level][table])
            else:
                change = dense[f"items.{table}"][user]
            received = tiering.spaces[level][table].project(message.shared[f"items.{table}"])
            tables[table] = received + change * share[user]
        p = {key: rows[user : user + 1] for key, rows in staged.items()}
        p |= {key: message.shared[key] + dense[key][user] * share[user] for key in model.shapes()}
        torch.testing.assert_close(scores(model, p, tables)[0], found[user], rtol=1e-4, atol=1e-5)


def test_what_is_received_is_the_server_s_model_or_what_a_tier_holds_of_it(world):
    users = torch.arange(45)
    server, device = (world("fair", scoring=where, **SMALL).train(1) for where in ("server", "device"))
    close(states(server), states(device), atol=0)
    found = [w.clients.score(users, w.server.public().addressed_to(users), None, None) for w in (server, device)]
    same = (found[0] - found[1]).abs().amax(1) < 1e-6
    assert same.equal(server.clients.tiering.of_user == 0)


def test_item_rows_are_what_uploads_recover_to(world):
    w, _, _, server = raw(world, scheme="1x-2x-4x")
    rows = item_rows(w.clients.config, w.server.schema, server.materialise(torch.arange(45)))
    assert rows.shape == (45, 70, 16)
    w, _, _, tier = raw(world, scheme="1x-2x-4x", placement="tier")
    found = item_rows(w.clients.config, w.server.schema, tier.materialise(torch.arange(45)))
    torch.testing.assert_close(found, rows)
    with pytest.raises(UpdateError, match="with a copy of the schema"):
        item_rows(w.clients.config, dict(w.server.schema), tier.materialise(torch.arange(2)))
    blocks = METHOD.attack_surface.item_blocks(w.clients.config, w.server.schema).read(
        tier.materialise(torch.arange(2))
    )
    torch.testing.assert_close(blocks["uploads"], rows[:2])


def test_what_is_disclosed():
    said = METHOD.disclosure.side_disclosures(METHOD.config(assigned="activity"))
    assert "no protection" in said[0]
    assert "how active" in said[1]
    assert (
        len(METHOD.disclosure.side_disclosures(METHOD.config(variant="hom")))
        == len(METHOD.disclosure.side_disclosures(METHOD.config(budgets=(10**9,))))
        == 1
    )
    assert len(METHOD.disclosure.side_disclosures(METHOD.config(budgets=(10**6, 10**9)))) == 3


@pytest.mark.parametrize(
    ("settings", "sentences"),
    [
        ({}, ["by each other only"]),
        ({"variant": "fedhm"}, ["lies nearly in a subspace"]),
        ({"variant": "full_trn"}, ["of one it is that device's update"]),
        ({"variant": "heterofl"}, ["summed over the others only"]),
        ({"min_tier": 4}, ["its own tier or a larger one: 4 or more", "How many clients of a round"]),
        ({"placement": "tier"}, ["of 3 devices or more", "How many clients of a round"]),
        ({"placement": "tier", "min_tier": 1}, ["as few as 1 devices"]),
        ({"placement": "tier", "min_tier": 2}, ["as few as 2 devices", "How many clients of a round"]),
        ({"shares": "realised"}, ["by each other only", "How many clients of a round"]),
        ({"weights": "samples"}, ["by each other only", "interactions of each tier's clients"]),
    ],
    ids=str,
)
def test_sums_of_few_are_disclosed(settings, sentences):
    said = METHOD.disclosure.side_disclosures(METHOD.config(**settings))[2:]
    assert len(said) == len(sentences)
    assert all(part in sentence for part, sentence in zip(sentences, said, strict=True))


def test_one_sum_for_all_tiers_hides_large_devices_among_each_other_only(world):
    """What the statement says: projected off the small tier's subspace, the sum is that of the one 1x device."""
    w = world("fair", scheme="1x-4x", **SMALL)
    level = w.clients.tiering.of_user
    users = torch.cat([(level == 0).nonzero()[:1, 0], (level == 2).nonzero()[:15, 0]])
    call = Call(0, 0, "train", 0, users, w.streams, w.server.schema)
    uploads = w.clients.train(call, w.server.public().addressed_to(users)).materialise(torch.arange(16))
    for name, space in w.server.tiers.subspaces[2].items():
        table = uploads[f"items.{name}"].double()
        left = [values - space.project(values) for values in (table.sum(0), table[0])]
        torch.testing.assert_close(left[0], left[1], rtol=0, atol=1e-6)
        assert left[1].norm() > 0.5 * table[0].norm()


@pytest.mark.parametrize("variant", ["fair", "heterofl", "fedhm"])
def test_with_a_minimum_a_short_large_tier_trains_like_the_smaller_one(world, variant):
    """A tier has fewer than 30 of 45 users; asked for 30, everybody trains as 4x devices do."""
    together = world("fair", variant=variant, scheme="1x-4x", min_tier=30, **SMALL)
    levels = together.clients.tiering.of_user
    assert 0 < int((levels == 0).sum()) < 30 or 0 < int((levels == 2).sum()) < 30
    grouping = group_tiers({0: int((levels == 0).sum()), 2: int((levels == 2).sum())}, 30, "demote")
    seen, ask = [], together.simulation.aggregate

    def look(step, cohort, message, schema):
        seen.append((step, message.shared.get(PLACES)))
        return ask(step, cohort, message, schema)

    together.simulation.aggregate = look
    together.train(1)
    assert [step for step, _ in seen] == ["tiers", "train"]
    trained = {level: int(row[0]) for level, row in zip((0, 2), seen[1][1], strict=True)}
    assert trained == {level: max(level, basis) for level, basis in grouping.basis.items() if basis is not None}
    assert set(trained.values()) == {2}
    alone = world("fair", variant=variant, scheme="1x-4x", **SMALL).train(1)
    changed = [name for name, value in states(alone).items() if not torch.equal(value, states(together)[name])]
    assert "items.mlp" in changed


def test_a_round_below_the_minimum_changes_nothing(world):
    w = world("fair", min_tier=46, **SMALL)
    before = {name: value.clone() for name, value in states(w).items()}
    close(states(w.train(1)), before, atol=0)


def moves(world, parts, plan, **settings):
    """The furthest that one user's data, left out, moves the clipped sum, in weighted coordinates."""
    guard = ClientGuard(PrivacyPlan.parse(plan), Streams.from_seed(0))

    def total(split):
        w, users = world("fair", parts=split, scheme="1x-4x-16x", **(SMALL | settings)), torch.arange(18)
        call = Call(0, 0, "train", 0, users, w.streams, w.server.schema)
        updates = w.clients.train(call, w.server.public().addressed_to(users))
        guard.clip_(updates)
        sums = updates.materialise(users)
        return torch.cat([(v.double().sum(0) * w.server.schema[b].weight).flatten() for b, v in sums.items()])

    def without(user):
        rows = [(o, i) for o, i in zip(parts.train.owners, parts.train.items, strict=True) if o != user]
        owners, items = (np.array(column) for column in zip(*rows, strict=True))
        train = Histories.from_pairs(owners, items, parts.train.n_users, parts.train.n_items)
        return replace(parts, train=train)

    everybody = total(parts)
    return max(float((everybody - total(without(user))).norm()) for user in range(18))


PLACEMENTS = [{}, {"placement": "tier", "min_tier": 1}, {"variant": "fedhm"}, {"subspace": "signed"}]


@pytest.mark.parametrize("settings", PLACEMENTS, ids=str)
def test_a_user_s_data_move_the_sum_by_the_clip_at_most(world, few_users, settings):
    assert 0.5 < moves(world, few_users, PLANS[0], lr=0.1, **settings) <= 1 + 1e-5


def test_tiers_by_activity_are_refused_where_something_is_guaranteed(world, few_users, small_split):
    """With one user's data others change tiers, and the sum moves further than one clip."""
    assert moves(world, few_users, PLANS[0], lr=0.1, assigned="activity") > 1.5
    config = ExperimentConfig(
        method={"name": "fair", "assigned": "activity"}, privacy=PrivacyPlan.parse(PLANS[0]), rounds=1
    )
    with pytest.raises(PlanError, match="move other users too"):
        Experiment(config, small_split)
    for settings in ({"assigned": "activity", "variant": "hom"}, {"assigned": "random"}):
        Experiment(config.model_copy(update={"method": {"name": "fair", **settings}}), small_split)
    Experiment(config.model_copy(update={"privacy": PrivacyPlan.named("none")}), small_split)


def test_bytes_down_are_those_of_the_tiers(world):
    w = world("fair", scheme="1x-4x", **SMALL).train(1)
    layers, table = w.clients.model.size, 70 * 8
    each = {level: 4 * (2 * table // 2**level + layers) for level in (0, 2)}
    counts = {level: int((w.clients.tiering.of_user == level).sum()) for level in (0, 2)}
    total = sum(each[level] * count for level, count in counts.items())
    assert w.simulation.costs.down_bytes == pytest.approx(total, abs=45 * 3)
    assert METHOD.training.program(w.server)[-1].down_bytes == pytest.approx(total / 45, abs=1)
    unknown = world("fair", scheme="1x-4x", assigned="activity", **SMALL).train(1)
    assert unknown.simulation.costs.down_bytes == pytest.approx(total, abs=45 * 3)


def test_both_queries_are_announced(world):
    server = world("fair", **TIER).server
    first, second = METHOD.training.program(server)
    assert (list(first.schema), first.schema["tiers"].counts) == (["tiers"], True)
    assert second.schema is server.schema
    assert len(METHOD.training.program(world("fair", **(TIER | {"min_tier": 1})).server)) == 1


@pytest.mark.parametrize("interactions", [40, 400])
def test_devices_stay_within_their_budgets(interactions):
    """What the arrays of training take, at every budget, with room set aside for interactions."""
    budgets = (64_000, 200_000, 1_000_000, 20_000_000)
    config = METHOD.config(budgets=budgets, interactions=interactions)
    tiers = Tiers.from_config(config, 40, 20_000)
    level_of = dict(zip(budgets, sorted(tiers.levels, reverse=True), strict=True))
    assert tiers.levels[0] == 0
    for budget, level in level_of.items():
        memory = device_memory(config, tiers.spaces[level], 20_000, interactions)
        assert memory.total <= budget
        if level:
            larger = Tiers.from_config(config, 40, 20_000).subspaces
            assert larger[level]["mlp"].size * 2 * 5 * 4 * 2 + memory.working > budget - 8000


def test_budgets_decide_levels_of_a_run(world):
    w = world("fair", budgets=(45_000, 10**6), **SMALL).train(1)
    assert w.server.tiers.levels[0] == 0
    assert w.server.tiers.levels[1] > 0
    with pytest.raises(CapacityError, match="was given"):
        world("fair", budgets=(100,))


def test_memory_is_that_of_the_arrays_in_use(world, monkeypatch):
    """One client alone: what the trainer lays out is what is counted."""
    from privfed.methods.fair import kernel

    taken, trainer = {}, kernel.train

    def look(net, at, known, stored, changes, scratch):
        moving = scratch._asdict()
        kept = sum(moving.pop(name).nbytes for name in ("trained", "slots", "slot_position"))
        taken["optimiser"] = sum(moving.pop(name).nbytes for name in list(moving)[:6])
        taken["working"] = sum(array.nbytes for array in moving.values())
        taken["trained"] = kept + changes.dense.nbytes
        trainer(net, at, known, stored, changes, scratch)

    for settings in ({}, {"variant": "hom"}, {"subspace": "signed"}, {"variant": "fedhm"}, {"scheme": "1x-16x"}):
        w = world("fair", **SMALL, **settings)
        monkeypatch.setattr(kernel, "train", look)
        for user in (0, 20, 44):
            w.clients.train(Call(0, 0, "train", 0, torch.tensor([user]), w.streams, w.server.schema), w.server.public())
            level, tiering = int(w.clients.tiering.of_user[user]), w.clients.tiering
            counted = device_memory(tiering.config, tiering.spaces[level], 70, int(w.data.positives.counts[user]))
            assert {name: getattr(counted, name) for name in taken} == taken
        monkeypatch.setattr(kernel, "train", trainer)


def test_ratings_are_learnt():
    """Ratings of a low-rank world: squared error on held-out pairs falls well below that of a constant."""
    rng = np.random.default_rng(2)
    users, items = 40, 60
    truth = 3 + (rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))).clip(-2, 2)
    held = rng.random((users, items)) < 0.5
    user, item = np.nonzero(held)
    histories = Histories.from_pairs(user, item, users, items)
    data = ClientData(histories, histories, ratings=truth[held].astype(np.float32))
    config = METHOD.config(task="rating", scheme="1x-2x", lr=0.02, rating_offset=3.0, batch_size=64, initial_scale=0.1)
    streams = Streams.from_seed(1)
    server = METHOD.training.server(config, PublicInfo(users, items), streams)
    clients = METHOD.training.clients(config, data, streams)
    plan = PrivacyPlan.named("none")
    simulation = Simulation(clients, plan, users, streams, Ledger(plan, users))
    for t in range(40):
        simulation.run(server, t)
    everybody = torch.arange(users)
    found = clients.score(everybody, server.public().addressed_to(everybody), None, None).numpy()
    error = ((found - truth)[~held] ** 2).mean()
    assert error < 0.6 * truth[~held].var()


def test_negatives_are_uniform_over_what_is_not_barred(world):
    """Untouched rows of a full device are those that never came up: none of them barred ones, and others evenly."""
    w, _, _, updates = raw(world, variant="fedavg", epochs=60, batch_size=512, lr=1e-4)
    sent = updates.materialise(torch.arange(45))["items.mlp"].abs().sum(2) > 0
    assert float(sent.float().mean()) > 0.95
    apart = ClientData(w.data.positives, w.data.positives.complement())
    streams = Streams.from_seed(1)
    config = METHOD.config(variant="fedavg", **SMALL)
    clients = METHOD.training.clients(config, ClientData(apart.positives, _all_but_one(apart)), streams)
    call = Call(0, 0, "train", 0, torch.arange(45), streams, w.server.schema)
    changed = clients.train(call, w.server.public()).materialise(torch.arange(45))["items.mlp"].abs().sum(2) > 0
    held = torch.from_numpy(w.data.positives.mask(np.arange(45)))
    assert (changed & ~held).sum(1).eq(1).all()


def _all_but_one(data):
    """Everything barred but one item that the user does not have: it is every negative."""
    rest = data.excluded
    keep = np.ones(len(rest.items), bool)
    keep[rest.indptr[:-1]] = False
    others = Histories.from_pairs(rest.owners[keep], rest.items[keep], rest.n_users, rest.n_items)
    return others.union(data.positives)


@pytest.mark.parametrize("epochs", [1, 4])
def test_the_declared_share_of_positives_is_that_of_the_rows_that_uploads_touch(world, epochs):
    """Every epoch draws new negatives; some are drawn twice, so the share is a little above the declared one."""
    w, _, _, sent = raw(world, variant="fedavg", epochs=epochs)
    declared = METHOD.training.negatives(METHOD.config(epochs=epochs)).positive_share
    assert declared == 1 / (1 + epochs)
    rows = item_rows(w.clients.config, w.server.schema, sent.materialise(torch.arange(45)))
    touched = rows.any(2).sum(1)
    few = torch.from_numpy(w.data.positives.counts <= 6)
    share = torch.from_numpy(w.data.positives.counts)[few] / touched[few]
    assert bool((share >= declared - 1e-9).all())
    assert float(share.mean()) < 1.35 * declared
    assert METHOD.training.negatives(METHOD.config(task="rating")) is None
