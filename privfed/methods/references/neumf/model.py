"""NeuMF (He et al., WWW 2017): a weighted inner product of two vectors beside a perceptron on two others.

A user's or an item's row holds both vectors, that of the inner product first.
"""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.methods.method import MethodConfig
from privfed.methods.references.shared.triples import RankingLoss
from privfed.methods.shared.heads import kaiming_uniform


class NeuMFConfig(MethodConfig):
    """Settings of NeuMF; the learning rate was chosen on the validation items of MovieLens-100K, for 10 rounds."""

    dim: int = Field(32, ge=1, description="width of the vectors of the inner product")
    mlp_dim: int = Field(32, ge=1, description="width of the vectors that the perceptron reads")
    hidden: tuple[int, ...] = Field((32, 16, 8), min_length=1, description="widths of the perceptron's layers")
    loss: RankingLoss = Field("bce", description="bce: taken or drawn; bpr: the taken item above a drawn one")
    negatives: int = Field(4, ge=1, description="items drawn for every interaction in every pass")
    batch_size: int = Field(1024, ge=1, description="interactions per gradient step, each with its drawn items")
    lr: float = Field(5e-3, gt=0, description="learning rate of Adam")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty on all parameters in every step")
    initial_scale: float = Field(0.01, gt=0, description="standard deviation of initial vectors")
    epochs: int = Field(1, ge=1, description="passes over all interactions in a round")

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """(in, out) of every layer of weights: the perceptron's, and that from all products to the score."""
        widths = (2 * self.mlp_dim, *self.hidden)
        return {f"layer.{j}": sides for j, sides in enumerate(pairwise(widths))} | {
            "score": (self.dim + self.hidden[-1], 1)
        }

    @property
    def size(self) -> int:
        """Numbers in all layers."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.layers.values())

    def initial(self, unit: Float[Tensor, " size"]) -> dict[str, Tensor]:
        """All layers as torch's Linear starts them, from as many uniforms in (0, 1)."""
        out, used = dict[str, Tensor](), 0
        for name, (fan_in, fan_out) in self.layers.items():
            for part, shape in (("weight", (fan_in, fan_out)), ("bias", (fan_out,))):
                size = math.prod(shape)
                out[f"{name}.{part}"] = kaiming_uniform(shape, fan_in, unit[used : used + size])
                used += size
        return out


def logits(
    config: NeuMFConfig,
    layers: Mapping[str, Tensor],
    users: Float[Tensor, "#n #k width"],
    items: Float[Tensor, "#n #k width"],
) -> Float[Tensor, "n k"]:
    """Scores of items for users; one of a row or a column stands for all of it."""
    weight, mlp = layers["layer.0.weight"], config.mlp_dim
    # The first layer of [user, item] is a sum, so that neither is repeated for every other.
    h = users[..., config.dim :] @ weight[:mlp] + items[..., config.dim :] @ weight[mlp:] + layers["layer.0.bias"]
    for j in range(1, len(config.hidden)):
        h = h.relu() @ layers[f"layer.{j}.weight"] + layers[f"layer.{j}.bias"]
    inner, outer = torch.split(layers["score.weight"][:, 0], [config.dim, config.hidden[-1]])
    product = (users[..., : config.dim] * inner * items[..., : config.dim]).sum(2)
    scored: Tensor = product + h.relu() @ outer + layers["score.bias"]
    return scored
