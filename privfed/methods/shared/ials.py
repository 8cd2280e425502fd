"""iALS: matrix factorisation of what users have, and of everything they have not, by alternating least squares.

Hu, Koren & Volinsky (ICDM 2008), in the notation of Rendle, Krichene, Zhang & Koren ("Revisiting the Performance of
iALS on Item Recommendation Benchmarks", RecSys 2022). With the items I_u of user u, the users U_i of item i and
scores w_u . h_i,

    sum_u sum_{i in I_u} (1 - w_u . h_i)^2  +  a sum_u sum_i (w_u . h_i)^2
        +  l sum_u (|I_u| + a |items|)^e |w_u|^2  +  l sum_i (|U_i| + a |users|)^e |h_i|^2.

The second sum runs over all pairs; it needs one d x d matrix for everybody, so a half step costs d^2 per interaction.
Given the items every user minimises its own part, given the users every item does, and no half step raises the whole.
On the processor rows are solved for by machine code, one after the other, elsewhere in batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import placed
from privfed.compute.linear_algebra import solve_positive_of
from privfed.compute.received import refuse_shape
from privfed.data import Histories
from privfed.methods.shared.normal_equations import add_rows, padded, problem_of, solve, start

_ENTRIES_AT_ONCE = 1 << 15
"""Rows of factors gathered for one batch: 16 MiB at d = 64."""


@dataclass(frozen=True, slots=True)
class IALSObjective:
    """The constants of the objective.

    Attributes:
        unobserved: a, above 0: the weight of a zero on every pair.
        regularisation: l, above 0.
        exponent: e: how strongly the regularisation of a user or item grows with its interactions.
    """

    unobserved: float
    regularisation: float
    exponent: float

    def solve(self, others: Float64[Tensor, "others dim"], lists: Histories) -> Float64[Tensor, "rows dim"]:
        """The factors of one side that minimise the objective given those of the other.

        Args:
            others: factors of the items, to solve for users; of the users, to solve for items.
            lists: of every row solved for, which of the others it has, each once.

        Raises:
            IndexError: there are factors of fewer or more others than the lists are of.
        """
        refuse_shape("a table of factors", others, (lists.n_items, others.shape[1]))
        strength = self.regularisation * (lists.counts + self.unobserved * len(others)) ** self.exponent
        if others.is_cpu:
            table = padded(others.numpy())
            solved = np.empty((lists.n_users, table.shape[1]))
            everybody = self.unobserved * (table.T @ table)
            if _solve(everybody, table, (lists.indptr, lists.items), strength, solved):
                return torch.from_numpy(solved[:, : others.shape[1]])
        return _solved_in_batches(self.unobserved * (others.T @ others), others, lists, placed(strength))


@compiled
def _solve(
    everybody: Float64[np.ndarray, "side side"],
    others: Float64[np.ndarray, "others side"],
    lists: tuple[Int64[np.ndarray, "rows_and_one"], Int64[np.ndarray, "entries"]],
    strength: Float64[np.ndarray, "rows"],
    out: Float64[np.ndarray, "rows side"],
) -> bool:
    """Fill `out`, row by row; False where a system is not positive definite."""
    offsets, items = lists
    problem = problem_of(len(everybody))
    for row in range(len(out)):
        start(problem, everybody, strength[row])
        own = items[offsets[row] : offsets[row + 1]]
        ones = np.ones(len(own))
        add_rows(problem, others, own, ones, ones)
        if not solve(problem):
            return False
        out[row] = problem.side
    return True


def _solved_in_batches(
    everybody: Float64[Tensor, "dim dim"],
    others: Float64[Tensor, "others dim"],
    lists: Histories,
    strength: Float64[Tensor, " rows"],
) -> Float64[Tensor, "rows dim"]:
    """The same by batched products and decompositions, wherever the tensors live."""
    counts, nobody = placed(lists.counts), len(others)
    extended = torch.cat([others, others.new_zeros(1, others.shape[1])])
    items, first = placed(lists.items), placed(lists.indptr[:-1])
    solved = others.new_empty(lists.n_users, others.shape[1])
    for rows in _of_like_length(lists.counts, others.shape[1]):
        place = torch.arange(int(counts[rows].max()))
        there = place < counts[rows, None]
        own = torch.full(there.shape, nobody)
        own[there] = items[(first[rows, None] + place)[there]]
        had = extended[own]
        systems = had.transpose(1, 2) @ had + everybody
        systems.diagonal(dim1=1, dim2=2).add_(strength[rows, None])
        solved[rows] = solve_positive_of(systems, had.sum(1))
    return solved


def _of_like_length(counts: Int64[np.ndarray, "rows"], dim: int) -> Iterator[Int64[Tensor, " batch"]]:
    """Row numbers in batches of bounded size, in each of which no list is more than twice as long as another."""
    order = np.argsort(counts, kind="stable")
    ascending = counts[order]
    size = np.cumsum(ascending + dim)
    doublings = np.searchsorted(ascending, 2 ** np.arange(int(ascending.max(initial=0)).bit_length()))
    full = np.searchsorted(size, np.arange(0, counts.sum() + len(counts) * dim, _ENTRIES_AT_ONCE))
    ends = np.unique(np.concatenate([doublings, full, [0, len(order)]]))
    for begin, end in pairwise(ends.tolist()):
        yield placed(order[begin:end])
