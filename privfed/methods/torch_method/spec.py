"""What an author gives: a module for one user, which of its parameters are private, a loss and learning rates.

A factory builds the module from addressed words, so that initial parameters are the same on every machine and
the caller's global random state is left alone.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt32
from pydantic import Field
from torch import Tensor, nn

from privfed.compute.devices import HOST, computing_on, here
from privfed.federation import PUBLIC, Purpose, Streams
from privfed.methods.method import MethodConfig
from privfed.methods.shared.server_optimiser import Kind
from privfed.methods.torch_method.errors import TorchMethodError

ModuleFactory = Callable[[Any, int], nn.Module]
"""(config, number of items) -> the model of one user."""

Loss = Callable[..., Tensor]
"""(logits [batch], labels [batch]) -> one loss per sample; a `reduction` parameter is set to "none"."""

LearningRates = Callable[[Any, int], Mapping[str, float]]
"""(config, number of items) -> learning rate of a parameter or of all parameters under a prefix."""


class TorchConfig(MethodConfig):
    """Settings that local training reads; extend it with the settings of the module."""

    lr: float = Field(0.1, gt=0, description="learning rate of local SGD")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    epochs: int = Field(1, ge=1, description="passes over the round's samples, in one order")
    server_optimiser: Kind = Field("sgd", description="sgd, momentum or adam on the mean update")
    server_lr: float = Field(1.0, gt=0, description="learning rate of the server; 1 with sgd is federated averaging")


@dataclass(frozen=True, slots=True, eq=False)
class TorchMethodSpec:
    """Everything an author says about a model.

    Attributes:
        name: name of the method, for messages.
        module: builds the model of one user.
        private: parameters (or prefixes) that never leave the device.
        loss: loss of every sample.
        learning_rates: rates that differ from `config.lr`; None where there are none.
        per_user_start: whether private parameters start from each user's own key.
    """

    name: str
    module: ModuleFactory
    private: tuple[str, ...]
    loss: Loss
    learning_rates: LearningRates | None
    per_user_start: bool

    def build(self, config: TorchConfig, n_items: int, uints: UInt32[np.ndarray, "two"]) -> nn.Module:
        """The module, initialised by the processor's generator seeded with two random words; global state is restored.

        Raises:
            TorchMethodError: the factory fails or returns something else.
        """
        with torch.random.fork_rng(devices=[]), computing_on(HOST):
            torch.default_generator.manual_seed(int(uints[0]) << 32 | int(uints[1]))
            try:
                module = self.module(config, n_items)
            except Exception as error:
                raise self.refusal(f"building its module for {n_items} items failed: {first_line(error)}") from error
        if not isinstance(module, nn.Module):
            raise self.refusal(f"module(config, n_items) returned a {type(module).__name__}; return a torch.nn.Module")
        return module.to(here())

    def rates(self, config: TorchConfig, n_items: int, names: list[str]) -> dict[str, float]:
        """The learning rate of every parameter: that of its longest prefix in `learning_rates`, else `config.lr`.

        Raises:
            TorchMethodError: a rate names no parameter, or is not a positive number.
        """
        given = {} if self.learning_rates is None else self.learning_rates(config, n_items)
        for prefix, rate in given.items():
            if not any(belongs(name, prefix) for name in names):
                raise self.refusal(
                    f"a learning rate is given for {prefix!r}, which names none of the parameters {', '.join(names)}"
                )
            if not (math.isfinite(rate) and rate > 0):
                raise self.refusal(
                    f"the learning rate of {prefix!r} is {rate!r}; give a positive number, and freeze a parameter "
                    f"with requires_grad_(False)"
                )
        return {
            name: given[max(own, key=len)] if (own := [p for p in given if belongs(name, p)]) else config.lr
            for name in names
        }

    def refusal(self, reason: str) -> TorchMethodError:
        """An error that names the method."""
        return TorchMethodError(f"method {self.name!r}: {reason}")


def public_words(streams: Streams) -> UInt32[np.ndarray, "two"]:
    """The words of the public initial parameters: everybody may know them and no data enters them."""
    words: np.ndarray = streams.words(Purpose.INITIALISE, 0, 0, [PUBLIC], 2)[0]
    return words


def belongs(name: str, prefix: str) -> bool:
    """Whether a parameter is the named one, or lies under the named submodule."""
    return name == prefix or name.startswith(f"{prefix}.")


def first_line(error: Exception) -> str:
    """First line of an error's message, short enough for one sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
