"""The loss of Mult-VAE over a batch of rows."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.methods.shared.vae import Architecture, decode, encode
from privfed.methods.shared.vae_inputs import Inputs, OwnRows


def inputs(rows: Float[Tensor, "users items"], factors: Float[Tensor, " entries"]) -> Inputs:
    """Inputs of the encoder: rows of unit length, each entry that is not zero times its factor."""
    owner, items = rows.nonzero(as_tuple=True)
    lengths = torch.linalg.vector_norm(rows, dim=1)
    own = OwnRows(owner, items, torch.bincount(owner, minlength=len(rows)), rows.shape[1])
    return Inputs(own, (rows[owner, items] / lengths[owner] * factors).unsqueeze(0))


def loss(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    rows: Float[Tensor, "users items"],
    read: Inputs,
    noise: Float[Tensor, "users latent"],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean over users of -sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I)).

    Args:
        architecture: widths.
        parameters: of the autoencoder.
        rows: to reconstruct.
        read: what the encoder reads of them.
        noise: standard normal draws; z = mean + deviation x noise.
        beta: weight of the KL term.
    """
    mean, log_variance = encode(architecture, parameters, read, {}).chunk(2, 1)
    logits = decode(architecture, parameters, mean + noise * (log_variance / 2).exp(), {})
    likelihood = (rows * logits.log_softmax(1)).sum(1)
    kl = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
    return (beta * kl - likelihood).mean()
