"""Settings that FedVAE and FedDAE share."""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.compute.memory import available_bytes
from privfed.compute.tiles import TILE
from privfed.contracts import Schema, upload_bytes
from privfed.methods.method import MethodConfig
from privfed.methods.shared.server_optimiser import Kind, ServerOptimiser
from privfed.methods.shared.vae import Architecture, Initialisation
from privfed.methods.shared.vae_layers import step_coefficients
from privfed.updates.chunking import DEFAULT_CHUNK

_COPIES = 4
"""Of a client's layers: those it downloads, changes, and what changes are made and clipped in."""
_VALUES_IN_CACHE = 5 * 2**18
"""Scores of a chunk: more of them cost pages that the system has to clear anew, fewer cost calls."""


def in_cache(schema: Schema) -> int:
    """Clients whose scores of the whole catalogue stay in the cache together: whole tiles.

    Of a large catalogue `DEFAULT_CHUNK`, because each chunk costs a pass over the sums, however few clients it has;
    fewer where their changes would take more than half of the memory there is.
    """
    longest = max(max(block.shape) for block in schema.values())
    most, there = max(_VALUES_IN_CACHE // longest // TILE * TILE, DEFAULT_CHUNK), available_bytes()
    if there is None:
        return most
    return min(most, max(there // 2 // (_COPIES * max(upload_bytes(schema), 1)) // TILE, 1) * TILE)


class VAEConfig(MethodConfig):
    """Autoencoder, local training and server optimiser. The paper's model: hidden (768, 512), latent 256."""

    latent: int = Field(64, ge=1, description="width of the latent vector")
    hidden: tuple[int, ...] = Field((), description="encoder widths between items and latent; the decoder mirrors them")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of a client's input entries dropped in each local step")
    local_steps: int = Field(1, ge=1, description="full-batch SGD steps per round on the client's one row")
    local_lr: float = Field(1e-3, gt=0, description="learning rate of the local steps")
    beta_cap: float = Field(1.0, ge=0, description="weight of the KL term after annealing")
    anneal_rounds: int = Field(100, ge=0, description="rounds over which the KL weight rises linearly to its cap")
    loss_scale: Literal["sum", "mean"] = Field(
        "sum",
        description="sum: as published, so gradients grow with a client's number of items; mean: the whole loss, "
        "KL included, divided by that number",
    )
    initialisation: Initialisation = Field("torch", description="torch: as torch's Linear; xavier: Glorot, zero biases")
    popularity_prior: bool = Field(
        default=False, description="a query more in round 1 for item counts, whose logarithm starts the decoder's bias"
    )
    server_optimiser: Kind = Field("adam", description="adam, sgd or momentum on the mean update")
    server_lr: float = Field(1e-2, gt=0, description="learning rate of the server; 1 with sgd is federated averaging")
    server_weight_decay: float = Field(0.0, ge=0, description="L2 penalty in the server's gradient")

    @property
    def accumulates(self) -> bool:
        """Whether local gradients are never set to zero."""
        return False

    def beta(self, t: int) -> float:
        """Weight of the KL term in round t, from 0: cap x min(1, t / anneal_rounds)."""
        return self.beta_cap * (min(1.0, t / self.anneal_rounds) if self.anneal_rounds else 1.0)

    def architecture(self, n_items: int) -> Architecture:
        """The autoencoder over a catalogue."""
        return Architecture(n_items, self.latent, self.hidden)

    def coefficients(self, dtype: torch.dtype) -> Float[Tensor, "steps_and_one steps"]:
        """Coefficients of each local gradient in the weights of later steps and in the upload."""
        return step_coefficients(self.local_steps, self.local_lr, accumulate=self.accumulates, dtype=dtype)

    def optimiser(self) -> ServerOptimiser:
        """A fresh server optimiser."""
        return ServerOptimiser(self.server_optimiser, self.server_lr, self.server_weight_decay)
