"""EASE (Steck, WWW 2019): every item regressed on all others by ridge regression, in closed form.

With X the users' items, B minimises

    |X - X B|^2 + l |B|^2   subject to diag(B) = 0,

whose solution (section 3.1 of the paper) needs one inverse, P = (X^T X + l I)^-1:

    B_ij = -P_ij / P_jj off the diagonal.

What is known of items besides stands below X as further rows: one for every tag, 1 at the items that have it, times a
weight (the collective model of Jeunen, Van Balen & Goethals, RecSys 2020).
"""

import numpy as np
import torch
from jaxtyping import Float64, Int64

from privfed.compute.devices import placed
from privfed.compute.linear_algebra import inverse_positive_of
from privfed.data import Histories
from privfed.methods.shared.incidence import incidence


def item_weights(
    histories: Histories,
    items: Int64[np.ndarray, "k"],
    regularisation: float,
    tags: Float64[np.ndarray, "tags items"] | None = None,
) -> Float64[torch.Tensor, "k k"]:
    """B over `items`: row i says what having item i adds to the score of every other item.

    Args:
        histories: of the users; each item once.
        items: the part of the catalogue to learn, distinct.
        regularisation: l, above 0: added to the number of users of each item.
        tags: further rows, weighted; None where there are none.
    """
    own = incidence(histories)[:, items]
    gram = placed((own.T @ own).toarray())
    if tags is not None:
        described = placed(tags[:, items])
        gram.addmm_(described.T, described)
    gram.diagonal().add_(regularisation)
    inverse = inverse_positive_of(gram)
    weights = inverse.div_(-inverse.diagonal().clone())
    weights.fill_diagonal_(0)
    return weights
