"""One module evaluated for many clients at once: `torch.func.functional_call` under `torch.func.vmap`.

Clients share no parameter inside a step, so one ordinary backward pass through all their losses gives every client
the gradient of its own: the same bits as `vmap(grad(loss))`, in less time, and without the second that it takes to
load `torch.func.grad`.
"""

import inspect
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.func import functional_call, vmap

from privfed.methods.torch_method.spec import Loss

Tensors = Mapping[str, Tensor]


class StackedModule:
    """A module whose parameters have a leading clients axis.

    Args:
        module: the module of one client.
        loss: loss of every sample.
        by_row: item tables come as the rows of the items in question, `[clients, batch, *row]`, and the module
            is given the items 0 ... batch-1; no client's whole table exists then.
        row_constants: buffers and frozen parameters `[items, *row]` that are looked up in the same way.
    """

    def __init__(self, module: nn.Module, loss: Loss, *, by_row: bool, row_constants: Tensors) -> None:
        self.module, self.by_row = module, by_row
        self._loss, self._row_constants = per_sample(loss), row_constants if by_row else {}

    def logits(self, parameters: Tensors, items: Int64[Tensor, "n b"]) -> Float[Tensor, "n b"]:
        """One logit per client and item; every trainable parameter must be given."""
        parameters, items = self._seen(parameters, items)
        logits: Tensor = vmap(self._logits)(parameters, items)
        return logits

    def gradients(
        self,
        parameters: Tensors,
        items: Int64[Tensor, "n b"],
        labels: Float[Tensor, "n b"],
        real: Bool[Tensor, "n b"],
    ) -> dict[str, Tensor]:
        """d(mean loss over real samples) / d(parameter) of every client, shaped like `parameters`."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            seen, items = self._seen(leaves, items)
            # [n, b]. No loss reads another client's parameters, so the gradient of a weighted sum holds all of theirs.
            losses = vmap(self._losses)(seen, items, labels)
        return _slopes(losses, leaves, real)

    def gradients_alone(
        self, parameters: Tensors, items: Int64[Tensor, " b"], labels: Float[Tensor, " b"]
    ) -> dict[str, Tensor]:
        """Gradients of one client without stacking, as a check that stacking changes nothing."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            seen, items = self._seen(leaves, items)
            losses = self._losses(seen, items, labels)
        return _slopes(losses, leaves, torch.ones_like(losses))

    def _seen(self, parameters: Tensors, items: Int64[Tensor, "*n b"]) -> tuple[Tensors, Int64[Tensor, "*n b"]]:
        """The module's own arguments: as given, or rows numbered by their position in the batch."""
        if not self.by_row:
            return parameters, items
        constants = {name: value[items] for name, value in self._row_constants.items()}
        # Rows were gathered by item before, so the module looks them up by position in the batch.
        return {**parameters, **constants}, torch.arange(items.shape[-1]).expand_as(items)

    def _logits(self, parameters: Tensors, items: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.module, dict(parameters), (items,))
        return logits

    def _losses(self, parameters: Tensors, items: Tensor, labels: Tensor) -> Tensor:
        logits = self._logits(parameters, items)
        return self._loss(logits, labels.to(logits.dtype))


def _slopes(losses: Tensor, leaves: Tensors, real: Tensor) -> dict[str, Tensor]:
    # [n, b], as the gradient by each loss: that of the mean over a client's real samples, without forming the mean.
    weight = real.to(losses.dtype) / real.sum(-1, keepdim=True).clamp(min=1)
    # Zeros for parameters that no logit depends on, instead of None.
    found = torch.autograd.grad(losses, list(leaves.values()), weight, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def per_sample(loss: Loss) -> Loss:
    """The loss without its reduction, for torch's functional losses; any other as it is."""
    try:
        reduces = "reduction" in inspect.signature(loss).parameters
    # Callables written in C may show no signature.
    except ValueError:
        reduces = False
    return (lambda logits, labels: loss(logits, labels, reduction="none")) if reduces else loss
