"""Evaluation: how good the recommendations are, with the protocol attached to every number.

evaluator = Evaluator(split, HONEST, "test", popularity=split.train.popularity())
evaluator.add(users, scores)
print(evaluator.result().metric("hr", 10), HONEST.sentence())
"""

from privfed.evaluation.boost import Boost
from privfed.evaluation.errors import EvaluationError
from privfed.evaluation.evaluator import Evaluator
from privfed.evaluation.protocol import HONEST, PAPER, Protocol, Task
from privfed.evaluation.ranking import Positions, positions, ties_decide, user_metrics
from privfed.evaluation.result import EvaluationResult, Metric, MetricName, Part, RoundEvaluation
from privfed.evaluation.uncounted import UNCOUNTED

__all__ = [
    "HONEST",
    "PAPER",
    "UNCOUNTED",
    "Boost",
    "EvaluationError",
    "EvaluationResult",
    "Evaluator",
    "Metric",
    "MetricName",
    "Part",
    "Positions",
    "Protocol",
    "RoundEvaluation",
    "Task",
    "positions",
    "ties_decide",
    "user_metrics",
]
