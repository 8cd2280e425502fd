"""Logistic matrix factorisation as a reference, trained centrally by alternating steps of AdaGrad.

Johnson, NIPS workshop 2014: all pairs of users and items take part, in full gradients (`model`). A pass is one step of
all users and then one of all items; a step is gamma times the gradient over the root of the sum of its squares so far.
"""

import torch
from pydantic import Field
from torch import Tensor

from privfed.data import Histories
from privfed.federation import PUBLIC, Message, Purpose, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method, MethodConfig, PublicInfo
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.logmf.model import Side, item_gradient, user_gradient
from privfed.methods.references.logmf.published import AS_PUBLISHED
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST, FactorTraining, vectors_message
from privfed.methods.references.shared.training import Draws, TrainingServer

_SQUARES = "squares."
_TINY = 1e-12


class LogMFConfig(MethodConfig):
    """Settings of logistic matrix factorisation.

    Defaults were chosen on the validation items of MovieLens-100K (30 rounds) and Last.fm (10 rounds).
    """

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    alpha: float | None = Field(
        None, gt=0, description="weight of an interaction; null: so much that all of them weigh what all zeros do"
    )
    reg: float = Field(6.0, ge=0, description="weight of half the squared lengths of user and item vectors")
    gamma: float = Field(1.0, gt=0, description="step size of AdaGrad")
    initial_scale: float = Field(1.0, gt=0, description="standard deviation of initial vectors and biases")
    epochs: int = Field(1, ge=1, description="passes over users and items in a round")

    def weight(self, lists: Histories) -> float:
        """Weight of an interaction."""
        return lists.n_users * lists.n_items / len(lists) - 1 if self.alpha is None else self.alpha


class LogMFServer(TrainingServer):
    """Server: vectors and biases of both sides, and AdaGrad's sums of squares."""

    def __init__(self, config: LogMFConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, parameters = config, dict[str, Tensor]()
        for query, (side, n) in enumerate({"items": public_info.n_items, "users": public_info.n_users}.items()):
            drawn = streams.normal(Purpose.INITIALISE, 0, query, [PUBLIC], n * (config.dim + 1))[0]
            table = drawn.view(n, config.dim + 1).mul_(config.initial_scale)
            parameters |= {f"{side}.vectors": table[:, :-1].contiguous(), f"{side}.biases": table[:, -1].contiguous()}
        squares = {_SQUARES + name: torch.zeros_like(value) for name, value in parameters.items()}
        super().__init__(public_info, streams, parameters | squares, config.epochs)

    def epoch(self, lists: Histories, draws: Draws) -> None:  # noqa: ARG002 (nothing is drawn)
        """A step of all users, then one of all items."""
        c = self.config
        for side, gradient in (("users", user_gradient), ("items", item_gradient)):
            by_side = gradient(self._side("users"), self._side("items"), lists, c.weight(lists), c.reg)
            for part, by_part in by_side._asdict().items():
                self._climb(f"{side}.{part}", by_part)

    def published(self, lists: Histories) -> Message:
        """Vectors with the biases beside them: a user's bias meets a one, and an item's too."""
        users, items = self._side("users"), self._side("items")
        ones = [torch.ones(len(side.biases), 1) for side in (users, items)]
        of_users = torch.cat([users.vectors, users.biases.unsqueeze(1), ones[0]], 1)
        of_items = torch.cat([items.vectors, ones[1], items.biases.unsqueeze(1)], 1)
        return vectors_message(of_items, of_users, lists)

    def _side(self, side: str) -> Side:
        return Side(self.parameters[f"{side}.vectors"], self.parameters[f"{side}.biases"])

    def _climb(self, name: str, gradient: Tensor) -> None:
        squares = self.parameters[_SQUARES + name] + gradient.square()
        step = self.config.gamma * gradient / squares.sqrt().clamp(min=_TINY)
        self.parameters |= {_SQUARES + name: squares, name: self.parameters[name] + step}


class LogMFTraining(FactorTraining):
    """Full gradients over all pairs."""

    server = LogMFServer


METHOD = Method(
    name="logmf",
    title="logistic matrix factorisation of everybody's lists, trained centrally",
    display_name="LogMF",
    source="Logistic MF, Johnson, NIPS workshop 2014",
    config=LogMFConfig,
    traits=CENTRAL,
    training=LogMFTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)
