"""What a module must be to be trained here, and the one sentence that says why it cannot.

Most of it is measured: the module scores a few items with slightly moved parameters.
That catches what a list of layer types would miss, such as a functional dropout.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.func import functional_call

from privfed.methods.torch_method.spec import TorchMethodSpec, belongs, first_line
from privfed.methods.torch_method.stacked import StackedModule, per_sample

_PROBED = 8
"""Number of items that a module is examined with."""


def trainable(spec: TorchMethodSpec, module: nn.Module) -> dict[str, Tensor]:
    """The initial values of the parameters that are trained; frozen ones stay as the module built them."""
    found = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    for name, value in module.named_parameters():
        if value.dtype not in (torch.float32, torch.float64):
            raise spec.refusal(
                f"parameter {name!r} is {value.dtype}; make it torch.float32 (or float64), or register a constant "
                f"as a buffer"
            )
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
            raise spec.refusal(
                f"the embedding {name!r} has a padding_idx, which torch.func.vmap does not honour; leave it out, "
                f"batches are padded and masked for you"
            )
    for prefix in spec.private:
        if not any(belongs(name, prefix) for name in found):
            raise spec.refusal(
                f"private names {prefix!r}, which is no trainable parameter and no submodule that has one; "
                f"there are {', '.join(found) or 'none'}"
            )
    return found


def something_shared(spec: TorchMethodSpec, shared: Mapping[str, Tensor]) -> None:
    """Refuse a module with nothing to learn together."""
    if not shared:
        raise spec.refusal(
            "no trainable parameter is left to share, so clients would learn nothing from each other; take some "
            "names out of private"
        )


def same_start(spec: TorchMethodSpec, one: nn.Module, other: nn.Module) -> None:
    """Refuse a module whose initial values differ when it is built again from the same words."""
    again = dict(_tensors(other))
    for name, value in _tensors(one):
        if name not in again or not torch.equal(value, again[name]):
            raise spec.refusal(
                f"{name!r} starts from other values when the module is built again, so a run could not be repeated; "
                f"draw initial values with torch's own generator"
            )


def forward(spec: TorchMethodSpec, probe: nn.Module, n_items: int) -> None:
    """Refuse a module or loss that fails, remembers, draws, mixes samples or answers in another shape.

    `probe` is moved away from its initial values, where gradients may vanish, and stays there.
    """
    items = probed_items(n_items)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        for parameter in probe.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        before, generator = [value.clone() for _, value in _tensors(probe)], torch.get_rng_state()
        try:
            logits = probe(items)
        except Exception as error:
            raise spec.refusal(
                f"forward(items) failed for an int64 tensor of {_PROBED} items: {first_line(error)}"
            ) from error
        if not torch.equal(generator, torch.get_rng_state()):
            raise spec.refusal(
                "forward draws random numbers (dropout?), which have no address and could not be repeated after a "
                "resume or with another chunk size; leave dropout out, or regularise with fewer epochs or a "
                "smaller width"
            )
        for (name, value), old in zip(_tensors(probe), before, strict=True):
            if not torch.equal(value, old):
                raise spec.refusal(
                    f"forward changes {name!r} (batch norm?), which would carry data from client to client outside "
                    f"the upload; use nn.LayerNorm or nn.GroupNorm, which remember nothing"
                )
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (_PROBED,) or not logits.is_floating_point():
            shape = f"the shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise spec.refusal(
                f"forward returned {shape} for {_PROBED} items; return one logit per item, shape ({_PROBED},)"
            )
        if not _close(probe(_changed_tail(items))[: _PROBED // 2], logits[: _PROBED // 2]):
            raise spec.refusal(
                "forward mixes the items of a batch (batch norm, softmax over items?), but batches are padded; the "
                "logit of an item may depend on that item alone"
            )
        _check_loss(spec, logits)


def _check_loss(spec: TorchMethodSpec, logits: Tensor) -> None:
    loss = per_sample(spec.loss)
    labels = (torch.arange(_PROBED) % 2).to(logits.dtype)
    try:
        losses = loss(logits, labels)
    except Exception as error:
        raise spec.refusal(f"loss(logits, labels) failed: {first_line(error)}") from error
    if tuple(losses.shape) != (_PROBED,):
        raise spec.refusal(
            f"loss(logits, labels) returned the shape {tuple(losses.shape)} for {_PROBED} samples; return one loss "
            f'per sample (reduction="none"), because padding must weigh nothing'
        )
    if not _close(loss(_changed_tail(logits), labels)[: _PROBED // 2], losses[: _PROBED // 2]):
        raise spec.refusal(
            "loss mixes the samples of a batch, but batches are padded; the loss of a sample may depend on that "
            "sample alone"
        )


def reads_by_row(probe: nn.Module, n_items: int, tables: Sequence[str], row_constants: Collection[str]) -> bool:
    """Whether logits and gradients stay the same when every table is cut down to the rows of the examined items."""
    items = probed_items(n_items)
    whole = {name: p.detach() for name, p in probe.named_parameters() if p.requires_grad}
    wanted, gradients = _logits_and_gradients(probe, whole, items)
    cut = {name: value[items] if name in tables else value for name, value in whole.items()}
    constants = {name: value.detach()[items] for name, value in _tensors(probe) if name in row_constants}
    try:
        found, of_rows = _logits_and_gradients(probe, cut, torch.arange(_PROBED), constants)
    except Exception:
        return False
    for name in tables:
        of_rows[name] = torch.zeros_like(whole[name]).index_add_(0, items, of_rows[name])
    return _close(found, wanted) and all(_close(of_rows[name], gradients[name]) for name in whole)


def stacks(
    spec: TorchMethodSpec, module: StackedModule, values: Mapping[str, Tensor], tables: Sequence[str], n_items: int
) -> None:
    """Refuse a module that torch cannot evaluate for several clients at once, or to which it does something else."""
    items = torch.stack([probed_items(n_items), probed_items(n_items).flip(0)])
    labels, real = (torch.arange(items.numel()) % 3 == 0).float().view(items.shape), torch.ones_like(items).bool()
    clients = [client(module, values, tables, asked, seed) for seed, asked in enumerate(items)]
    batches = {name: torch.stack([own[name] for own in clients]) for name in values}
    try:
        found = module.gradients(batches, items, labels, real)
    except Exception as error:
        raise spec.refusal(f"torch.func.vmap cannot stack its module over clients: {first_line(error)}") from error
    for lane in range(len(items)):
        alone = module.gradients_alone({name: v[lane] for name, v in batches.items()}, items[lane], labels[lane])
        if not all(_close(found[name][lane], alone[name]) for name in found):
            raise spec.refusal(
                "torch.func.vmap gives its module other gradients than it has alone; leave out layers that look at "
                "the whole stack"
            )


def client(
    module: StackedModule, values: Mapping[str, Tensor], tables: Sequence[str], items: Int64[Tensor, " b"], seed: int
) -> dict[str, Tensor]:
    """Parameters of a made-up client near `values`, as `module` takes them for `items`."""
    generator = torch.Generator().manual_seed(seed)
    moved = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
        for name, value in values.items()
    }
    return moved | ({name: moved[name][items] for name in tables} if module.by_row else {})


def probed_items(n_items: int) -> Int64[Tensor, " probed"]:
    """A few items in no order, first, last and repeated ones among them."""
    return torch.tensor([n_items - 1, 0, n_items // 2, n_items // 3, 0, n_items // 5, n_items - 1, n_items // 7])


def _logits_and_gradients(
    probe: nn.Module, values: Mapping[str, Tensor], items: Tensor, constants: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
    with torch.enable_grad():
        logits = functional_call(probe, leaves | dict(constants or {}), (items,))
        slopes = torch.linspace(0.5, 1.5, len(items), dtype=logits.dtype)
        found = torch.autograd.grad(logits @ slopes, list(leaves.values()), materialize_grads=True)
    return logits.detach(), dict(zip(leaves, found, strict=True))


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _changed_tail(values: Tensor) -> Tensor:
    """The first half of the items unchanged, the second half replaced by the first."""
    return values[: _PROBED // 2].repeat(2)


def _close(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5 * scale, equal_nan=True)
