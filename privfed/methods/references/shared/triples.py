"""Samples of pairwise and pointwise training: an interaction each, with drawn items that the user does not have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import softplus

from privfed.compute.devices import placed
from privfed.data import Histories
from privfed.methods.references.shared.training import Draws
from privfed.methods.shared.samples import NegativeSampler

RankingLoss = Literal["bpr", "bce"]


@dataclass(frozen=True, slots=True, eq=False)
class Triples:
    """A batch of interactions.

    Attributes:
        users: of each interaction.
        items: its item, and behind it negatives of the user.
    """

    users: Int64[Tensor, " batch"]
    items: Int64[Tensor, "batch one_and_negatives"]


def epoch_of_triples(lists: Histories, negatives: int, batch_size: int, draws: Draws) -> Iterator[Triples]:
    """Every interaction once, in random order, with items drawn evenly from those that its user does not have.

    Interactions of users who have all items are left out.
    """
    sampler, order = NegativeSampler(lists, lists, 1), draws.order(len(lists))
    users = placed(lists.owners)[order]
    words = draws.words(len(lists) * negatives).view(-1, negatives)
    # A word below 2^32 times the number of items left, as a shift: an even number below it.
    drawn = sampler.unrank(users, (words * sampler.room[users].unsqueeze(1)) >> 32)
    items = torch.cat([placed(lists.items)[order].unsqueeze(1), drawn], 1)
    if (all_items := sampler.room[users] == 0).any():
        users, items = users[~all_items], items[~all_items]
    yield from (
        Triples(*batch) for batch in zip(torch.split(users, batch_size), torch.split(items, batch_size), strict=True)
    )


def ranking_loss(kind: RankingLoss, logits: Float[Tensor, "batch one_and_negatives"]) -> Float[Tensor, ""]:
    """The loss of a batch, in which the first column should win.

    `bpr`: mean of -log sigmoid(first - other) (Rendle et al., UAI 2009); `bce`: mean binary cross-entropy.
    """
    first, others = logits[:, :1], logits[:, 1:]
    if kind == "bpr":
        return softplus(others - first).mean()
    return torch.cat([softplus(-first), softplus(others)], 1).mean()
