"""Optimisers of the server's parameters: the mean client update as a pseudo-gradient (FedOpt, Reddi et al., ICLR 2021).

Clients send local minus global weights, so the pseudo-gradient is minus their mean; plain SGD with lr 1 is
federated averaging. Adam corrects its bias and decays weights through the gradient, as torch's does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["adam", "sgd", "momentum"]


@dataclass(slots=True, eq=False)
class ServerOptimiser:
    """Steps on named tensors.

    Attributes:
        kind: `adam`, `sgd`, or `momentum` (SGD with heavy-ball momentum).
        lr: learning rate.
        weight_decay: L2 penalty, added to the gradient.
        momentum: of `momentum`, and Adam's first beta.
        second: Adam's second beta.
        epsilon: Adam's.
        steps: taken so far.
    """

    kind: Kind
    lr: float
    weight_decay: float = 0.0
    momentum: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8
    steps: int = 0
    _moments: dict[str, Tensor] = field(default_factory=dict)

    def step(self, parameters: Mapping[str, Tensor], updates: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """New parameters after the mean updates (local minus global) of every name; inputs stay as they are."""
        self.steps += 1
        return {name: self._moved(name, value, updates[name]) for name, value in parameters.items()}

    def state(self) -> dict[str, Tensor]:
        """Moments and the number of steps, for a checkpoint."""
        return {"steps": torch.tensor(self.steps), **{name: value.clone() for name, value in self._moments.items()}}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        moments = {name: torch.clone(value) for name, value in state.items()}
        self.steps = int(moments.pop("steps"))
        self._moments = moments

    def _moved(self, name: str, value: Tensor, update: Tensor) -> Tensor:
        gradient = update.to(value.dtype).neg()
        if self.weight_decay:
            gradient.add_(value, alpha=self.weight_decay)
        if self.kind == "sgd":
            return value.sub(gradient, alpha=self.lr)
        if self.kind == "momentum":
            return value.sub(self._moment(f"first.{name}", value).mul_(self.momentum).add_(gradient), alpha=self.lr)
        first = self._moment(f"first.{name}", value).mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        second = self._moment(f"second.{name}", value).mul_(self.second)
        second.addcmul_(gradient, gradient, value=1 - self.second)
        scale = (second / (1 - self.second**self.steps)).sqrt_().add_(self.epsilon)
        return value.addcdiv(first, scale, value=-self.lr / (1 - self.momentum**self.steps))

    def _moment(self, name: str, like: Tensor) -> Tensor:
        if name not in self._moments:
            self._moments[name] = torch.zeros_like(like)
        return self._moments[name]
