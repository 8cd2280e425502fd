"""What of a model a guard can bound: floating-point tensors, the same ones before training and after it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from privfed.engines.nodes.errors import NodeRefused

_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def examined(received: Mapping[str, Any], max_bytes: int) -> dict[str, Tensor]:
    """A copy of a received model, which training cannot change.

    Nothing but the message decides, so a refusal says nothing of data.

    Args:
        received: name -> tensor or array.
        max_bytes: largest size of all of them.

    Raises:
        NodeRefused: naming the first tensor that cannot be bounded.
    """
    refuse_large(sum(_bytes(values) for values in received.values()), max_bytes)
    model = {name: _copied(name, values) for name, values in received.items()}
    for name, values in model.items():
        _refuse_unbounded(name, values)
    if not any(values.numel() for values in model.values()):
        raise NodeRefused("the message holds no parameters to train; send the model's state dict")
    return model


def refuse_large(size: int, max_bytes: int) -> None:
    """Return quietly where a model of so many bytes may be read.

    Raises:
        NodeRefused: it is too large.
    """
    if size > max_bytes:
        raise NodeRefused(f"the model has {size} bytes and this node's policy accepts {max_bytes}; send a smaller one")


def update_of(before: Mapping[str, Tensor], after: Mapping[str, Any]) -> Float[Tensor, " coordinates"]:
    """What training changed, all parameters in one vector.

    Raises:
        NodeRefused: other names, shapes or types came back than were received, or numbers that are not finite.
    """
    if set(after) != set(before):
        odd = sorted(map(str, set(after) ^ set(before)))
        raise NodeRefused(f"training returned other parameters than it received ({', '.join(odd)[:200]})")
    changes = []
    for name, old in before.items():
        new = _copied(name, after[name])
        if new.shape != old.shape or new.dtype != old.dtype:
            raise NodeRefused(
                f"parameter {name!r} was received as {_form(old)} and returned as {_form(new)}; keep shape and type"
            )
        changes.append((new.double() - old.double()).flatten())
    update = torch.cat(changes).float()  # [coordinates]; what float32 cannot hold becomes infinite, and is refused
    if not math.isfinite(update.double().square().sum()):
        raise NodeRefused("the update is not finite")
    return update


def updated(before: Mapping[str, Tensor], update: Float[Tensor, " coordinates"]) -> dict[str, Tensor]:
    """The model that was received with an update added, in the types in which it came."""
    sizes = [values.numel() for values in before.values()]
    return {
        name: (values.double() + change.view(values.shape).double()).to(values.dtype)
        for (name, values), change in zip(before.items(), torch.split(update, sizes), strict=True)
    }


def _bytes(values: Any) -> int:
    """Size of values as dense numbers; 0 for what holds none, which is refused in another sentence."""
    if isinstance(values, Tensor):
        return values.numel() * values.element_size()
    return values.nbytes if isinstance(values, np.ndarray) else 0


def _copied(name: str, values: Any) -> Tensor:
    """Values as a tensor on the host that shares memory with nothing.

    Raises:
        NodeRefused: they are no tensor.
    """
    try:
        tensor = torch.from_numpy(values.copy()) if isinstance(values, np.ndarray) else values.detach().cpu().clone()
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise NodeRefused(f"{str(name)[:80]!r} is no tensor; send the model's state dict") from error
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise NodeRefused(f"{str(name)[:80]!r} is no dense tensor; send the model's state dict")
    return tensor


def _refuse_unbounded(name: str, values: Tensor) -> None:
    shown = str(name)[:80]
    if str(name).rpartition(".")[2] in _STATISTICS:
        raise NodeRefused(
            f"{shown!r} is a statistic of batch norm, which training computes from data past every clip of gradients: "
            "use layer or group norm, or batch norm with track_running_stats=False"
        )
    if values.dtype not in _NUMBERS:
        raise NodeRefused(
            f"{shown!r} has type {values.dtype}, and noise is for floating-point numbers of 16 to 64 bits: keep counts "
            "and indices out of the model that is sent"
        )
    if not bool(values.isfinite().all()):
        raise NodeRefused(f"{shown!r} holds NaN or infinity; send a finite model")


def _form(values: Tensor) -> str:
    return f"{tuple(values.shape)} {values.dtype}".replace("torch.", "")
