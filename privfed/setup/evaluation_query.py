"""The query that measures quality inside the budget: one vector of metrics per device, under the plan of the run.

It is a query like those of training: the same clip, noise, secure sum and ledger. How much it costs is the share of the
clip norm that it may use: the vector is sent with norm sqrt(s) C while the noise stays z C, so it costs mu = sqrt(s)/z.
Where that would take more than a whole clip norm, the same vector is asked for several times and the sums are averaged.
"""

import math

from privfed.contracts import Block
from privfed.evaluation import ChoiceVector, MetricVector
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.forecast import FinalQuery
from privfed.setup.config import ExperimentConfig

STEP, CHOICE, METRICS = "evaluate", "choose", "metrics"
_MOST_SUMS = 10_000


def choice_vector(config: ExperimentConfig) -> ChoiceVector:
    """What devices of this run send for a choice among settings."""
    return ChoiceVector(len(config.evaluation.candidates), config.protocol.k[0])


def metric_vector(config: ExperimentConfig) -> MetricVector:
    """What devices of this run send; beside popularity where the method publishes it."""
    return MetricVector(config.protocol, compared=config.registered().training.popularity_order is not None)


def final_queries(config: ExperimentConfig, plan: PrivacyPlan) -> list[FinalQuery]:
    """The queries after training: of the choice among settings, and of the measurement; none where metrics are exact.

    Raises:
        PlanError: the plan has so much noise that too many sums would be needed.
    """
    settings = config.evaluation
    choice = [vector_query(choice_vector(config), settings.selection_mu, plan)] if settings.grid else []
    return [*choice, vector_query(metric_vector(config), settings.mu, plan)] if settings.private else []


def vector_query(vector: MetricVector | ChoiceVector, mu: float, plan: PrivacyPlan) -> FinalQuery:
    """The query of one vector of norm at most 1, and how often it comes for `mu`.

    Raises:
        PlanError: the plan has so much noise that too many sums would be needed.
    """
    noise = plan.mechanism.noise_over_clip
    if noise is None:
        raise PlanError(f"the plan {plan.name!r} adds no noise that quality could be measured behind: choose another")
    whole = (mu * noise) ** 2
    count = max(math.ceil(whole), 1)
    if count > _MOST_SUMS:
        raise PlanError(
            f"evaluation.mu = {mu:g} takes {count:,} sums under the plan {plan.name!r}, whose noise is "
            f"{noise:g} times a whole upload: set evaluation.mu to {math.sqrt(_MOST_SUMS) / noise:.2g} at most"
        )
    share, unit = whole / count, plan.noisy_sums(1).unit
    return FinalQuery({METRICS: Block((len(vector.weights),), weight=unit * math.sqrt(share), share=share)}, count)
