"""From a run to attack rows: which block plays which role, which attacks apply, and what devices show."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.membership import BIAS_ATTACKS, CORE_ATTACKS, INPUT_ROW_ATTACKS
from privfed.audit.attack_runs.attack_run import (
    RunFindings,
    applicable,
    attack,
    attack_run,
    attack_scores,
    attack_trained,
    views,
)
from privfed.audit.report.records import AttackRow
from privfed.contracts import Block
from privfed.engines.transcript import PROXIMAL, Observation
from privfed.experiment import Experiment
from privfed.methods import methods
from privfed.methods.attack_surface import BlockError, ItemBlocks, NamedBlocks, NoItemRows
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

AUTOENCODER = ItemBlocks("decoder.1.weight", "encoder.0.weight", "decoder.1.bias")
ROLES = {
    "output": "decoder.*.weight",
    "input": "encoder.0.weight",
    "bias": "decoder.*.bias",
}


def layers(depth, items=70):
    """Schema of an autoencoder with `depth` decoder layers."""
    return {
        "encoder.0.weight": Block((items, 8)),
        "encoder.0.bias": Block((8,)),
        **{f"decoder.{i}.{part}": Block((9, 9)) for i in range(depth - 1) for part in ("weight", "bias")},
        f"decoder.{depth - 1}.weight": Block((items, 8)),
        f"decoder.{depth - 1}.bias": Block((items,)),
    }


@pytest.mark.parametrize("depth", [1, 3, 11])
def test_a_star_means_the_last_layer_however_deep(depth):
    found = NamedBlocks(**ROLES).item_blocks(None, layers(depth))
    assert found == ItemBlocks(f"decoder.{depth - 1}.weight", "encoder.0.weight", f"decoder.{depth - 1}.bias")


def test_every_registered_method_names_blocks_that_it_has(small_split):
    for name, registered in methods().items():
        schema = Experiment(ExperimentConfig(method={"name": name}), small_split).server.schema
        blocks = registered.attack_surface.item_blocks(registered.config(), schema)
        if blocks is None:
            assert isinstance(registered.attack_surface, NoItemRows)
            continue
        if blocks.rows is not None:
            zeros = {block: torch.zeros(2, *declared.shape) for block, declared in schema.items()}
            assert blocks.read(zeros)["uploads"].shape[:2] == (2, 70)
        named = [block for block in (blocks.output, blocks.input, blocks.bias) if block is not None]
        assert [schema[block].shape[0] for block in named] == len(named) * [70]
    with pytest.raises(BlockError, match=r"names the block 'decoder\.\*\.bias', .* declares items;"):
        NamedBlocks("items", bias="decoder.*.bias").item_blocks(None, {"items": Block((3, 2))})


def autoencoded(sim, split, rounds=(2, 5)):
    """Observations of an autoencoder's uploads by 20 users, of whom the third misses the last round."""
    users = np.arange(1, 21)
    train, rng = split.train.mask(users), np.random.default_rng(0)
    names = {"uploads": "decoder.1.weight", "inputs": "encoder.0.weight", "bias": "decoder.1.bias"}
    out = []
    for number in rounds:
        who = users if number != rounds[-1] else np.delete(users, 2)
        blocks = sim.vae_uploads(rng, train[np.searchsorted(users, who)], steps=3)
        tensors = {names[role]: torch.from_numpy(block) for role, block in blocks.items()}
        out.append(Observation("wire", number, torch.from_numpy(who), tensors))
    return out, users


def test_every_block_comes_to_its_role_and_its_user(sim, small_split):
    observations, users = autoencoded(sim, small_split)
    first, last = views(observations, users, AUTOENCODER)
    assert (first.round, last.round) == (2, 5)
    assert first.proximal is None
    for view, seen in ((first, observations[0]), (last, observations[1])):
        here = np.isin(users, seen.users)
        assert (view.present() == here).all()
        assert (view.uploads[here] == seen.tensors["decoder.1.weight"].numpy()).all()
        assert (view.inputs[here] == seen.tensors["encoder.0.weight"].numpy()).all()
        assert (view.bias[here] == seen.tensors["decoder.1.bias"].numpy()).all()
    pulled = replace(observations[0], tensors={"items": torch.ones(20, 70, 3), PROXIMAL: torch.full((20, 70, 3), 2.0)})
    (view,) = views([pulled], users, ItemBlocks("items"))
    assert (view.proximal == 2).all()
    assert view.inputs is view.bias is None


def test_attacks_apply_by_the_blocks_that_are_seen(sim, small_split):
    assert applicable(ItemBlocks("items")) == CORE_ATTACKS
    assert applicable(AUTOENCODER) == CORE_ATTACKS + INPUT_ROW_ATTACKS + BIAS_ATTACKS
    observations, users = autoencoded(sim, small_split)
    rows = attack(observations, "wire", small_split, users, AUTOENCODER)
    assert len(rows) == 2 * len(CORE_ATTACKS + INPUT_ROW_ATTACKS + BIAS_ATTACKS)
    assert {row.scope for row in rows} == {ALL_ITEMS}
    found = {(row.attack, row.game.split()[2]): row for row in rows}
    for game in ("never", "held-out"):
        assert found["decoder bias", game].auc.value == 1
        assert found["decoder bias", game].n_users == 19
        assert found["popularity", game].auc.value < 0.9
    assert found["multi-round vote of decoder bias", "never"].rounds == [3, 6]
    assert found["input row support", "never"].auc.value > 0.9


def test_a_name_alone_is_the_block_with_one_row_per_item(sim, small_split):
    observations, users = autoencoded(sim, small_split)
    rows = attack(observations, "wire", small_split, users, "decoder.1.weight")
    assert {row.attack for row in rows} == {a.name for a in CORE_ATTACKS}
    assert {row.scope for row in rows} == {ALL_ITEMS, TOUCHED_ITEMS}


def experiment(split, plan="none", **taps):
    config = ExperimentConfig(
        method={"name": "fedmf"},
        privacy=PrivacyPlan.parse(plan),
        rounds=3,
        checkpoint_every=3,
        evaluate_every=3,
        taps=TapConfig(users=40, **taps),
    )
    return Experiment(config, split)


def test_what_devices_show_is_what_they_recommend_by(small_split):
    """Fitted for 30 rounds, training items score above held-out ones; nothing of it stays behind on the device."""
    trained = experiment(small_split)
    trained.config = trained.config.model_copy(update={"rounds": 30, "evaluate_every": 30})
    trained.run()
    before = {name: value.clone() for name, value in trained.clients.state().items()}
    rows = attack_scores(trained, 30)
    assert [row.attack for row in rows] == 2 * ["popularity", "score threshold"]
    assert all(row.tap == "scores" and row.rounds == [30] for row in rows)
    assert AttackRow.model_validate_json(rows[1].model_dump_json()) == rows[1]
    assert rows[3].game == "trained vs held-out of the same user"
    assert rows[3].auc.value > 0.8
    assert all(value.equal(before[name]) for name, value in trained.clients.state().items())
    user = int(trained.audited()[0])
    own = trained.recommend(user, 30)
    message, updates = trained.rehearse(trained.audited()[:32], 30, trained.server.schema)
    together = trained.clients.score(trained.audited()[:32], message, updates, None)[0]
    trained.clients.discard()
    torch.testing.assert_close(own, together)


def test_uploads_are_attacked_where_they_are_seen_and_devices_always(small_split, tmp_path):
    done = experiment(small_split, places=("raw", "wire"))
    result = done.run(tmp_path)
    rows = attack_trained(done, result.transcript.joined, 3)
    assert [row.tap for row in rows] == sorted([row.tap for row in rows], key=["raw", "wire", "scores"].index)
    assert {row.tap for row in rows} == {"raw", "wire", "scores"}
    for tap in ("raw", "wire", "scores"):
        assert sum(row.attack == "popularity" and row.scope == ALL_ITEMS for row in rows if row.tap == tap) == 2
    found = attack_run(tmp_path, done.config, small_split)
    assert found == RunFindings(rows, None, links=found.links)
    assert [(row.tap, row.n_users + row.selection_users) for row in found.links] == [("wire", 40)]


def test_a_plan_that_hides_uploads_leaves_the_sum_and_what_devices_show(small_split, tmp_path):
    hidden = experiment(small_split, "central-gaussian:clip_norm=1,noise_multiplier=1")
    hidden.run(tmp_path)
    assert {row.tap for row in attack_run(tmp_path, hidden.config, small_split).rows} == {"sum", "scores"}
    bare = experiment(small_split, places=())
    (tmp_path / "bare").mkdir()
    bare.run(tmp_path / "bare")
    with pytest.raises(ValueError, match="holds no tapped uploads"):
        attack_run(tmp_path / "bare", bare.config, small_split)
