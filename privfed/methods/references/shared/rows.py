"""Batches of users' rows for the central autoencoders, and what they all maximise."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.devices import placed
from privfed.data import Histories
from privfed.methods.references.shared.training import Draws
from privfed.methods.shared.vae_clients import UserRows
from privfed.methods.shared.vae_inputs import Inputs, OwnRows


def epoch_of_rows(lists: Histories, batch_size: int | None, draws: Draws) -> Iterator[OwnRows]:
    """The rows of all users that have any item, in random order; None for the size takes all at once."""
    rows, some = UserRows(lists), placed(lists.counts.nonzero()[0])
    shuffled = some[draws.order(len(some))]
    yield from (rows.select(users) for users in torch.split(shuffled, batch_size or len(some)))


def dropped(rows: OwnRows, dropout: float, draws: Draws) -> Inputs:
    """Rows of unit length with a share of their entries dropped at random."""
    return rows.inputs(draws.kept(len(rows.items), dropout).unsqueeze(0), dropout, torch.float32)


def multinomial(logits: Float[Tensor, "users items"], rows: OwnRows) -> Float[Tensor, " users"]:
    """Log-likelihood of each user's own items: the sum of their log softmax."""
    own = logits.log_softmax(1)[rows.owner, rows.items]
    return torch.zeros(len(rows.counts)).index_add(0, rows.owner, own)
