"""Quality over nodes: each measures its own users on what they received, and only sums of metrics leave it.

A metric of a ranking lies between 0 and 1, so its sum travels in steps of 2^-24 as a whole number, and masked sums of
whole numbers are exact. Beside every sum goes the sum of squares, from which the mean's standard error follows;
intervals are Student's of as many users, where a simulation, which sees every user, resamples them.

These sums are exact and outside the ledger: they say about one user's held-out items what a sum without noise says.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64
from scipy.special import stdtrit

from privfed.contracts import Block, Schema
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.queries import addressed
from privfed.evaluation import Boost, EvaluationResult, Evaluator, Protocol
from privfed.evaluation.result import Metric, MetricName, ranking_metrics
from privfed.federation import Message
from privfed.setup.assembly import Assembly

Part = Literal["valid", "test"]
PARTS: tuple[Part, ...] = ("valid", "test")

_STEP = 2.0**-24
_BOUND = 2**44
_SCORED_AT_ONCE = 32
_SUMS = "sums"


def measured(protocol: Protocol) -> list[tuple[MetricName, int]]:
    """Names and cut-offs of what is summed.

    Raises:
        NodeRefused: the protocol predicts ratings or scores private states.
    """
    if protocol.task != "ranking":
        raise NodeRefused("nodes add up metrics of rankings; measure predicted ratings in a simulation")
    return [(name, k) for k in protocol.k for name in ranking_metrics(protocol)]


def measure_schema(protocol: Protocol, parts: Sequence[Part]) -> Schema:
    """The block of sums: for every part the users, then sum and sum of squares of every metric."""
    return {_SUMS: Block((len(parts), 1 + 2 * len(measured(protocol))), "integer", bound=_BOUND)}


def sums_of(
    experiment: Assembly, users: Int64[np.ndarray, " users"], message: Message, parts: Sequence[Part]
) -> Mapping[str, torch.Tensor]:
    """Sums over the own users who have something held out, by the block's name."""
    protocol = experiment.config.protocol
    keys = measured(protocol)
    boost = Boost(experiment.config.boost, experiment.parts, protocol.task)
    out = np.zeros((len(parts), 1 + 2 * len(keys)), np.int64)
    for row, part in enumerate(parts):
        held = experiment.parts.valid if part == "valid" else experiment.parts.test
        evaluated = users[held.counts[users] > 0]
        if not len(evaluated):
            continue
        evaluator = Evaluator(experiment.parts, protocol, part)
        for some in np.array_split(evaluated, max(1, -(-len(evaluated) // _SCORED_AT_ONCE))):
            candidates = evaluator.candidates(some)
            at = torch.from_numpy(some)
            chosen = None if candidates is None else torch.from_numpy(candidates)
            scores = boost.added(
                experiment.clients.score(at, addressed(message, users, some), None, chosen), at, chosen
            )
            evaluator.add(some, (scores.sigmoid() if protocol.scores == "probability" else scores).numpy())
        values = np.stack([evaluator.by_user(name, k) for name, k in keys])
        out[row, 0] = values.shape[1]
        out[row, 1:] = np.rint(np.concatenate([values, values**2]) / _STEP).astype(np.int64).sum(1)
    return {_SUMS: torch.from_numpy(out)}


def results(
    sums: Mapping[str, torch.Tensor], protocol: Protocol, parts: Sequence[Part]
) -> dict[Part, EvaluationResult]:
    """Means and intervals from the sums of all nodes; a part in which nobody was measured is left out."""
    keys, measurements = measured(protocol), dict[Part, EvaluationResult]()
    for part, row in zip(parts, sums[_SUMS].tolist(), strict=True):
        users = row[0]
        if users < 1:
            continue
        metrics = []
        for column, (name, k) in enumerate(keys):
            mean = row[1 + column] * _STEP / users
            spread = max(row[1 + len(keys) + column] * _STEP / users - mean**2, 0.0)
            margin = float(stdtrit(users - 1, 0.975)) * math.sqrt(spread / (users - 1)) if users > 1 else 1.0
            metrics.append(
                Metric(
                    name=name, k=k, value=mean, lo=max(mean - margin, 0.0), hi=min(mean + margin, 1.0), n_users=users
                )
            )
        measurements[part] = EvaluationResult(
            metrics=tuple(metrics), popularity=None, n_users=users, tie_fraction=0.0, part=part, protocol=protocol,
            warning=None,
        )  # fmt: skip
    return measurements
