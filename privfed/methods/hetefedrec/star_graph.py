"""Fed-LightGCN's one local propagation: a client's graph is a star of itself and its training positives.

LightGCN (SIGIR 2020, eq. 3 and 4) with layers 0 and 1 averaged. The centre has degree n and every leaf 1, so with
a_j = 1/sqrt(n) for positives and 0 elsewhere

    e_u = (u + sum_j a_j v_j) / 2        e_j = (v_j + a_j u) / 2.

Both are linear, and coordinate by coordinate: a prefix of the propagated vectors is the propagation of the prefix.

A trained positive then differs from an unseen item in more than taste: it carries a share of u, and e_u a share of
itself. `gather` is the form that ranks unseen items as it trained: e_u = u + sum_j a_j v_j, items stay as they are, and
the inner product with a positive leaves its own share out (`own_part`), as item-based models do (FISM, KDD 2013).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def edges(positive: Float[Tensor, "n rows"]) -> Float[Tensor, "n rows"]:
    """a_j of every row: 1/sqrt(number of positives) for positives, else 0."""
    return positive / positive.sum(1, keepdim=True).clamp(min=1).sqrt()


def propagate(
    user: Float[Tensor, "n width"], items: Float[Tensor, "n width rows"], a: Float[Tensor, "n rows"]
) -> tuple[Float[Tensor, "n width"], Float[Tensor, "n width rows"]]:
    """(e_u, e_j) of every client and row."""
    centre = torch.baddbmm(user.unsqueeze(2), items, a.unsqueeze(2), beta=0.5, alpha=0.5).squeeze(2)
    return centre, torch.baddbmm(items, user.unsqueeze(2), a.unsqueeze(1), beta=0.5, alpha=0.5)


def proximal_step(
    d_user: Float[Tensor, "n width"], d_items: Float[Tensor, "n width rows"], a: Float[Tensor, "n rows"]
) -> tuple[Float[Tensor, "n width"], Float[Tensor, "n width rows"]]:
    """Gradients by (u, v_j) from those by (e_u, e_j): the propagation is its own transpose."""
    return propagate(d_user, d_items, a)


def gather(
    user: Float[Tensor, "n width"], items: Float[Tensor, "n width rows"], a: Float[Tensor, "n rows"]
) -> Float[Tensor, "n width"]:
    """The user's vector plus the sum of a_j v_j."""
    return torch.baddbmm(user.unsqueeze(2), items, a.unsqueeze(2)).squeeze(2)


def own_part(
    items: Float[Tensor, "n width rows"], a: Float[Tensor, "n rows"], reach: Float[Tensor, "width heads"]
) -> Float[Tensor, "n heads rows"]:
    """a_j |v_j|^2 over every head's prefix: what a positive itself adds to its inner product with the gathered user."""
    return torch.matmul(reach.T, items.square()).mul_(a.unsqueeze(1))


def add_gathered_gradient_(
    d_items: Float[Tensor, "n width rows"],
    d_user: Float[Tensor, "n width"],
    items: Float[Tensor, "n width rows"],
    a: Float[Tensor, "n rows"],
    d_own: Float[Tensor, "n width rows"] | None,
) -> None:
    """Add what the gathered user vector and the own parts say about items, in place.

    Args:
        d_items: gradient by the items as candidates.
        d_user: gradient by the gathered user vector.
        items: item vectors.
        a: edges.
        d_own: gradient of the loss by minus the own part, spread over the prefixes; None where none was left out.
    """
    d_items.baddbmm_(d_user.unsqueeze(2), a.unsqueeze(1))
    if d_own is not None:
        d_items.sub_(d_own.mul_(a.unsqueeze(1)).mul_(items), alpha=2)
