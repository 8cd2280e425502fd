"""Local optimisers of a tile of clients: Adam from fresh moments (Kingma and Ba, ICLR 2015) and plain SGD.

A client's state lives for one call only, so one optimiser steps one tensor of a whole tile. Adam is element by
element, so stacking clients changes nothing as long as no element falls into the kernel's scalar tail: `arena` lays
tensors out for that.
"""

import math
from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

LocalOptimiser = Literal["adam", "sgd"]
ALIGNMENT = 16
"""Floats in the widest vector register; sizes are rounded up to it."""


class LocalStep(Protocol):
    """Something that moves one tensor by its gradients."""

    def step_(self, gradient: Tensor) -> None:
        """One step, in place; `gradient` has the tensor's shape."""


class LocalAdam:
    """Adam on one contiguous tensor, as `torch.optim.Adam` from a fresh state.

    Args:
        values: moved in place.
        lr: learning rate.
    """

    FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, values: Tensor, lr: float) -> None:
        self.values, self.lr = values, lr
        self._first, self._second = torch.zeros_like(values), torch.zeros_like(values)
        self._steps = torch.zeros(())

    def step_(self, gradient: Tensor) -> None:
        """One bias-corrected step."""
        adam(
            [self.values],
            [gradient],
            [self._first],
            [self._second],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=self.FIRST,
            beta2=self.SECOND,
            lr=self.lr,
            weight_decay=0.0,
            eps=self.EPSILON,
            maximize=False,
        )


class LocalSgd:
    """Plain gradient descent on one tensor."""

    def __init__(self, values: Tensor, lr: float) -> None:
        self.values, self.lr = values, lr

    def step_(self, gradient: Tensor) -> None:
        """One step against the gradient."""
        self.values.sub_(gradient, alpha=self.lr)


def local_optimiser(kind: LocalOptimiser, values: Tensor, lr: float) -> LocalStep:
    """A fresh optimiser of `values`."""
    return LocalAdam(values, lr) if kind == "adam" else LocalSgd(values, lr)


def arena(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Tensor, dict[str, Tensor]]:
    """One flat tensor of zeros and a view into it for every shape, each at an aligned place."""
    places, used = {}, 0
    for name, shape in shapes.items():
        places[name] = used
        used += aligned(math.prod(shape))
    flat = torch.zeros(used)
    return flat, {name: flat[at : at + math.prod(shapes[name])].view(shapes[name]) for name, at in places.items()}


def aligned(size: int) -> int:
    """`size` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
