"""Where tensors live: the processor by default, or one accelerator for everything that an experiment computes.

Inside `computing_on(device)` every tensor is made there: what torch makes by itself (`torch.zeros`, `torch.arange`),
and what comes from numpy through `placed`. Histories, random words and compiled loops stay arrays of the host, and
`on_host` brings tensors to them. On the processor nothing of this costs anything or copies a number.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privfed.compute.freed_memory import keep_freed_memory

HOST = torch.device("cpu")
_device: ContextVar[torch.device] = ContextVar("device", default=HOST)
_FIXED_WORKSPACE = ":4096:8"
"""Workspace of cuBLAS under which its products come out the same every time."""


class DeviceError(ValueError):
    """A device that is not there or cannot compute what is needed."""


def usable(name: str) -> torch.device:
    """The device of that name: `cpu`, `cuda`, `cuda:1`, ...

    Raises:
        DeviceError: there is no such device, or it has no float64, in which sums are kept.
    """
    try:
        device = torch.device(name)
        if device.type != HOST.type:
            torch.ones((), dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, TypeError, ModuleNotFoundError, AttributeError) as error:
        # Torch goes on with advice for its own developers and lists of all backends.
        why = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
        if why.startswith("Expected one of"):
            why = "torch knows none of that name"
        raise DeviceError(
            f"the device {name!r} cannot be used here ({why}): choose cpu, or cuda (cuda:1, ...) where there is one"
        ) from error
    return HOST if device.type == HOST.type else device


@contextmanager
def computing_on(device: torch.device, *, deterministic: bool = True) -> Iterator[None]:
    """Make all tensors on `device`, and keep memory that is freed for the tensors that come next.

    Args:
        device: a usable one.
        deterministic: on an accelerator, take only kernels that give the same bits every time; the processor's do.
    """
    keep_freed_memory()
    if device == HOST and _device.get() == HOST:
        yield
        return
    former = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if deterministic and device != HOST:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _FIXED_WORKSPACE)
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 (torch takes no keyword here)
    entered = _device.set(HOST if device == HOST else device)
    try:
        with device:
            yield
    finally:
        _device.reset(entered)
        torch.use_deterministic_algorithms(former[0], warn_only=former[1])


def here() -> torch.device:
    """Device on which tensors are made."""
    return _device.get()


def placed(array: np.ndarray[Any, Any]) -> Tensor:
    """The array as a tensor where tensors are made; on the processor it is the same memory."""
    return moved(torch.from_numpy(array))


def moved(tensor: Tensor) -> Tensor:
    """The tensor where tensors are made; itself if it is there."""
    device = _device.get()
    return tensor if device is HOST else tensor.to(device)


def all_moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor where tensors are made."""
    return {name: moved(tensor) for name, tensor in tensors.items()}


def all_on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor in the host's memory; on the processor they are themselves."""
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def on_host(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The tensor as an array: the same memory on the processor, else a copy that waits for the accelerator."""
    array: np.ndarray[Any, Any] = tensor.cpu().numpy()
    return array
