"""What a module is made of: which parameters leave the device, which stay, and which hold one row per item."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt32
from torch import Tensor, nn

from privfed.contracts import Block, Schema
from privfed.methods.torch_method import examination
from privfed.methods.torch_method.batched import lane_period
from privfed.methods.torch_method.spec import TorchConfig, TorchMethodSpec, belongs
from privfed.methods.torch_method.stacked import StackedModule


@dataclass(frozen=True, slots=True, eq=False)
class ParameterLayout:
    """A module taken apart.

    Attributes:
        module: the module of one client, at its public initial values.
        shared, private: initial values by name.
        tables: shared parameters whose first axis is the catalogue.
        row_constants: buffers and frozen parameters whose first axis is the catalogue.
        n_items: size of the catalogue.
        by_row: whether the module reads tables only at the items it scores, so that a client needs
            no more of them than the rows it touches.
    """

    module: nn.Module
    shared: dict[str, Tensor]
    private: dict[str, Tensor]
    tables: tuple[str, ...]
    row_constants: dict[str, Tensor]
    n_items: int
    by_row: bool

    @classmethod
    def from_spec(
        cls, spec: TorchMethodSpec, config: TorchConfig, n_items: int, uints: UInt32[np.ndarray, "two"]
    ) -> "ParameterLayout":
        """Build the module and take it apart.

        Raises:
            TorchMethodError: the module cannot be trained honestly or at all, in one sentence.
        """
        module, probe = (spec.build(config, n_items, uints) for _ in range(2))
        trainable = examination.trainable(spec, module)
        examination.same_start(spec, module, probe)
        private = {name: p for name, p in trainable.items() if any(belongs(name, own) for own in spec.private)}
        shared = {name: p for name, p in trainable.items() if name not in private}
        examination.something_shared(spec, shared)
        tables = tuple(name for name, p in shared.items() if has_rows(p, n_items))
        everything = dict(module.named_parameters()) | dict(module.named_buffers())
        row_constants = {
            name: value.detach()
            for name, value in everything.items()
            if name not in trainable and has_rows(value, n_items)
        }
        examination.forward(spec, probe, n_items)
        by_row = bool(tables) and examination.reads_by_row(probe, n_items, tables, row_constants)
        return cls(module, shared, private, tables, row_constants, n_items, by_row)

    def schema(self) -> Schema:
        """One block per shared parameter, of its name and shape."""
        return {name: Block(tuple(value.shape)) for name, value in self.shared.items()}

    def stacked(self, spec: TorchMethodSpec) -> StackedModule:
        """The module for many clients; refused where torch cannot stack it."""
        module = StackedModule(self.module, spec.loss, by_row=self.by_row, row_constants=self.row_constants)
        examination.stacks(spec, module, self.shared | self.private, self.tables, self.n_items)
        return module

    def period(self, module: StackedModule, width: int) -> int:
        """Which lanes of a tile round alike in batches of `width` samples (`lane_period`)."""
        items = torch.arange(width) % self.n_items
        client = examination.client(module, self.shared | self.private, self.tables, items, seed=0)
        return lane_period(module, client, items)


def has_rows(value: Tensor, n_items: int) -> bool:
    """Whether this may be a table `[items, width]`, or one number per item."""
    return value.dim() in (1, 2) and value.shape[0] == n_items
