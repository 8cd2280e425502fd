"""Links between two rounds of a run: found where uploads speak, and neither behind noise nor where sums leave alone."""

import json

import numpy as np
import pytest
import torch

from attacks import Knowledge, ServerView
from attacks.membership import CORE_ATTACKS
from privfed.audit.attack_runs.attack_run import attack_taps
from privfed.audit.attack_runs.links import link_releases, two_releases
from privfed.audit.attack_runs.selection import selection_half
from privfed.audit.page.render import render
from privfed.audit.report.aggregates import aggregate
from privfed.audit.report.records import Interval, LinkRow, read_report, write_report
from privfed.engines.transcript import Observation
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from tests.audit.conftest import full_run, make_report, make_run

PEOPLE = np.arange(40)
LINK = LinkRow(
    attack="rank-1 sign", tap="wire", rounds=[1, 3], selection_users=18, n_users=22, chance=1 / 22,
    accuracy=Interval(value=0.5, lo=0.28, hi=0.72), auc=Interval(value=0.9, lo=0.85, hi=0.95),
)  # fmt: skip


def seen(number, users):
    return Observation("wire", number, torch.as_tensor(users), {})


def uploads(rng, members, noise):
    """A row in one direction for each item of a person, noise on all rows, small steps on sampled negatives."""
    rows = members[:, :, None] * rng.normal(1, 0.1, 4) - 0.1 * (rng.random((*members.shape, 1)) < 0.2)
    return (rows + rng.normal(0, noise, rows.shape)).astype(np.float32)


def links(noise, same=True, present=PEOPLE):
    rng = np.random.default_rng(0)
    members = rng.random((40, 150)) < 0.15
    other = members if same else rng.random((40, 150)) < 0.15
    first, second = (uploads(rng, one, noise) for one in (members, other))
    second[np.setdiff1d(PEOPLE, present)] = 0
    views = ServerView(0, first), ServerView(4, second)
    return link_releases(*views, PEOPLE, CORE_ATTACKS, Knowledge(members.sum(0).astype(np.float64)), "wire")


def test_people_are_found_again_by_uploads_on_those_who_did_not_choose():
    (row,) = links(noise=0.01)
    choosing = selection_half(PEOPLE)
    assert (row.rounds, row.selection_users, row.n_users) == ([1, 5], choosing.sum(), (~choosing).sum())
    assert row.accuracy.value == 1.0
    assert 0.5 < row.accuracy.lo < 1.0
    assert row.auc.value > 0.99
    assert row.chance == pytest.approx(1 / row.n_users)


@pytest.mark.parametrize(("noise", "same"), [(100.0, True), (0.01, False)])
def test_noise_and_strangers_are_not_linked(noise, same):
    (row,) = links(noise, same)
    assert row.accuracy.value <= 0.2
    assert row.accuracy.lo < row.chance < row.accuracy.hi
    assert row.auc.value == pytest.approx(0.5, abs=0.12)


def test_too_few_people_or_a_single_round_give_no_row():
    assert links(noise=0.01, present=PEOPLE[:8]) == []
    assert two_releases([seen(0, PEOPLE)], PEOPLE) is None


def test_the_two_rounds_share_most_people_and_lie_far_apart():
    rounds = [seen(0, [1, 2]), seen(1, [1, 2, 3]), seen(2, [7]), seen(3, [1, 2, 3]), seen(4, [1, 2, 3])]
    pair = two_releases(rounds, PEOPLE)
    assert pair is not None
    assert [one.round for one in pair] == [1, 4]


@pytest.mark.parametrize(
    ("plan", "places", "linked"),
    [("none", ("wire",), True), ("central-gaussian:clip_norm=1,noise_multiplier=1", ("sum",), False)],
    ids=["single uploads", "sums"],
)
def test_a_run_links_single_uploads_and_no_sums(small_split, plan, places, linked):
    config = ExperimentConfig(
        method={"name": "fedmf"}, privacy=PrivacyPlan.parse(plan), rounds=2, evaluate_every=2,
        taps=TapConfig(places=places, users=40, rounds=(0, 1)),
    )  # fmt: skip
    experiment = Experiment(config, small_split)
    found = attack_taps(experiment, experiment.run(parts=("test",)).transcript.joined, 2)
    assert [row.rounds for row in found.links] == ([[1, 2]] if linked else [])
    if linked:
        assert found.links[0].auc.lo > 0.8


def two_seeds():
    other = LINK.model_copy(update={"attack": "row norm", "auc": Interval(value=0.8, lo=0.7, hi=0.9)})
    return [
        full_run("gpfedrec", "none", seed).model_copy(update={"links": [row]}) for seed, row in enumerate((LINK, other))
    ]


def test_seeds_are_averaged_and_every_attack_is_named():
    (row,) = aggregate(two_seeds())[0].links
    assert row.attack == "rank-1 sign and row norm"
    assert (row.auc.value, row.auc.lo) == (pytest.approx(0.85), pytest.approx(0.775))


def test_the_page_shows_links_and_a_report_without_them_is_read(tmp_path):
    baseline = make_run("popularity", "none", 0)
    for runs, shown in ((two_seeds(), True), ([full_run("gpfedrec", "none", 0)], False)):
        write_report(make_report([baseline, *runs]), tmp_path / "report.json")
        old = json.loads((tmp_path / "report.json").read_text())
        for part in [*old["runs"], *old["aggregates"]]:
            if not part["links"]:
                del part["links"]
        (tmp_path / "report.json").write_text(json.dumps(old))
        page = render(read_report(tmp_path / "report.json"))
        assert ("Changed pseudonyms" in page) is shown
        assert ("28% – 72%" in page) is shown  # noqa: RUF001 - a range
