"""The server of FedCIA: the mean of everybody's item-item matrices, and the filter that devices get.

With F the mean of x x^T / L over users, row i of F adds up to the share of users who have item i, as every row of
x x^T / L adds up to 1 at own items. So F holds all that a graph filter of the pooled data needs, and with D the
diagonal of these sums

    D^-1/2 F D^-1/2 + a D^-1/2 V V^T D^1/2,   V its leading eigenvectors,

is GF-CF (Shen et al., "How powerful is graph convolution for recommendation?", CIKM 2021) in proportion, though no
history was pooled. The released code publishes F as it is.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.linear_algebra import leading_eigenvectors
from privfed.compute.memory import refuse_beyond_memory
from privfed.contracts import Block, NoisySums, Schema
from privfed.federation import Federation, Message, Streams
from privfed.methods.fedcia.config import FedCIAConfig
from privfed.methods.method import PublicInfo
from privfed.updates import packed_size, unpacked

SIMILARITY = "similarity"
WEIGHTS, POPULARITY = "weights", "popularity"
_BYTES_PER_PAIR = 20
"""Of a round: half a matrix of the sum and the matrices of mean and filter in float64, and weights in float32."""
_FLOOR = 0.5
"""Users whom an item counts at least, so that neither rarity nor noise divides by nearly nothing."""


class FedCIAServer:
    """One query in the first round.

    Attributes:
        schema: the triangle of one client's matrix.
        tensors: all that devices download: weights between items, and popularity for devices without any item.
    """

    def __init__(self, config: FedCIAConfig, public_info: PublicInfo, streams: Streams) -> None:  # noqa: ARG002
        self.config, self.items = config, public_info.n_items
        self.sums = public_info.sums or NoisySums(public_info.n_users)
        refuse_beyond_memory(
            _BYTES_PER_PAIR * self.items**2,
            f"fedcia on a catalogue of {self.items:,} items and matrices of all their pairs",
            "take a smaller catalogue, such as items that enough users have, or another method, such as private-gram",
        )
        self.schema: Schema = {SIMILARITY: Block((packed_size(self.items),))}
        self.tensors = {WEIGHTS: torch.zeros(self.items, self.items), POPULARITY: torch.zeros(self.items)}

    def round(self, federation: Federation, t: int) -> None:
        """Average the cohort's matrices once."""
        if t:
            return
        release = federation.aggregate("relate", federation.sample_cohort(t), self.public(), self.schema)
        mean = unpacked(release.mean(SIMILARITY), self.items)
        popularity = mean.sum(1)
        weights = mean if self.config.filtered_on == "device" else self._filter(mean, popularity)
        self.tensors = {WEIGHTS: weights.float(), POPULARITY: popularity.float()}

    def public(self) -> Message:
        """The filter and popularity."""
        return Message(self.tensors)

    def state(self) -> dict[str, Tensor]:
        """What devices download; the matrices of single clients are not kept."""
        return dict(self.tensors)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.tensors = dict(state)

    def _filter(
        self, mean: Float64[Tensor, "items items"], popularity: Float64[Tensor, " items"]
    ) -> Float64[Tensor, "items items"]:
        """The normalised matrix and its low pass."""
        clients = max(self.sums.clients, 1.0)
        # A row of noise adds up to sqrt(items) times the noise on one entry.
        least = max(_FLOOR, self.sums.deviation * self.items**0.5) / clients
        root = popularity.clamp(min=least).sqrt()
        normalised = mean / root.unsqueeze(1) / root
        if not self.config.low_pass:
            return normalised
        vectors = placed(leading_eigenvectors(on_host(normalised), self.config.dim, np.ones(self.items)))
        # (D^-1/2 V) (D^1/2 V)^T: two tall factors, so that the product is made once.
        return normalised.addmm_(
            vectors / root.unsqueeze(1), (vectors * root.unsqueeze(1)).T, alpha=self.config.low_pass
        )
