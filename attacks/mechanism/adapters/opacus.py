"""Opacus: one optimiser step of a linear model whose per-sample gradient is the row that it is given.

Inputs are a float tensor, one row per record. The two halves of a row are the gradients of two parameters, so that
clipping by layer has layers to clip.
"""

from typing import Any, Literal, TypeAlias

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
from attacks.mechanism.release import Release

Clipping: TypeAlias = Literal["flat", "per_layer", "adaptive", "ghost"]

ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
}
"""Settings of adaptive clipping beside the noise of the count."""


def claim(noise_multiplier: float, *, delta: float = 1e-5, steps: int = 1) -> Claim:
    """What `PRVAccountant`, the default of `PrivacyEngine`, says of steps on all records."""
    accountant = package("opacus.accountants", "opacus").PRVAccountant()
    for _ in range(steps):
        accountant.step(noise_multiplier=noise_multiplier, sample_rate=1.0)
    with np.errstate(divide="ignore"):
        return Claim(float(accountant.get_epsilon(delta)), delta, "add_or_remove", "record", steps)


def step(
    noise_multiplier: float,
    *,
    clipping: Clipping = "flat",
    clip: float = 1.0,
    batch: int = 8,
    secure_mode: bool = False,
    count_noise: float = 4.0,
) -> Release:
    """Parameters after a step of the optimiser that Opacus takes for this kind of clipping.

    Args:
        noise_multiplier: As Opacus calls it.
        clipping: Kind of clipping; adaptive clipping releases its next bound, too.
        clip: `max_grad_norm`; by layer, each layer has its share of it.
        batch: Expected size of a batch.
        secure_mode: Whether noise is made as for `secure_mode`.
        count_noise: Standard deviation of the noise on the number of unclipped gradients, if they are counted.
    """
    torch, optimizers = package("torch", "torch"), package("opacus.optimizers", "opacus")
    samples = package("opacus.grad_sample", "opacus")
    ghost = clipping == "ghost"
    # The package has the ghost mode's optimiser under flat clipping.
    kind = optimizers.get_optimizer_class(
        clipping="flat" if ghost else clipping, distributed=False, grad_sample_mode="ghost" if ghost else "hooks"
    )
    options = ADAPTIVE | {"unclipped_num_std": count_noise} if clipping == "adaptive" else {}

    def release(rows: Any, generator: Any) -> dict[str, Any]:
        # torch warns of backward hooks where no input needs a gradient.
        rows = rows.detach().clone().requires_grad_()
        linear = _two_layers(rows.shape[1])
        if ghost:
            module = samples.GradSampleModuleFastGradientClipping(linear, max_grad_norm=clip, use_ghost_clipping=True)
        else:
            module = samples.GradSampleModule(linear)
        optimizer = kind(
            torch.optim.SGD(module.parameters(), lr=1.0),
            noise_multiplier=noise_multiplier,
            max_grad_norm=[clip / 2**0.5] * 2 if clipping == "per_layer" else clip,
            expected_batch_size=batch,
            generator=generator,
            secure_mode=secure_mode,
            **options,
        )
        if ghost:
            losses = package("opacus.utils.fast_gradient_clipping_utils", "opacus").DPLossFastGradientClipping
            losses(module, optimizer, _Output())(module(rows), None).backward()
        else:
            module(rows).mean().backward()
        optimizer.step()
        left = {f"parameter {at}": value for at, value in enumerate(linear.parameters())}
        return left | {"max_grad_norm": optimizer.max_grad_norm} if clipping == "adaptive" else left

    return release


class _Output:
    """Loss of a sample: what the model says of it."""

    reduction = "mean"

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Per sample or, as Opacus asks, the mean."""
        del targets
        return outputs.flatten() if self.reduction == "none" else outputs.mean()


def _two_layers(width: int) -> Any:
    """A linear model of two parameters, both zero."""
    torch = package("torch", "torch")

    class TwoLayers(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.left = torch.nn.Linear(width // 2, 1, bias=False)
            self.right = torch.nn.Linear(width - width // 2, 1, bias=False)
            for parameter in self.parameters():
                torch.nn.init.zeros_(parameter)

        def forward(self, rows: Any) -> Any:
            return self.left(rows[:, : width // 2]) + self.right(rows[:, width // 2 :])

    return TwoLayers()
