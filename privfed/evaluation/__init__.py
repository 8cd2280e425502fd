"""Evaluation: how good the recommendations are, with the protocol attached to every number.

evaluator = Evaluator(split, HONEST, "test", popularity=split.train.popularity())
evaluator.add(users, scores)
print(evaluator.result().metric("hr", 10), HONEST.sentence())
"""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.evaluation.boost import Boost
    from privfed.evaluation.errors import EvaluationError
    from privfed.evaluation.evaluator import Evaluator
    from privfed.evaluation.metric_vector import ChoiceVector, MetricVector, difference
    from privfed.evaluation.protocol import HONEST, PAPER, Protocol, Task
    from privfed.evaluation.ranking import Positions, positions, ties_decide, user_metrics
    from privfed.evaluation.result import (
        BeyondAccuracy,
        EvaluationResult,
        Metric,
        MetricName,
        Part,
        PrivateChoice,
        Ratio,
        RoundEvaluation,
    )
    from privfed.evaluation.settings import EvaluationSettings
    from privfed.evaluation.uncounted import COUNTED, UNCOUNTED, about_metrics

__all__ = [
    "COUNTED",
    "HONEST",
    "PAPER",
    "UNCOUNTED",
    "BeyondAccuracy",
    "Boost",
    "ChoiceVector",
    "EvaluationError",
    "EvaluationResult",
    "EvaluationSettings",
    "Evaluator",
    "Metric",
    "MetricName",
    "MetricVector",
    "Part",
    "Positions",
    "PrivateChoice",
    "Protocol",
    "Ratio",
    "RoundEvaluation",
    "Task",
    "about_metrics",
    "difference",
    "positions",
    "ties_decide",
    "user_metrics",
]

load_lazily(__name__)
