"""What a run is measured on, and the popularity recommender that it has to beat."""

from dataclasses import asdict

import numpy as np

from attacks.metrics import user_mean
from privfed.data import Split
from privfed.evaluation import EvaluationResult, Evaluator, Part, RoundEvaluation
from privfed.evaluation.result import Ratio
from privfed.experiment.driver import Experiment
from privfed.experiment.evaluation import ExactEvaluation
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig

POPULARITY = "popularity"
_USERS_AT_ONCE = 2048


def held_out(experiment: Experiment) -> tuple[Part, ...]:
    """The held-out parts to evaluate, having made sure that they can be.

    Raises:
        EvaluationError: nobody can be evaluated.
    """
    parts: tuple[Part, ...] = ("valid", "test")
    if experiment.config.evaluation.private:
        parts = ("test",)
    elif not len(experiment.parts.valid) and experiment.config.protocol.select == "last":
        parts = ("test",) if len(experiment.parts.test) else parts
    ExactEvaluation(experiment, parts)
    return parts


def popularity(config: ExperimentConfig, parts: Split, measured: EvaluationResult) -> EvaluationResult | None:
    """The popularity recommender on the same split under the same protocol: what every method has to beat.

    None where ratings are predicted: what has to be beaten there are the means that stand in every result. Of a noisy
    measurement it is what was released with it: ranking by the popularity that the method publishes, or None.

    Args:
        config: of the run.
        parts: of the data.
        measured: the result of the run itself.
    """
    if measured.mu is not None:
        same_sum = {"metrics": measured.popularity, "popularity": None, "beyond": None}
        return None if measured.popularity is None else measured.model_copy(update=same_sum)
    if config.protocol.task == "rating":
        return None
    same = config.model_copy(
        update={
            "method": {"name": POPULARITY},
            "privacy": PrivacyPlan.named("none"),
            "rounds": 1,
            "boost": {},
            "control": None,
            "taps": config.taps.model_copy(update={"places": ()}),
        }
    )
    experiment = Experiment(same, parts)
    return experiment.run(parts=held_out(experiment)).test


def gain_over_popularity(experiment: Experiment, evaluated: RoundEvaluation) -> Ratio | None:
    """The main metric on the test part less that of ranking by training popularity, paired by user.

    None where ratings are predicted, where users are not known one by one, or where others were measured.
    """
    if evaluated.by_user is None:
        return None
    name, k, values = evaluated.by_user
    evaluator = Evaluator(experiment.parts, experiment.config.protocol, "test")
    counts = experiment.trained.train.popularity().astype(np.float32)
    for users in np.array_split(evaluator.users, -(-len(evaluator.users) // _USERS_AT_ONCE)):
        items = evaluator.candidates(users)
        evaluator.add(users, np.broadcast_to(counts, (len(users), len(counts))) if items is None else counts[items])
    popular = evaluator.by_user(name, k)
    if len(popular) != len(values):
        return None
    return Ratio.model_validate(asdict(user_mean(values - popular, resamples=1000)))
