"""The query that measures quality inside the budget: one vector of metrics per device, under the plan of the run.

It is a query like those of training: the same clip, noise, secure sum and ledger. How much it costs is the share of the
clip norm that it may use: the vector is sent with norm sqrt(s) C while the noise stays z C, so it costs mu = sqrt(s) / z.
Where that would take more than a whole clip norm, the same vector is asked for several times and the sums are averaged.
"""

import math

from privfed.contracts import Block
from privfed.evaluation import EvaluationSettings, MetricVector
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.forecast import FinalQuery
from privfed.setup.config import ExperimentConfig

STEP, METRICS = "evaluate", "metrics"
_MOST_SUMS = 10_000


def metric_vector(config: ExperimentConfig) -> MetricVector:
    """What devices of this run send; beside popularity where the method publishes it."""
    return MetricVector(config.protocol, compared=config.registered().training.popularity_order is not None)


def evaluation_query(settings: EvaluationSettings, vector: MetricVector, plan: PrivacyPlan) -> FinalQuery:
    """The query, and how often it comes.

    Raises:
        PlanError: the plan has so much noise that too many sums would be needed.
    """
    noise = plan.mechanism.noise_over_clip
    if noise is None:
        raise PlanError(f"the plan {plan.name!r} adds no noise that quality could be measured behind: choose another")
    whole = (settings.mu * noise) ** 2
    count = max(math.ceil(whole), 1)
    if count > _MOST_SUMS:
        raise PlanError(
            f"evaluation.mu = {settings.mu:g} takes {count:,} sums under the plan {plan.name!r}, whose noise is "
            f"{noise:g} times a whole upload: set evaluation.mu to {math.sqrt(_MOST_SUMS) / noise:.2g} at most"
        )
    share, unit = whole / count, plan.noisy_sums(1).unit
    return FinalQuery({METRICS: Block((vector.size,), weight=unit * math.sqrt(share), share=share)}, count)
