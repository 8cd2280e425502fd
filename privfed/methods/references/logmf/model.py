"""Logistic matrix factorisation (Johnson, NIPS workshop 2014).

With x a user's vector, y an item's and b their biases, z = x y + b_user + b_item is the logit of "has it". An
interaction weighs alpha, and every pair one more as a zero, so that the log-likelihood is

    sum over pairs of  alpha r z - (1 + alpha r) log(1 + exp z)   less   reg / 2 (|x|^2 + |y|^2),

whose gradient by z is alpha (1 - sigmoid z) - sigmoid z for an interaction and -sigmoid z elsewhere.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.data import Histories
from privfed.methods.shared.vae_clients import UserRows

_PAIRS_AT_ONCE = 2**22


class Side(NamedTuple):
    """Vectors and biases of all users, or of all items; gradients by them too."""

    vectors: Float[Tensor, "n dim"]
    biases: Float[Tensor, " n"]


def residuals(
    users: Side, items: Side, lists: Histories, alpha: float
) -> Iterator[tuple[Int64[Tensor, " some"], Float[Tensor, "some items"]]]:
    """Gradients of the likelihood by z, for some users at a time: who, and theirs."""
    rows, together = UserRows(lists), max(_PAIRS_AT_ONCE // lists.n_items, 1)
    for who in torch.split(torch.arange(lists.n_users), together):
        z = torch.addmm(items.biases, users.vectors[who], items.vectors.T) + users.biases[who].unsqueeze(1)
        out, own = z.sigmoid_().neg_(), rows.select(who)
        taken = out[own.owner, own.items]
        out[own.owner, own.items] = taken + alpha * (1 + taken)
        yield who, out


def user_gradient(users: Side, items: Side, lists: Histories, alpha: float, reg: float) -> Side:
    """Gradient of the penalised likelihood by the users' side."""
    blocks = [(by_z @ items.vectors, by_z.sum(1)) for _, by_z in residuals(users, items, lists, alpha)]
    vectors, biases = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return Side(vectors - reg * users.vectors, biases)


def item_gradient(users: Side, items: Side, lists: Histories, alpha: float, reg: float) -> Side:
    """Gradient of the penalised likelihood by the items' side."""
    vectors, biases = -reg * items.vectors, torch.zeros_like(items.biases)
    for who, by_z in residuals(users, items, lists, alpha):
        vectors.addmm_(by_z.T, users.vectors[who])
        biases += by_z.sum(0)
    return Side(vectors, biases)
