"""RecVAE (Shenbin et al., WSDM 2020): encoder, composite prior and loss.

The encoder's layers are densely connected, h_j = norm(swish(h_(j-1) W_j + b_j + h_1 + ... + h_(j-1))). The prior of
every latent coordinate mixes a standard normal, the posterior by the encoder of the last epoch, and a wide normal. A
user's KL term, estimated by the drawn z, weighs gamma times the user's number of items:

    mean over users of  -sum_i r_i log softmax_i(decoder(z)) + gamma |r| (log q(z | r) - log p(z | r)).
"""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.methods.method import MethodConfig
from privfed.methods.references.shared.rows import multinomial
from privfed.methods.references.shared.training import below
from privfed.methods.shared.heads import kaiming_uniform
from privfed.methods.shared.vae_inputs import Inputs

ENCODER, DECODER, PRIOR = "encoder.", "decoder.", "prior."
_NORM_EPSILON = 0.1
_WIDE_LOG_VARIANCE = 10.0


class RecVAEConfig(MethodConfig):
    """Settings of RecVAE; lr and gamma were chosen on the validation items of MovieLens-100K, for 30 rounds."""

    latent: int = Field(64, ge=1, description="width of the latent vector")
    hidden: int = Field(200, ge=1, description="width of the encoder's layers")
    depth: int = Field(5, ge=1, description="layers of the encoder before mean and log variance")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of input entries dropped where the encoder is trained")
    gamma: float = Field(0.005, ge=0, description="weight of a user's KL term for each of the user's items")
    mixture: tuple[float, float, float] = Field(
        (0.15, 0.75, 0.1), description="weights of standard normal, former posterior and wide normal in the prior"
    )
    encoder_epochs: int = Field(3, ge=1, description="passes that train the encoder, in each epoch")
    decoder_epochs: int = Field(1, ge=1, description="passes that then train the decoder, in each epoch")
    batch_size: int | None = Field(500, ge=1, description="users per gradient step; null takes all of them at once")
    lr: float = Field(2e-3, gt=0, description="learning rate of Adam")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty in the gradient")
    epochs: int = Field(1, ge=1, description="epochs in a round")

    def layers(self, n_items: int) -> dict[str, tuple[int, int]]:
        """(in, out) of every layer; the decoder's weight is output-first."""
        widths = (n_items, *[self.hidden] * self.depth, 2 * self.latent)
        encoder = {f"{ENCODER}{j}": sides for j, sides in enumerate(pairwise(widths))}
        return encoder | {f"{DECODER}0": (self.latent, n_items)}

    def size(self, n_items: int) -> int:
        """Numbers in all layers."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.layers(n_items).values())

    def initial(self, n_items: int, unit: Float[Tensor, " size"]) -> dict[str, Tensor]:
        """All layers as torch's Linear starts them, norms at one and zero, and the encoder once more for the prior."""
        out, used = dict[str, Tensor](), 0
        for name, (fan_in, fan_out) in self.layers(n_items).items():
            shape = (fan_out, fan_in) if name.startswith(DECODER) else (fan_in, fan_out)
            for part, sides in (("weight", shape), ("bias", (fan_out,))):
                size = math.prod(sides)
                out[f"{name}.{part}"] = kaiming_uniform(sides, fan_in, unit[used : used + size])
                used += size
        for j in range(self.depth):
            out |= {f"{ENCODER}{j}.gain": torch.ones(self.hidden), f"{ENCODER}{j}.shift": torch.zeros(self.hidden)}
        return out | as_prior(out)


def as_prior(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's parameters under the names of the prior's, as copies: a checkpoint keeps no tensor twice."""
    return {PRIOR + name: value.clone() for name, value in below(ENCODER, parameters).items()}


def posterior(
    depth: int, encoder: Mapping[str, Tensor], read: Inputs
) -> tuple[Float[Tensor, "users latent"], Float[Tensor, "users latent"]]:
    """Mean and log variance of every user.

    Args:
        depth: layers before the last.
        encoder: parameters without the name of the encoder.
        read: its input.
    """

    def normed(j: int, linear: Tensor) -> Tensor:
        # In single operations: fused ones round in another way on other devices.
        h = linear * linear.sigmoid()
        h = h - h.mean(1, keepdim=True)
        deviation = (h.square().mean(1, keepdim=True) + _NORM_EPSILON).sqrt()
        return h / deviation * encoder[f"{j}.gain"] + encoder[f"{j}.shift"]

    h = normed(0, read.times(encoder["0.weight"], read.rows.items)[0] + encoder["0.bias"])
    below_it = h
    for j in range(1, depth):
        h = normed(j, h @ encoder[f"{j}.weight"] + encoder[f"{j}.bias"] + below_it)
        below_it = below_it + h
    mean, log_variance = (h @ encoder[f"{depth}.weight"] + encoder[f"{depth}.bias"]).chunk(2, 1)
    return mean, log_variance


def log_normal(
    z: Float[Tensor, "users latent"],
    mean: Float[Tensor, "users latent"],
    log_variance: Float[Tensor, "users latent"],
) -> Float[Tensor, "users latent"]:
    """Log density of every coordinate."""
    return -(log_variance + math.log(2 * math.pi) + (z - mean).square() / log_variance.exp()) / 2


def log_prior(
    z: Float[Tensor, "users latent"],
    former_mean: Float[Tensor, "users latent"],
    former_log_variance: Float[Tensor, "users latent"],
    mixture: tuple[float, float, float],
) -> Float[Tensor, "users latent"]:
    """Log density of every coordinate under the mixture of standard normal, former posterior and wide normal."""
    zero = torch.zeros_like(z)
    densities = [
        log_normal(z, zero, zero),
        log_normal(z, former_mean, former_log_variance),
        log_normal(z, zero, zero + _WIDE_LOG_VARIANCE),
    ]
    weighted = [density + math.log(weight) for density, weight in zip(densities, mixture, strict=True)]
    return torch.stack(weighted).logsumexp(0)


def loss(
    config: RecVAEConfig, parameters: Mapping[str, Tensor], read: Inputs, noise: Float[Tensor, "users latent"]
) -> Float[Tensor, ""]:
    """Mean over users of the negative likelihood and the weighted KL term, for z = mean + deviation x noise."""
    mean, log_variance = posterior(config.depth, below(ENCODER, parameters), read)
    z = mean + noise * (log_variance / 2).exp()
    # The former encoder reads whole rows, and nothing trains it.
    whole = read.rows.inputs(torch.ones(1, len(read.rows.items), dtype=torch.bool), 0.0, z.dtype)
    former = posterior(config.depth, below(PRIOR, parameters), whole)
    divergence = (log_normal(z, mean, log_variance) - log_prior(z, *former, config.mixture)).sum(1)
    return (config.gamma * read.rows.counts * divergence - multinomial(decode(parameters, z), read.rows)).mean()


def decode(parameters: Mapping[str, Tensor], z: Float[Tensor, "users latent"]) -> Float[Tensor, "users items"]:
    """Logits of all items."""
    return torch.addmm(parameters[f"{DECODER}0.bias"], z, parameters[f"{DECODER}0.weight"].T)
