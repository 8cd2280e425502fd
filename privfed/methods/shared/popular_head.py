"""The head of a catalogue, chosen by noisy popularity: the first query of methods that learn about popular items only.

Every user sends the unit vector along its own items, so the sum of all of them is popularity in units of unit vectors,
with noise of one clip norm's share. What follows is post-processing: all items in order, the most popular ones as the
head, and their popularity, floored where noise drowns it. Items below the head are recommended after it, in order.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from privfed.contracts import Block, NoisySums
from privfed.federation import Call
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import ClientUpdates, Rows

POPULARITY, HEAD, ORDER = "popularity", "head", "order"
SHARES, SCALE, WEIGHTS = "shares", "scale", "weights"
"""Names of what `private-gram` publishes about the items of its head."""
WITHIN = 1 - 2.0**-22
"""A few units in the last place below 1, so that a vector of this norm is within its clip norm after rounding too."""
_FLOOR = 0.5
_SMALLEST = 50


def side_of(sums: NoisySums, items: int, factor: float, largest: int) -> int:
    """Number of items of the head by rule: `factor` sqrt(n mu), with n clients whose sums have unit noise 1 / mu.

    Args:
        sums: n, and the noise that gives mu.
        items: of the catalogue.
        factor: what the rule multiplies by.
        largest: what the head may not exceed, however little noise there is.
    """
    mu = sums.mu
    wide = largest if math.isinf(mu) else max(_SMALLEST, round(factor * math.sqrt(sums.clients * mu)))
    return max(min(wide, largest, items - 1), 1)


def unit_block(shape: tuple[int, ...], unit: float, share: float) -> Block:
    """A block in which a vector of norm 1 uses the whole of its share.

    Args:
        shape: of one client's values.
        unit: the norm that a whole upload is sent with; the clip norm, where there is one.
        share: of the squared clip norm.
    """
    return Block(shape, weight=unit * math.sqrt(share), share=share)


def unit_histories(rows: OwnRows, call: Call, lengths: Float64[Tensor, " clients"] | float = 1.0) -> ClientUpdates:
    """The vector along the own items, of length 1 or as given: 1 over the root of how many there are, for each."""
    values = (WITHIN * lengths / rows.counts.double().sqrt())[rows.owner].float().unsqueeze(1)
    return ClientUpdates(call.clients, call.schema, [Rows(POPULARITY, rows.owner, rows.items, values)])


@dataclass(frozen=True, slots=True)
class PopularHead:
    """A head and what its popularity is.

    Attributes:
        items: item codes of the head, most popular first.
        popularity: of these, in unit vectors, at least what noise leaves of it.
        order: of every item of the catalogue, from 1 for the most popular one down to 1 / items.
    """

    items: Int64[Tensor, " side"]
    popularity: Float64[Tensor, " side"]
    order: Float[Tensor, " items"]

    @classmethod
    def from_popularity(cls, sums: Float[Tensor, " items"], deviation: float, side: int) -> "PopularHead":
        """The head of so many items.

        Args:
            sums: noisy popularity.
            deviation: standard deviation of its noise.
            side: how many items.
        """
        best = sums.argsort(descending=True, stable=True)
        order = torch.empty(len(sums))
        order[best] = torch.arange(len(sums), 0, -1, dtype=torch.float32) / len(sums)
        items = best[:side]
        return cls(items, sums[items].double().clamp(min=max(_FLOOR, deviation / 2)), order)

    def pooled(
        self,
        sums: Float64[Tensor, " items"],
        deviation: float,
        again: Float64[Tensor, " side"],
        deviation_again: float,
    ) -> "PopularHead":
        """The same items, their popularity and order by two sums, each weighted by its noise.

        Args:
            sums: noisy popularity of all items, which the head was cut from.
            deviation: standard deviation of its noise.
            again: noisy popularity of the head, of unit vectors over the head alone.
            deviation_again: standard deviation of its noise.
        """
        first = sums[self.items]
        # Vectors over fewer items have larger entries: by as much as the sums differ.
        longer = float(again.sum()) / max(float(self.popularity.sum()), _FLOOR)
        if longer <= 0 or not deviation:
            return self
        one, other = (longer * deviation) ** -2, deviation_again**-2
        both = (one * longer * first + other * again) / (one + other) / longer
        noise = math.sqrt(1 / (one + other)) / longer
        order = self.order.clone()
        # Places of the head among all items are shared out anew; what is outside keeps its own.
        order[self.items[both.argsort(descending=True, stable=True)]] = self.order[self.items]
        return PopularHead(self.items, both.clamp(min=max(_FLOOR, noise / 2)), order)


def on_head(rows: OwnRows, head: Int64[Tensor, " side"]) -> OwnRows:
    """The own items that are on the head, by their places there, ascending for each owner."""
    place = torch.full((rows.n_items,), -1)
    place[head] = torch.arange(len(head))
    at = place.index_select(0, rows.items)
    there = (at >= 0).nonzero().squeeze(1)
    key = (rows.owner.index_select(0, there) * len(head) + at.index_select(0, there)).sort().values
    owner = key // max(len(head), 1)
    return OwnRows(owner, key - owner * len(head), torch.bincount(owner, minlength=len(rows.counts)), len(head))


def over_catalogue(
    scores: Float[Tensor, "clients side"],
    known: Int64[Tensor, " clients"],
    head: Int64[Tensor, " side"],
    order: Float[Tensor, " items"],
) -> Float[Tensor, "clients items"]:
    """Scores of the whole catalogue: the head's, and below them everything else by popularity.

    Args:
        scores: of the head.
        known: how many items of the head each client has; one without any gets everything by popularity.
        head: item codes.
        order: of all items, in (0, 1].
    """
    popular = order.expand(len(scores), -1)
    found = scores.amin(1, keepdim=True) - 2 + popular
    found[:, head] = scores
    return torch.where(known.unsqueeze(1) > 0, found, popular)


class HeadModel(nn.Module):
    """What models on a head share that score a history alone, in operations that other runtimes have."""

    def __init__(self, head: Int64[Tensor, " side"], order: Float[Tensor, " items"]) -> None:
        super().__init__()
        self.head, self.order = nn.Buffer(head), nn.Buffer(order)

    def over_catalogue(self, scores: Float[Tensor, "n side"], owned: Float[Tensor, "n 1"]) -> Float[Tensor, "n items"]:
        """As the function of this name does it on a device; `len` would fix the number of histories in a graph."""
        popular = self.order.expand(scores.shape[0], -1)
        below = scores.amin(1, keepdim=True) - 2 + popular
        found = below.scatter(1, self.head.expand(scores.shape[0], -1), scores)
        return torch.where(owned > 0, found, popular)
