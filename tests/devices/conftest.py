"""An accelerator to test without one: tensors on it compute on the processor and obey the rules of CUDA.

torch leaves one device type to others, `privateuseone`; here it is called `pretend` (tests/pretended.py). Its tensors
hold a tensor of the processor, so every operator gives the bits that it gives there, and a mode between torch and its
kernels refuses what CUDA refuses:

* one operator with tensors of both sides, but for numbers without a dimension and for indices;
* reading a tensor's memory from numpy;
* matrix products of whole numbers;
* in deterministic mode, operators that torch documents to have no such kernel.

It counts what makes the host wait or copies between the two memories. What it cannot show is arithmetic that differs
from the processor's, and time.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten

WAITS = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten._unique2,
    aten.unique_consecutive,
    aten.unique_dim,
    aten.masked_select,
    aten.bincount,
    aten.equal,
    aten.is_nonzero,
}
"""Operators whose result, or its size, the host must know."""
TAKES_INDICES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
PRODUCTS = {aten.mm, aten.bmm, aten.addmm, aten.addmm_, aten.baddbmm, aten.baddbmm_, aten.mv, aten.dot, aten.addmv}
COPIES = {aten._to_copy, aten.copy_, aten.set_, aten.lift_fresh, aten._copy_from}


class PretendedTensor(Tensor):
    """A tensor of the pretended device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "PretendedTensor":
        """A view of `held` from the other side."""
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=torch.device("pretend:0"),
        )  # fmt: skip
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Outside of the mode nothing computes with it."""
        raise RuntimeError(f"{func} met a tensor of the pretended device outside of its tests")

    def numpy(self, *, force: bool = False) -> Any:
        """As CUDA says it."""
        raise TypeError("can't convert a tensor of a device to numpy. Use Tensor.cpu() first.")

    def __array__(self, dtype: Any = None) -> Any:
        """As CUDA says it."""
        return self.numpy()

    def tolist(self) -> Any:
        """One copy to the host."""
        return self.cpu().tolist()

    def __repr__(self) -> str:
        return f"pretended {self.held!r}"


class PretendedDevice(TorchDispatchMode):
    """The rules, and the counts: `waits`, `to_host`, `to_device`, and `launches` of all other operators."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.where: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check, count, and compute on the processor."""
        kwargs = kwargs or {}
        operator, given = func.overloadpacket, tree_flatten((args, kwargs))[0]
        tensors = [x for x in given if isinstance(x, Tensor)]
        there = [x for x in tensors if isinstance(x, PretendedTensor)]
        asked = kwargs.get("device")
        makes_there = asked.type == "pretend" if asked is not None else bool(there)
        if operator in COPIES:
            self._count_copy(operator, args, asked)
        elif there:
            self._refuse_mixture(func, operator, args, tensors)
            self._refuse_what_cuda_lacks(func, operator, args, there)
            self._count(operator, func, args)
        held = {id(x.held): x for x in there}
        if asked is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        found = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if operator is aten.copy_:
            return args[0]

        def shown(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return held.get(id(x)) if id(x) in held else PretendedTensor(x)

        return tree_map(shown, found) if makes_there else found

    def _refuse_mixture(self, func: Any, operator: Any, args: Any, tensors: Sequence[Tensor]) -> None:
        alone = [x for x in tensors if not isinstance(x, PretendedTensor) and x.dim() > 0]
        if alone and operator in TAKES_INDICES and isinstance(args[0], PretendedTensor):
            indices = {id(x) for x in args[1] if x is not None}
            self.counts["to_device"] += len(alone)
            alone = [x for x in alone if id(x) not in indices]
        if alone or (operator in TAKES_INDICES and not isinstance(args[0], PretendedTensor)):
            sides = [f"{tuple(x.shape)} on {x.device}" for x in tensors]
            raise RuntimeError(f"Expected all tensors to be on the same device: {func} was given {', '.join(sides)}")

    def _refuse_what_cuda_lacks(self, func: Any, operator: Any, args: Any, there: Sequence[Tensor]) -> None:
        if operator in PRODUCTS and not there[0].is_floating_point():
            raise RuntimeError(f"{func} has no kernel for {there[0].dtype} on CUDA")
        if torch.are_deterministic_algorithms_enabled():
            summed = operator in {aten.cumsum, aten.cumsum_} and there[0].is_floating_point()
            weighted = operator is aten.bincount and len(args) > 1 and args[1] is not None
            if summed or weighted or operator in {aten.put_, aten.histc, aten.kthvalue}:
                raise RuntimeError(f"{func} does not have a deterministic implementation on CUDA")

    def _count(self, operator: Any, func: Any, args: Any) -> None:
        masks = operator in TAKES_INDICES and any(x is not None and x.dtype == torch.bool for x in args[1])
        ragged = operator is aten.repeat_interleave and not isinstance(args[-1], int)
        waits = operator in WAITS or masks or ragged
        self.counts["waits" if waits else "launches"] += 1
        if waits:
            self.where[str(func)] += 1

    def _count_copy(self, operator: Any, args: Any, asked: torch.device | None) -> None:
        source = args[1] if operator is aten.copy_ else args[0]
        target = args[0].device.type if operator is aten.copy_ else (asked or source.device).type
        if source.device.type != target:
            self.counts["to_host" if target == "cpu" else "to_device"] += 1
            self.where[f"{operator} to {target}"] += 1


def _held(x: Any) -> Any:
    return x.held if isinstance(x, PretendedTensor) else x


@pytest.fixture
def pretended() -> Iterator[Callable[[], Any]]:
    """`with pretended() as device: ...`, where `device.counts` says what happened."""

    @contextmanager
    def device() -> Iterator[PretendedDevice]:
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with PretendedDevice() as mode:
                yield mode
        finally:
            torch._C._set_only_lift_cpu_tensors(False)

    return device
