"""Quality measured inside the budget: recorded, covered by epsilon, resumed, clipped, and close to what is exact."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.final_queries import EvaluatingClients
from privfed.evaluation import COUNTED, UNCOUNTED, MetricVector, Protocol
from privfed.experiment import ExactEvaluation, Experiment, RunResult
from privfed.experiment.private_evaluation import FinalQueryRunner
from privfed.federation import Call
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.events import Gaussian
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.evaluation_query import METRICS, STEP
from privfed.setup.sizing import size

CENTRAL = "central-gaussian:noise_multiplier=0.5,clip_norm=1"
DISTRIBUTED = "distributed-gaussian:noise_multiplier=0.5,clip_norm=1,n_min_honest=40"
SAMPLED = f"{CENTRAL},sampling.kind=poisson,sampling.rate=0.7"


def config(privacy: str = CENTRAL, method: str = "fedmf", rounds: int = 2, mu: float = 1.0, **more: Any) -> Any:
    fields = {
        # However few items stand out of the noise, there is to be a Gram matrix to make candidates of.
        "method": {"name": method, **({"min_items": 0} if method == "private-gram" else {})},
        "privacy": PrivacyPlan.parse(privacy),
        "rounds": rounds,
        "taps": TapConfig(places=()),
        "evaluation": {"private": True, "mu": mu},
        "checkpoint_every": 1,
    }
    return ExperimentConfig.model_validate(fields | more)


def ran(split: Any, *args: Any, **more: Any) -> RunResult:
    return Experiment(config(*args, **more), split).run()


@pytest.mark.parametrize("privacy", [CENTRAL, SAMPLED])
def test_the_measurement_is_one_more_release_of_its_own_mu(small_split: Any, privacy: str) -> None:
    result = ran(small_split, privacy, mu=0.25)
    *_, last = result.entries
    assert (last.step, last.round) == (STEP, 2)
    assert isinstance(last.event, Gaussian)
    assert last.event.noise_multiplier == pytest.approx(4.0)
    assert len(result.history) == 1


def test_epsilon_covers_it(small_split: Any) -> None:
    with_it, without = (
        Experiment(config().model_copy(update=more), small_split).run().guarantee
        for more in ({}, {"evaluation": type(config().evaluation)()})
    )
    assert with_it.epsilon > without.epsilon * 1.01
    assert COUNTED in with_it.statements
    assert UNCOUNTED not in with_it.statements
    assert UNCOUNTED in without.statements


def test_more_than_a_whole_clip_norm_takes_several_sums_of_the_same_vectors(small_split: Any) -> None:
    result = ran(small_split, mu=5.0)
    asked = [entry for entry in result.entries if entry.step == STEP]
    assert len(asked) == 7  # (5 x .5)^2 = 6.25
    assert sum(entry.event.noise_multiplier**-2 for entry in asked) == pytest.approx(25.0)  # type: ignore[union-attr]


@pytest.mark.parametrize("privacy", [CENTRAL, DISTRIBUTED])
@pytest.mark.parametrize("method", ["fedmf", "private-gram"])
def test_it_is_close_to_what_is_exact(small_split: Any, privacy: str, method: str) -> None:
    rounds = 2 if method == "fedmf" else 1
    experiment = Experiment(config(privacy, method, rounds, mu=8.0), small_split)
    result = experiment.run()
    exact = ExactEvaluation(experiment, ("test",))
    users = exact.with_held_out()
    message, updates = experiment.rehearse(users, rounds, experiment.server.schema)
    exact.score(users, message, updates)
    experiment.clients.discard()
    truth = exact.summary(0).results["test"]
    for metric in result.test.metrics:
        assert metric.noise is not None
        assert abs(metric.value - truth.metric(metric.name, metric.k).value) < 4 * metric.noise + 1e-3
    assert (result.test.popularity is not None) == (method == "private-gram")


def vectors(experiment: Experiment, chunk: int) -> torch.Tensor:
    """What all devices of an untrained run would send."""
    clients = EvaluatingClients(experiment)
    message = experiment.server.public()
    message = type(message)(message.shared, message.personal, {**message.config, "measured before": 0})
    clients.receive(STEP, message)
    vector = MetricVector(experiment.config.protocol, compared=False)
    schema = {METRICS: experiment.server.schema.get(METRICS) or _block(vector.size)}
    parts = []
    for users in torch.split(torch.arange(experiment.n_users), chunk):
        call = Call(9, 9, STEP, 0, users, experiment.streams, schema)
        parts.append(clients.evaluate(call, message).materialise(torch.arange(len(users)))[METRICS])
    return torch.cat(parts)


def _block(size: int) -> Any:
    from privfed.contracts import Block

    return Block((size,))


def test_one_person_in_or_out_moves_the_sum_by_at_most_1(small_split: Any) -> None:
    experiment = Experiment(config(), small_split)
    sent = vectors(experiment, 45)
    moved = (sent.sum(0) - torch.stack([sent.sum(0) - row for row in sent])).norm(dim=1)
    assert float(moved.max()) <= 1
    assert float(moved.max()) > 0.9


def test_vectors_do_not_depend_on_company(small_split: Any) -> None:
    experiment = Experiment(config(), small_split)
    assert vectors(experiment, 45).equal(vectors(experiment, 7))


def test_a_hostile_vector_counts_no_more_than_any(small_split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ran(small_split, mu=8.0).test
    former = MetricVector.vectors

    def hostile(self: MetricVector, *args: Any) -> np.ndarray:
        sent = former(self, *args)
        sent[0] = 1e9
        return sent

    monkeypatch.setattr(MetricVector, "vectors", hostile)
    fooled = ran(small_split, mu=8.0).test
    weights = MetricVector(Protocol(), compared=False).weights
    for place, (one, other) in enumerate(zip(honest.metrics, fooled.metrics, strict=True), start=1):
        assert one.value != other.value
        # Two vectors of norm 1 differ by at most 2; the count may move as well.
        assert abs(one.value - other.value) < 3 * (1 / weights[place] + 1 / weights[0]) / 45


def test_a_run_that_is_killed_before_it_measured_measures_when_it_is_resumed(
    small_split: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = Experiment(config(), small_split).run(tmp_path / "whole")
    former = FinalQueryRunner.measured

    def killed(self: FinalQueryRunner, round: int) -> Any:
        former(self, round)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FinalQueryRunner, "measured", killed)
        with pytest.raises(KeyboardInterrupt):
            Experiment(config(), small_split).run(tmp_path / "killed")
    resumed = Experiment(config(), small_split).run(tmp_path / "killed", resume=True)
    assert resumed.test == whole.test
    assert resumed.guarantee == whole.guarantee
    assert [entry.address for entry in resumed.entries] == [entry.address for entry in whole.entries]
    again = Experiment(config(), small_split).run(tmp_path / "killed", resume=True)
    assert again.test == whole.test
    assert len(again.entries) == len(whole.entries)


@pytest.mark.parametrize("privacy", ["central-gaussian", "distributed-gaussian:n_min_honest=40"])
def test_an_epsilon_is_sized_for_training_and_measurement_together(small_split: Any, privacy: str) -> None:
    words = f"{privacy}{',' if ':' in privacy else ':'}epsilon=4,clip_norm=1"
    sized = size(config(words, "private-gram", 1, mu=0.5), small_split).config
    claimed = Experiment(sized, small_split).run().guarantee.epsilon
    assert 3.9 < claimed <= 4.0


def test_a_measurement_that_costs_more_than_everything_may_is_refused(small_split: Any) -> None:
    with pytest.raises(PlanError, match=r"evaluation\.mu = 2 alone costs epsilon"):
        size(config("central-gaussian:epsilon=1,clip_norm=1", mu=2.0), small_split)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"privacy": "none"}, "noisy sum of whole users"),
        ({"privacy": "secure-sum:clip_norm=1"}, "noisy sum of whole users"),
        ({"privacy": "local-gaussian:noise_multiplier=1,clip_norm=1"}, "noisy sum of whole users"),
        ({"protocol": Protocol(select="best_valid")}, "after the last round"),
        ({"protocol": Protocol(catalogue="trained")}, "whole catalogue"),
        ({"protocol": Protocol(candidates="sampled", n_sampled=5)}, "drawn around the items of everybody"),
        ({"control": "shuffled"}, "exact metrics"),
        ({"mu": 9.0, "privacy": "central-gaussian:noise_multiplier=500,clip_norm=1"}, "sums under"),
    ],
)
def test_what_cannot_be_measured_so_is_refused(small_split: Any, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        Experiment(config(**fields), small_split).run()


def test_a_run_with_exact_metrics_is_called_what_it_was_called() -> None:
    exact = ExperimentConfig()
    assert "evaluation" not in exact.decides()
    assert "evaluation" in config().decides()


GRID = {"rank": (0, 64), "threshold": (0.3, 0.9)}


def chosen(split: Any, grid: Any = GRID, method: str = "private-gram", selection_mu: float = 1.0) -> RunResult:
    evaluation = {"private": True, "mu": 1.0, "grid": grid, "selection_mu": selection_mu}
    return ran(split, CENTRAL, method, 1, evaluation=evaluation)


def test_a_grid_costs_one_training_one_choice_and_one_measurement(small_split: Any) -> None:
    result, plain = chosen(small_split), ran(small_split, CENTRAL, "private-gram", 1)
    assert [entry.step for entry in result.entries] == [*(e.step for e in plain.entries[:-1]), "choose", STEP]
    assert isinstance(result.entries[-2].event, Gaussian)
    assert result.entries[-2].event.noise_multiplier == pytest.approx(1.0)
    assert result.guarantee.epsilon > plain.guarantee.epsilon
    choice = result.test.choice
    assert choice is not None
    assert [list(one.values()) for one in choice.candidates] == [[0, 0.3], [0, 0.9], [64, 0.3], [64, 0.9]]
    assert choice.values[choice.chosen].value == max(value.value for value in choice.values)


def test_a_choice_with_little_noise_is_the_best_one_and_its_model_is_kept(small_split: Any) -> None:
    grid = {"beyond_head": ("popularity", "content"), "rank": (0, 64)}
    experiment = Experiment(
        config(CENTRAL, "private-gram", 1, evaluation={"private": True, "grid": grid, "selection_mu": 10.0}),
        small_split,
    )
    choice = experiment.run().test.choice
    assert choice is not None
    exact = ExactEvaluation(experiment, ("valid",))
    users = exact.with_held_out()
    exact.score(users, experiment.server.public(), None)
    kept = exact.summary(0).results["valid"].metric("ndcg", 10).value
    best = choice.values[choice.chosen]
    assert abs(kept - best.value) < 4 * (best.noise or 0) + 1e-3


@pytest.mark.parametrize(
    ("method", "grid", "why"),
    [
        ("fedmf", {"dim": (4, 8)}, "another release, which costs a whole training"),
        ("private-gram", {"damping": (0.0, 0.5)}, "changes what devices are asked"),
    ],
)
def test_a_grid_of_other_releases_is_refused(small_split: Any, method: str, grid: Any, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        chosen(small_split, grid, method)


def test_a_candidate_that_asks_something_else_is_refused_even_if_it_was_declared_free(
    small_split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privfed.methods.private_gram import PrivateGramTraining

    monkeypatch.setattr(PrivateGramTraining, "post_processing", frozenset({"popularity_share"}))
    with pytest.raises(PlanError, match="asks for something else than what was released"):
        chosen(small_split, {"popularity_share": (0.2, 0.4)})
