"""Metrics of single users, and intervals over users."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from privfed.data import Histories, Split
from privfed.evaluation import Evaluator, MetricName, Part, Protocol
from privfed.experiment import Experiment

RESAMPLES = 2000


def by_user(
    experiment: Experiment,
    protocol: Protocol,
    metrics: Iterable[MetricName],
    *,
    part: Part = "test",
    users_at_once: int = 256,
) -> dict[str, np.ndarray]:
    """Metrics of every user with a held-out item, at the protocol's first cut, on the model that a round sends."""
    evaluator, message = Evaluator(experiment.parts, protocol, part), experiment.server.public()
    for users in torch.split(torch.from_numpy(evaluator.users), users_at_once):
        scores = experiment.clients.score(users, message.addressed_to(users), None, None)
        evaluator.add(users.numpy(), scores.numpy())
    return {name: evaluator.by_user(name, protocol.k[0]) for name in metrics}


def with_validation(parts: Split) -> Split:
    """The same test part, with the validation items among the training items."""
    nothing = np.empty(0, np.int64)
    empty = Histories.from_pairs(nothing, nothing, parts.train.n_users, parts.train.n_items)
    return replace(parts, train=parts.train.union(parts.valid), valid=empty, ratings=None)


def interval(values: np.ndarray) -> list[float]:
    """Mean over users, and its 95 % interval by 1,000 resamples of users."""
    rng = np.random.default_rng(0)
    resampled = rng.multinomial(len(values), np.full(len(values), 1 / len(values)), 1000) @ values / len(values)
    return [round(float(v), 5) for v in (values.mean(), *np.quantile(resampled, [0.025, 0.975]))]


def paired_interval(differences: np.ndarray) -> list[float]:
    """Mean of differences by user, and its 95 % bootstrap interval over users."""
    rng = np.random.default_rng(0)
    means = [differences[rng.integers(len(differences), size=len(differences))].mean() for _ in range(RESAMPLES)]
    return [float(differences.mean()), *np.percentile(means, [2.5, 97.5]).tolist()]
