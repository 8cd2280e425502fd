"""Attacks on sums: one client's sum is its upload, many clients' sum is little more than popularity."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks import Knowledge, ServerView, SumView, Targets, ViewError, measure
from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.membership import CORE_ATTACKS, observe
from attacks.sums import observe_sums
from privfed.audit.attack_runs.attack_run import RunFindings, attack_run, attack_trained
from privfed.audit.attack_runs.released_sums import sums_seen
from privfed.contracts import Block
from privfed.engines.aggregation.held_blocks import Holdings
from privfed.engines.transcript import Transcript
from privfed.experiment import Experiment
from privfed.methods import AttackSurface, Disclosure, ItemBlocks, Training, method
from privfed.methods.fedmf import FedMFClients
from privfed.methods.shared.table_server import TableServer
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates, Dense, Rows

WIDTH = 12


def totals(uploads, cohorts):
    """One view per cohort."""
    for number, who in enumerate(cohorts):
        members = np.zeros(len(uploads), dtype=bool)
        members[who] = True
        yield SumView(ServerView(number, uploads[members].sum(0, keepdims=True)), members)


def found(uploads, cohorts, members, popularity):
    said = observe_sums(CORE_ATTACKS, totals(uploads, cohorts), Knowledge(popularity))
    asked = Targets.trained_vs_never_seen(members, members)
    return {
        (r.attack, r.scope): r for r in measure(said, Knowledge(popularity), asked, scopes=(ALL_ITEMS, TOUCHED_ITEMS))
    }


def test_a_sum_of_one_is_that_clients_upload(world):
    members, _, uploads, popularity = world
    rows = found(uploads, [[7]], members, popularity)
    assert rows["rank-1 sign", ALL_ITEMS].auc.value == 1
    assert rows["rank-1 sign", TOUCHED_ITEMS].auc.value == 1
    assert rows["rank-1 sign", ALL_ITEMS].n_users == 1
    alone = observe(CORE_ATTACKS, [ServerView(0, uploads[7:8])], Knowledge(popularity))
    summed = observe_sums(CORE_ATTACKS, totals(uploads, [[7]]), Knowledge(popularity))
    for one, other in zip(alone.by_attack, summed.by_attack, strict=True):
        assert one.attack.name == other.attack.name
        np.testing.assert_array_equal(one.scores[0], other.scores[7])


def test_single_looks_are_about_the_last_sum_and_votes_about_everybody(world):
    members, _, uploads, popularity = world
    rows = found(uploads, [[3], [4], [5, 6]], members, popularity)
    assert rows["rank-1 sign", ALL_ITEMS].n_users == 2
    vote = rows["multi-round vote of rank-1 sign", ALL_ITEMS]
    assert vote.n_users == 4
    said = observe_sums(CORE_ATTACKS, totals(uploads, [[3], [4], [3]]), Knowledge(popularity))
    (scored,) = [s for s in said.by_attack if s.attack.name == "multi-round vote of rank-1 sign"]
    assert scored.present.nonzero()[0].tolist() == [3, 4]
    assert scored.rounds == 2


def test_an_attack_that_nobody_can_be_measured_by_gives_no_row(world):
    """The one client of the sum has no held-out item, while others have; its touched rows are broadcast to all."""
    members, held_out, uploads, popularity = world
    held_out = held_out.copy()
    held_out[7] = False
    said = observe_sums(CORE_ATTACKS, totals(uploads, [[3], [7]]), Knowledge(popularity))
    rows = measure(said, Knowledge(popularity), Targets.trained_vs_held_out(members, held_out))
    assert {row.attack for row in rows} == {
        "popularity",
        "multi-round vote of row norm",
        "multi-round vote of rank-1 sign",
    }
    assert {row.n_users for row in rows} == {1}


def test_what_a_sum_attack_declares(world):
    members, _, uploads, popularity = world
    rows = found(uploads, [range(30)], members, popularity)
    assert rows["row norm", ALL_ITEMS].observable == "the sum of the uploads of one round"
    assert rows["row norm", ALL_ITEMS].knowledge[-1] == "who took part in the sum"
    assert rows["popularity", ALL_ITEMS].observable == "nothing"


def test_bad_sums_are_refused(world):
    _, _, uploads, popularity = world
    with pytest.raises(ViewError, match="about 30 users; pass the one sum"):
        SumView(ServerView(0, uploads), np.ones(30, dtype=bool))
    with pytest.raises(ViewError, match="only sums that hold some"):
        SumView(ServerView(0, uploads[:1]), np.zeros(30, dtype=bool))
    with pytest.raises(ViewError, match="no sum to attack"):
        observe_sums(CORE_ATTACKS, [], Knowledge(popularity))
    short = [SumView(ServerView(t, uploads[:1]), np.ones(n, dtype=bool)) for t, n in ((0, 30), (1, 29))]
    with pytest.raises(ViewError, match="sum of round 1 is about 29 users"):
        observe_sums(CORE_ATTACKS, short, Knowledge(popularity))


@pytest.fixture(scope="module")
def crowd():
    """160 users and 150 items, so that a cohort of 100 is a crowd."""
    from privfed.data import SplitSpec, SyntheticSpec, generate, split

    spec = SyntheticSpec(
        name="synthetic-crowd", n_users=160, n_items=150, mean_per_user=12, min_per_user=5, rank=4, seed=2
    )
    return split(generate(spec), SplitSpec())


def experiment(split, plan, rounds=4, **taps):
    config = ExperimentConfig(
        method={"name": "fedmf"},
        privacy=PrivacyPlan.parse(plan),
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(**{"users": 160, "rounds": tuple(range(rounds))} | taps),
    )
    return Experiment(config, split)


def at_sum(done, result):
    return [row for row in attack_trained(done, result.transcript.joined, done.config.rounds) if row.tap == "sum"]


def main(rows, attack, scope=ALL_ITEMS):
    (row,) = [r for r in rows if (r.attack, r.scope, r.game) == (attack, scope, "trained vs never seen")]
    return row


def test_cohorts_of_one_give_histories_away_and_large_ones_hardly_more_than_popularity(crowd):
    alone = experiment(crowd, "none:release=total,sampling.kind=fixed,sampling.size=1", rounds=8)
    rows = at_sum(alone, alone.run())
    assert main(rows, "multi-round vote of rank-1 sign").auc.value > 0.999
    assert main(rows, "rank-1 sign", TOUCHED_ITEMS).auc.value > 0.999
    assert main(rows, "multi-round vote of rank-1 sign").note == "sums over 1 client"
    many = experiment(crowd, "none:release=total,sampling.kind=fixed,sampling.size=100")
    rows = at_sum(many, many.run())
    popularity = main(rows, "popularity")
    assert popularity.n_users > 100
    assert popularity.auc.value > 0.6
    for attack in ("row norm", "rank-1 sign", "multi-round vote of rank-1 sign"):
        row = main(rows, attack)
        assert row.auc.value < row.popularity_auc + 0.03
        assert row.n_users == 100 if len(row.rounds) == 1 else row.n_users == popularity.n_users


def test_a_sum_of_one_scores_as_the_wire_does(crowd):
    plan = "none:sampling.kind=fixed,sampling.size=1"
    both = experiment(crowd, plan, rounds=3, places=("wire", "sum"))
    rows = attack_trained(both, both.run().transcript.joined, 3)
    wire, summed = ([row for row in rows if row.tap == tap] for tap in ("wire", "sum"))
    for one in wire:
        if one.attack not in ("popularity", "neighbours") and one.scope == ALL_ITEMS:
            (other,) = [r for r in summed if (r.attack, r.scope, r.game) == (one.attack, one.scope, one.game)]
            assert other.auc == one.auc
            assert other.n_users == one.n_users


def test_sums_are_tapped_where_they_are_all_a_server_sees(small_split, tmp_path):
    hidden = experiment(small_split, "secure-sum:clip_norm=1", users=40)
    result = hidden.run(tmp_path)
    rows = attack_trained(hidden, result.transcript.joined, 4)
    assert {row.tap for row in rows} == {"sum", "scores"}
    assert attack_run(tmp_path, hidden.config, small_split) == RunFindings(rows, None)
    seen = experiment(small_split, "none", users=40)
    assert seen.run().transcript.joined("sum") == []
    nothing = experiment(small_split, "secure-sum:clip_norm=1", users=40, places=())
    assert nothing.run().transcript.observations == []


class SegmentedClients(FedMFClients):
    """Everybody holds the first columns; users divisible by three hold the others too, which the rest sends nowhere."""

    def train(self, call, message):
        whole = super().train(replace(call, schema={"items": Block(tuple(message.shared["items"].shape))}), message)
        (rows,) = whole.parts
        large = call.clients[rows.owner] % 3 == 0
        left, right = rows.values[:, :4], rows.values[:, 4:]
        parts = [
            Rows("items.0:4", rows.owner, rows.ids, left.clone()),
            Rows("items.4:12", rows.owner[large], rows.ids[large], right[large].clone()),
        ]
        return ClientUpdates(call.clients, call.schema, parts)

    def score(self, clients, message, updates, candidates):
        return super().score(clients, message, None, candidates)


class SegmentedServer(TableServer):
    def __init__(self, items):
        super().__init__(items)
        self.schema = {"items.0:4": Block((len(items), 4)), "items.4:12": Block((len(items), 8))}

    def round(self, federation, t):
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.items = self.items + torch.cat([release.mean(name) for name in self.schema], 1)


class SegmentedTraining(Training):
    server = SegmentedServer.from_config
    clients = SegmentedClients

    def negatives(self, config):
        return method("fedmf").training.negatives(config)


class SegmentedSurface(AttackSurface):
    has_item_rows = True

    def item_blocks(self, config, schema):
        def side_by_side(blocks):
            assert config.dim == WIDTH
            return torch.cat([blocks[name] for name in schema], 2)

        return ItemBlocks(None, rows=side_by_side)


class SegmentedDisclosure(Disclosure):
    reads = "the sums of segments"

    def side_disclosures(self, config):
        return [f"Devices of width {config.dim} say so."]


SEGMENTED = replace(
    method("fedmf"),
    name="segmented",
    training=SegmentedTraining(),
    attack_surface=SegmentedSurface(),
    disclosure=SegmentedDisclosure(),
)


@pytest.fixture
def segmented(monkeypatch, crowd):
    """Run the tiny method behind a plan."""
    monkeypatch.setattr("privfed.setup.config.method", lambda name: SEGMENTED)

    def run(plan, directory=None, **taps):
        config = ExperimentConfig(
            method={"name": "segmented", "dim": WIDTH},
            privacy=PrivacyPlan.parse(plan),
            rounds=2,
            evaluate_every=2,
            taps=TapConfig(**{"users": 60} | taps),
        )
        done = Experiment(config, crowd)
        return done, done.run(directory)

    return run


def test_rows_spread_over_blocks_are_attacked_as_one(segmented, tmp_path):
    done, result = segmented("none", tmp_path, places=("raw", "wire"))
    rows = attack_trained(done, result.transcript.joined, 2)
    assert {row.tap for row in rows} == {"raw", "wire", "scores"}
    (sign,) = [
        row for row in rows
        if (row.tap, row.attack, row.scope, row.game) == ("wire", "rank-1 sign", ALL_ITEMS, "trained vs never seen")
    ]  # fmt: skip
    assert sign.auc.value > 0.99
    assert sign.n_users == 60
    assert attack_run(tmp_path, done.config, done.parts).rows == rows


def test_what_a_method_shows_itself_stands_among_the_statements(segmented):
    _, result = segmented("none")
    assert result.guarantee.statements[-1] == "Devices of width 12 say so."
    assert not any("Devices of width" in s for s in method("fedmf").disclosure.side_disclosures(None))


@pytest.mark.parametrize("blocks", ["held", "all"])
def test_every_group_of_blocks_has_rows_of_its_own(segmented, blocks):
    plan = f"secure-sum:clip_norm=8,blocks={blocks},sampling.kind=fixed,sampling.size=90"
    done, result = segmented(plan, users=160)
    rows = at_sum(done, result)
    whole, part = main(rows, "row norm"), main(rows, "row norm", f"{ALL_ITEMS}, sum of items.4:12")
    assert {row.scope for row in rows if ", sum of" not in row.scope} <= {ALL_ITEMS, TOUCHED_ITEMS}
    assert {row.scope.partition(", sum of ")[2] for row in rows} == {"", "items.4:12"}
    assert whole.n_users == 90
    last = result.transcript.joined("sum")[-1].users.numpy()
    assert part.n_users == (last % 3 == 0).sum()
    assert whole.note == "sums over 90 clients"
    assert part.note.startswith("sums over ")
    assert main(rows, "popularity", f"{ALL_ITEMS}, sum of items.4:12").n_users >= part.n_users


def test_a_group_of_one_is_that_client(segmented):
    """Where nothing keeps small groups closed, the one large client of a round is read off the sum of its columns."""
    done, result = segmented("none:release=total,sampling.kind=fixed,sampling.size=100", users=160)
    rows = sums_of_one_large_client(done, result)
    assert main(rows, "rank-1 sign", f"{ALL_ITEMS}, sum of items.4:12").auc.value > 0.99
    assert main(rows, "rank-1 sign").auc.value < 0.9


def test_groups_are_found_whoever_is_audited(segmented):
    """Only the large client is: that the others hold less is not seen in its own blocks."""
    done, result = segmented("none:release=total,sampling.kind=fixed,sampling.size=100", users=160)
    rows = sums_of_one_large_client(done, result, np.array([99]))
    assert main(rows, "rank-1 sign", f"{ALL_ITEMS}, sum of items.4:12").note == "sums over 1 client"
    assert main(rows, "rank-1 sign").note == "sums over 61 clients"


def test_a_sum_is_over_everybody_who_sent_something():
    """Nobody holds all blocks: seven hold one of them, five the other."""
    schema = {"a": Block((3, 2)), "b": Block((3, 2))}
    holdings = Holdings(schema)
    parts = [Dense("a", torch.arange(7), torch.ones(7, 3, 2)), Dense("b", torch.arange(7, 12), torch.ones(5, 3, 2))]
    holdings.add(ClientUpdates(torch.arange(12), schema, parts))
    transcript = Transcript(torch.arange(2), frozenset({"sum"}))
    transcript.record_sum(0, "train", torch.arange(12), {name: torch.ones(3, 2) for name in schema}, holdings)
    blocks = ItemBlocks(None, rows=lambda said: said["a"] + said["b"])
    found = sums_seen(transcript.joined("sum"), np.arange(2), blocks, schema)
    assert [(seen.blocks, seen.note) for seen in found] == [("", "sums over 12 clients"), ("a", "sums over 7 clients")]


def sums_of_one_large_client(done, result, audited=None):
    """Attack a round of 60 small clients and one large one, made from the run's own clients."""
    from privfed.audit.attack_runs.attack_run import attack_sums
    from privfed.engines.simulation import Simulation
    from privfed.privacy import Ledger

    audited = np.arange(160) if audited is None else audited
    users = [*[u for u in range(160) if u % 3][:60], 99]
    transcript = Transcript(torch.from_numpy(audited), frozenset({"sum"}))
    simulation = Simulation(
        done.clients, done.config.privacy, 160, done.streams, Ledger(done.config.privacy, 160), transcript=transcript
    )
    simulation.members = lambda round: torch.tensor(sorted(users))
    simulation.run(done.server, 2)
    return attack_sums(transcript.joined("sum"), done.parts, audited, done.item_blocks, done.server.schema)


def test_rows_of_a_spread_table_count_as_sent(segmented):
    from privfed.audit.attack_runs.rows_seen import rows_seen

    done, _ = segmented("none")
    config = done.config.model_copy(
        update={"privacy": PrivacyPlan.parse("shared-sum:clip_norm=1,padding.kind=no_padding")}
    )
    seen = rows_seen(Experiment(config, done.parts), 1)
    own = done.parts.train
    assert (seen.sent.mask(np.arange(160)) >= own.mask(np.arange(160))).all()
    assert (seen.sent.counts > own.counts).any()
