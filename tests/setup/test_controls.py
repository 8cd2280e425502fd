"""Controls: what a shuffled split keeps and destroys, and devices that train alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.data import Split, SplitSpec, SyntheticSpec, generate, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods import methods
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.controls import CONTROLS, Control, control_sentence
from privfed.setup.shuffled import shuffled_histories
from privfed.testing.population import ITEMS, client_data

ROUNDS, K = 2, 5
SETTINGS = {"fedmf": {"dim": 4}, "pfedrec": {"dim": 4}, "fedvae": {"latent": 2}, "gpfedrec": {"dim": 4, "hidden": [4]}}
PUBLIC, SLOW = {"dcf", "dfmr", "lightfr"}, {"private-autoencoder", "dpals", "ials"}


def parts(n_users: int = 12) -> Split:
    spec = SyntheticSpec(
        name="synthetic-tests", n_users=n_users, n_items=60, mean_per_user=10, min_per_user=5, rank=4, seed=1
    )
    return replace(split(generate(spec), SplitSpec()), ratings=None, attributes=None)


def first_user(whole: Split) -> Split:
    """The split of the first user alone."""
    train, valid, test = (part.subset(np.array([0])) for part in (whole.train, whole.valid, whole.test))
    return replace(whole, train=train, valid=valid, test=test)


def config(name: str, control: Control | None, **fields: Any) -> ExperimentConfig:
    return ExperimentConfig(
        data="synthetic-tests", method={"name": name} | SETTINGS.get(name, {}), rounds=ROUNDS, evaluate_every=1,
        control=control, taps=TapConfig(places=()), **{"protocol": Protocol(k=(K,))} | fields,
    )  # fmt: skip


# Shuffled histories --------------------------------------------------------------------------------------------------


def test_a_shuffled_split_keeps_sizes_and_disjoint_parts_and_is_the_same_every_time() -> None:
    whole = parts()
    one, same, other = (shuffled_histories(whole, seed) for seed in (3, 3, 4))
    for part in ("train", "valid", "test"):
        assert np.array_equal(getattr(one, part).indptr, getattr(whole, part).indptr)
        assert np.array_equal(getattr(one, part).items, getattr(same, part).items)
    assert not np.array_equal(one.train.items, other.train.items)
    assert not np.array_equal(one.train.items, whole.train.items)
    assert len(one.seen) == len(whole.seen)  # no item is in two parts


def test_every_user_has_a_permutation_of_its_own_that_other_behaviours_share() -> None:
    data = client_data()
    whole = Split(SplitSpec(), data.positives, data.positives, data.positives, 0, auxiliary=data.auxiliary)
    shuffled = shuffled_histories(replace(whole, auxiliary={"again": data.positives, **data.auxiliary}), 0)
    assert np.array_equal(shuffled.train.items, shuffled.auxiliary["again"].items)
    assert np.array_equal(shuffled.train.items, shuffled.test.items)
    assert shuffled.auxiliary["view"].items.tolist() != data.auxiliary["view"].items.tolist()
    names: dict[int, set[int]] = {}
    for old, new in zip(data.positives.items, shuffled.train.items, strict=True):
        names.setdefault(int(old), set()).add(int(new))
    most_popular = max(names, key=lambda item: len(names[item]))
    assert len(names[most_popular]) > 3


def test_any_item_is_any_other_with_the_same_probability() -> None:
    data = client_data()
    whole = Split(SplitSpec(), data.positives, data.positives, data.positives, 0)
    counts = sum(shuffled_histories(whole, seed).train.popularity() for seed in range(300))
    expected = 300 * len(data.positives) / ITEMS
    # Sums of 300 x 24 nearly independent indicators: five standard deviations either way.
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_a_shuffled_run_is_a_run_on_the_shuffled_split() -> None:
    whole = parts()
    run = Experiment(config("popularity", "shuffled", seed=7), whole)
    assert np.array_equal(run.parts.train.items, shuffled_histories(whole, 7).train.items)
    assert run.given is whole
    plain = Experiment(config("popularity", None, seed=7), shuffled_histories(whole, 7))
    assert run.run().test.metrics == plain.run().test.metrics


# Devices that train alone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["private", "received"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_device_alone_is_the_method_on_a_population_of_one(name: str, state: str) -> None:
    """The first user of a control and the only user of an ordinary run draw the same numbers."""
    whole, protocol = parts(), Protocol(k=(K,), state=state)
    control = Experiment(config(name, "no-communication", protocol=protocol), whole)
    ours = control.run()
    alone = Experiment(config(name, None, protocol=protocol), first_user(whole), control.streams)
    theirs = alone.run()
    for mine, reference in zip(ours.history, theirs.history, strict=True):
        assert mine.round == reference.round
        assert mine.by_user[2][0] == reference.by_user[2][0]
    assert torch.equal(_scored(control), _scored(alone))


def _scored(run: Experiment) -> torch.Tensor:
    """Private parameters of the first user, in one vector."""
    state = run.clients.state()
    return torch.cat([values[0].flatten().double() for values in state.values()] or [torch.zeros(1)])


def test_devices_alone_leave_the_server_as_it_was_and_record_nothing() -> None:
    run = Experiment(config("fedmf", "no-communication"), parts())
    before = {name: values.clone() for name, values in run.server.state().items()}
    result = run.run()
    assert all(torch.equal(values, before[name]) for name, values in run.server.state().items())
    assert list(result.entries) == []
    assert (result.costs.up_bytes, result.costs.down_bytes) == (0, 0)
    with pytest.raises(ValueError, match="keep no model"):
        run.recommend(0, ROUNDS)


@pytest.mark.parametrize("name", sorted(set(methods()) - PUBLIC - SLOW))
def test_every_private_method_runs_alone(name: str) -> None:
    result = Experiment(config(name, "no-communication"), parts(12)).run()
    assert [one.round for one in result.history] == [0, 1]
    assert result.test.n_users == 12


def test_alone_the_published_evaluation_finds_what_negatives_leave_out() -> None:
    """Negatives that are never held-out items push everything else down, with nobody's help."""
    found = {}
    for negatives in ("train", "all"):
        protocol = Protocol(k=(2,), candidates="sampled", n_sampled=9, negatives=negatives)
        settings = config("pfedrec", "no-communication", protocol=protocol)
        run = Experiment(settings.model_copy(update={"rounds": 12, "evaluate_every": 12}), parts(30))
        found[negatives] = run.run(parts=("test",)).test.metric("hr", 2).value
    assert found["all"] > 0.8
    assert found["train"] < 0.5


# Untrained models ----------------------------------------------------------------------------------------------------


def test_an_untrained_model_is_scored_as_everybody_receives_it() -> None:
    run = Experiment(config("popularity", "untrained", protocol=Protocol(k=(K,), ties="pessimistic")), parts())
    result = run.run()
    assert [one.round for one in result.history] == [-1]
    assert result.test.metric("hr", K).value == 0  # no count yet, and all ties go against what is held out


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_that_is_resumed_keeps_its_numbers(control: Control, tmp_path: Path) -> None:
    first = Experiment(config("fedmf", control), parts()).run(tmp_path)
    again = Experiment(config("fedmf", control), parts()).run(tmp_path, resume=True)
    assert [one.results for one in again.history] == [one.results for one in first.history]


@pytest.mark.parametrize("control", ["no-communication", "untrained"])
def test_a_control_that_sends_nothing_takes_no_plan(control: Control) -> None:
    plan = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=1")
    with pytest.raises(PlanError, match="nothing to protect"):
        Experiment(config("fedmf", control, privacy=plan), parts())


def test_public_histories_cannot_be_alone() -> None:
    with pytest.raises(PlanError, match="are public"):
        Experiment(config("dcf", "no-communication"), parts())


def test_no_control_leaves_digest_and_keys_of_a_run_as_they_were() -> None:
    plain = config("fedmf", None)
    assert "control" not in plain.decides()
    assert len({config("fedmf", control).digest() for control in (None, *CONTROLS)}) == 1 + len(CONTROLS)
    assert len({control_sentence(control) for control in CONTROLS}) == len(CONTROLS)
