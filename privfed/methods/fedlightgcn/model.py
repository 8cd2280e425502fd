"""LightGCN on a user's own graph, a star of the user and its n training items, trained without touching all of them.

One layer of LightGCN (He et al., SIGIR 2020, eq. 3 and 4) joined with layer 0. With a_j = 1/sqrt(n) for training items
and 0 for all others, and s = sum_j a_j v_j,

    star      e_u = (u + s) / 2,  e_j = (v_j + a_j u) / 2,  logit e_u . e_j
    centre    e_u = u + s,        e_j = v_j,                logit e_u . v_j - a_j |v_j|^2.

A training item is part of s and, in the star, has a share of u, which no other item has; the centre's form leaves that
out, so that unseen items are ranked as they were trained (FISM, KDD 2013).

Every step moves all training items, each by a_j times one vector, which would be n rows for a batch. So the rows hold
f_j = v_j - a_j c, with one c per client: a step moves f of the batch's items, c, and s, for which sum_j a_j^2 = 1 makes
n terms into one.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.methods.shared.heads import bce_gradient
from privfed.methods.shared.local_training import Parameters

Propagation = Literal["star", "centre"]


@dataclass(frozen=True, slots=True)
class StarGraph:
    """Gradient steps on the stars of a tile of clients.

    Parameters of a client: `user` u, `star` s, `shift` c, each `[dim]`, and `edge`, a of its training items.

    Attributes:
        propagation: form of the model.
        lr_user, lr_items: learning rates.
    """

    propagation: Propagation
    lr_user: float
    lr_items: float

    def step_(
        self, p: Parameters, f: Float[Tensor, "n b dim"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b dim"]:
        """One SGD step on u, s and c, in place; returns the gradient of the batch's rows that is theirs alone."""
        a = y * p["edge"].unsqueeze(1)
        q = torch.addcmul(f, a.unsqueeze(2), p["shift"].unsqueeze(1))
        star = self.propagation == "star"
        centre, leaves = self.propagated(p["user"], p["star"], q, a)
        g = bce_gradient(self.logits(centre, leaves, a), y, weight)
        # [n, dim]: gradient by e_u; [n, b, dim]: by e_j, but for what e_u holds of v_j.
        by_centre = torch.bmm(g.unsqueeze(1), leaves).squeeze(1)
        by_leaf = g.unsqueeze(2) * centre.unsqueeze(1)
        if star:
            by_centre.mul_(0.5)
            by_leaf.mul_(0.5)
        else:
            by_leaf.addcmul_((g * a).unsqueeze(2), q, value=-2)
        # sum_j a_j of the rows' own gradients, which in the star is also what e_j says of u.
        returned = torch.bmm(a.unsqueeze(1), by_leaf).squeeze(1)
        p["user"].sub_(by_centre + returned if star else by_centre, alpha=self.lr_user)
        p["star"].sub_(by_centre + returned, alpha=self.lr_items)
        p["shift"].sub_(by_centre, alpha=self.lr_items)
        return by_leaf

    def propagated(
        self, user: Float[Tensor, "n dim"], star: Float[Tensor, "n dim"], q: Float[Tensor, "n b dim"], a: Tensor
    ) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "n b dim"]]:
        """(e_u, e_j) of every client and item."""
        if self.propagation == "centre":
            return user + star, q
        return (user + star) / 2, torch.addcmul(q, a.unsqueeze(2), user.unsqueeze(1)).div_(2)

    def logits(
        self, centre: Float[Tensor, "n dim"], leaves: Float[Tensor, "n b dim"], a: Float[Tensor, "n b"]
    ) -> Float[Tensor, "n b"]:
        """Scores before the sigmoid."""
        z = (leaves * centre.unsqueeze(1)).sum(2)
        return z if self.propagation == "star" else z.addcmul_(a, leaves.square().sum(2), value=-1)


def sums_of_edges(
    owner: Int64[Tensor, " rows"], edge: Float[Tensor, " rows"], vectors: Float[Tensor, "rows dim"], clients: int
) -> Float[Tensor, "clients dim"]:
    """S of every client: the sum of a_j v_j over its rows, in their order."""
    return torch.zeros(clients, vectors.shape[1]).index_add_(0, owner, vectors * edge.unsqueeze(1))
