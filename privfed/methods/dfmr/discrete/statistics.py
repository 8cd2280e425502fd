"""What a client sends once per item phase: its share of q2, of the coupling M, and of the inertia.

q2 and M carry what a user's purchases and examinations do to the rest of the catalogue, in a form that names no item:

    q2_f = -sum_u U_uf (s d + g2 S^P_u + g3 S^E_u),   M = sum_u kap_u U_u U_u^T,   kap_u = s + S^P_u + S^E_u

with S^P, S^E the sums of pair weights over a user's purchases and examinations (weights and margins:
`IntegerGrid`).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int8, Int64

from privfed.methods.dfmr.discrete.grid import IntegerGrid
from privfed.methods.dfmr.discrete.shapes import check_shapes
from privfed.methods.dfmr.discrete.support import EXAMINED, PURCHASED, ItemSupport


@dataclass(frozen=True, eq=False)
class UserWeights:
    """Constants of every hosted user, in units of 1/K.

    Attributes:
        purchase: S^P, sum of lambda c_i over the user's purchases.
        examine: S^E, sum of (1 - lambda) c_i over the user's examinations.
        kappa: kap_u = s + S^P + S^E.
        factor: s d + g2 S^P + g3 S^E, times -U_uf the user's part of q2.
    """

    purchase: Int64[np.ndarray, "users"]
    examine: Int64[np.ndarray, "users"]
    kappa: Int64[np.ndarray, "users"]
    factor: Int64[np.ndarray, "users"]


def weights_of(grid: IntegerGrid, support: ItemSupport) -> UserWeights:
    """The constants of every user; they do not change in training.

    Raises:
        DiscreteError: Grid and support are of different catalogues.
    """
    check_shapes(grid, support, np.arange(0))
    entry = grid.by_kind[support.kind, support.items]

    def per_user(kind: int) -> Int64[np.ndarray, "population"]:
        running = np.zeros(len(entry) + 1, dtype=np.int64)
        np.cumsum(np.where(support.kind == kind, entry, 0), out=running[1:])
        return np.diff(running[support.indptr])

    purchase, examine = per_user(PURCHASED), per_user(EXAMINED)
    return UserWeights(
        purchase=purchase,
        examine=examine,
        kappa=grid.s + purchase + examine,
        factor=grid.s * grid.d + grid.g2 * purchase + grid.g3 * examine,
    )


def field(
    codes: Int8[np.ndarray, "population d"], weights: UserWeights, users: Int64[np.ndarray, "n"]
) -> Int64[np.ndarray, "n d"]:
    """Each called user's part of q2, in the order of `users`."""
    share: Int64[np.ndarray, "n d"] = codes[users] * -weights.factor[users][:, None]
    return share


def inertia(grid: IntegerGrid, support: ItemSupport, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """A whole number per user whose sum over users makes a parallel item sweep safe.

    At a fixed bit the field of the items is b + W V_f with W = sum over users of (a 1_T^T + 1_T a^T): a the pair
    weights of the user's purchases and T everything else, and the same for examinations and the rest. S and T being
    disjoint, such a matrix has smallest eigenvalue -|a|_2 sqrt(|T|), so this sum D is at least -lambda_min(W). Deciding
    sign(V* + D V_if) for all items at once then never raises the objective: W + D is positive semi-definite, and its
    linearisation majorises.

    Returns:
        Per called user, in units of 1 / (2 d^2 K) of the field, rounded up.

    Raises:
        DiscreteError: Grid and support of different catalogues, or no such user.
    """
    check_shapes(grid, support, users)
    owner, entry = support.of_users(users)
    kind, n = support.kind[entry], len(users)
    weight = grid.by_kind[kind, support.items[entry]].astype(np.float64)

    def length(which: int) -> Float64[np.ndarray, "called"]:
        chosen = kind == which
        return np.bincount(owner[chosen], weights=weight[chosen] ** 2, minlength=n) ** 0.5

    purchase = length(PURCHASED) * np.sqrt((support.n_items - support.n_purchased)[users])
    examine = length(EXAMINED) * np.sqrt(support.n_rest[users])
    # A float sum of k non-negative terms is off by at most k units in the last place; 16 more for everything else.
    safe = 1.0 + (support.counts[users] + 16) * np.finfo(np.float64).eps
    return np.asarray(np.ceil((purchase + examine) * safe), dtype=np.int64)
