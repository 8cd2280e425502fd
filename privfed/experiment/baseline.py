"""What a run is measured on, and the popularity recommender that it has to beat."""

from privfed.data import Split
from privfed.evaluation import EvaluationResult, Part
from privfed.experiment.driver import Experiment
from privfed.experiment.evaluation import ExactEvaluation
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig

POPULARITY = "popularity"


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
