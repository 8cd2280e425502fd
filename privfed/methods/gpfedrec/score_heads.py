"""Private score functions in front of GPFedRec's mixed item tables: its own, and those of PFedRec, FedMF and FedRecon.

With one of the latter three this is the other method with its averaging replaced by the graph ("w/ GraphAgg", GPFedRec,
KDD 2024, table 5). A user vector learns at the rate lr (eta - 1), as in GPFedRec; FedRecon's has a rate of its own.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import PUBLIC, Purpose, Start, Streams, alike
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.shared.heads import LinearHead, NeuralHead, initial_perceptron, kaiming_uniform
from privfed.methods.shared.linear_clients import linear_pass
from privfed.methods.shared.linear_epoch import LinearRates
from privfed.methods.shared.local_training import Parameters
from privfed.methods.shared.samples import Samples, TouchedRows


class ScoreHead(Protocol):
    """A private score function, stacked over clients."""

    def start(self, streams: Streams) -> Start:
        """Initial private parameters."""

    def prepared(
        self, p: Parameters, samples: Samples, rows: TouchedRows, table: Float[Tensor, "rows dim"]
    ) -> Parameters:
        """Private parameters with which a round's training begins."""

    def logits(self, p: Mapping[str, Tensor], q: Float[Tensor, "n b dim"]) -> Float[Tensor, "n b"]:
        """Scores before the sigmoid."""

    def step_(
        self, p: Parameters, q: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """One step on the parameters, in place; returns dL/dq."""


def score_head(config: GPFedRecConfig) -> ScoreHead:
    """The score function that the settings name."""
    heads: dict[str, Callable[[GPFedRecConfig], ScoreHead]] = {
        "perceptron": Perceptron,
        "pfedrec": LinearScore,
        "fedmf": UserVector,
        "fedrecon": RebuiltVector,
    }
    return heads[config.score_function](config)


class _Kept:
    """Private parameters that are kept from round to round."""

    def prepared(
        self,
        p: Parameters,
        samples: Samples,  # noqa: ARG002 (and below: nothing is fitted)
        rows: TouchedRows,  # noqa: ARG002
        table: Float[Tensor, "rows dim"],  # noqa: ARG002
    ) -> Parameters:
        """As they are."""
        return p


class Perceptron(_Kept):
    """GPFedRec's: a perceptron on user vector and item vector, all clients from one public copy."""

    def __init__(self, config: GPFedRecConfig) -> None:
        self._config, self._head = config, NeuralHead(config.dim, config.hidden)
        self.logits = self._head.logits

    def start(self, streams: Streams) -> Start:
        """One public copy of user vector and perceptron, as in the released code."""
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], self._head.size)[0]
        user = streams.normal(Purpose.INITIALISE, 0, 2, [PUBLIC], self._config.dim)[0].mul_(self._config.initial_scale)
        return alike({"user": user, **initial_perceptron(self._head, unit)})

    def step_(
        self, p: Parameters, q: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """User vector, perceptron and items step together."""
        lr, eta = self._config.lr, self._config.eta
        return self._head.step_(p, q, y, weight, lr, lr * (eta - 1))


class LinearScore(_Kept):
    """PFedRec's: a linear layer, all clients from one public copy; it steps first, items see the new one."""

    def __init__(self, config: GPFedRecConfig) -> None:
        self._config, self._head = config, LinearHead(config.dim)
        self.logits = self._head.logits

    def start(self, streams: Streams) -> Start:
        """One public copy."""
        dim = self._config.dim
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], dim + 1)[0]
        return alike({"w": kaiming_uniform((dim,), dim, unit[:-1]), "b": kaiming_uniform((1,), dim, unit[-1:])[0]})

    def step_(
        self, p: Parameters, q: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """The layer, then items."""
        self._head.step_head_(p, q, y, weight, self._config.lr)
        return self._head.item_gradient(p, q, y, weight)


class UserVector(_Kept):
    """FedMF's: a user vector, drawn by the user's own key; it steps together with items."""

    def __init__(self, config: GPFedRecConfig) -> None:
        self._config, self._head = config, LinearHead(config.dim, bias=False)
        self.logits = self._head.logits

    def start(self, streams: Streams) -> Start:
        """A vector for each user."""
        c = self._config

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            return {"w": streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), c.dim).mul_(c.initial_scale)}

        return start

    def step_(
        self, p: Parameters, q: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """Vector and items together."""
        dq = self._head.item_gradient(p, q, y, weight)
        self._head.step_head_(p, q, y, weight, self._config.lr * (self._config.eta - 1))
        return dq


class RebuiltVector:
    """FedRecon's: a user vector that every round fits anew, to items as they are received; then items move alone."""

    def __init__(self, config: GPFedRecConfig) -> None:
        self._config, self._head = config, LinearHead(config.dim, bias=False)
        self._rates = LinearRates(config.recon_lr, 0.0, together=True)
        self.logits = self._head.logits

    def start(self, streams: Streams) -> Start:  # noqa: ARG002 (nothing is drawn)
        """Zero."""
        return alike({"w": torch.zeros(self._config.dim)})

    def prepared(
        self, p: Parameters, samples: Samples, rows: TouchedRows, table: Float[Tensor, "rows dim"]
    ) -> Parameters:
        """By gradient descent from zero while items stay as they are."""
        vectors = {"w": torch.zeros_like(p["w"])}
        for _ in range(self._config.recon_epochs):
            vectors = linear_pass(self._head, samples, rows, table, vectors, self._config.batch_size, self._rates)
        return vectors

    def step_(
        self, p: Parameters, q: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """Items alone."""
        return self._head.item_gradient(p, q, y, weight)
