"""Graphs that are not made from item tables: random ones, and those of people's own histories.

Both are foils of GPFedRec (KDD 2024, table 7): a random graph says nothing about anybody, and a graph of histories
is what the method's own stands in for, at the price of showing the server every history. `density` is the share of
pairs that are joined; of `barabasi-albert` it is the share of everybody whom a newcomer joins.
"""

from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from privfed.compute.devices import placed

RandomGraph = Literal["erdos-renyi", "regular", "watts-strogatz", "barabasi-albert"]
HistoryGraph = Literal["cosine", "euclidean", "jaccard", "pearson"]
RANDOM: frozenset[str] = frozenset(get_args(RandomGraph))
HISTORIES: frozenset[str] = frozenset(get_args(HistoryGraph))

_REWIRED = 0.1
"""Share of a Watts-Strogatz ring's edges that are moved."""


def random_graph(kind: str, n: int, density: float, rng: np.random.Generator) -> Bool[Tensor, "n n"]:
    """An undirected random graph in which everybody is their own neighbour, too.

    Args:
        kind: one of `RANDOM`: `erdos-renyi` joins every pair with probability `density`; `regular` gives everybody
            the same number of others, those next on a ring in random order; `watts-strogatz` moves a tenth of such a
            ring's edges to other pairs at random; in `barabasi-albert` one user after the other joins earlier ones with
            probability proportional to their number of neighbours (Barabasi and Albert, Science 1999).
        n: number of users.
        density: see above.
        rng: source of randomness.
    """
    if kind == "erdos-renyi":
        joined = np.triu(rng.random((n, n)) < density, 1)
    elif kind == "barabasi-albert":
        joined = _preferential(n, density, rng)
    else:
        joined = _ring(n, density, rng, rewired=_REWIRED if kind == "watts-strogatz" else 0.0)
    return placed(joined | joined.T | np.eye(n, dtype=bool))


def _ring(n: int, density: float, rng: np.random.Generator, *, rewired: float) -> Bool[np.ndarray, "n n"]:
    """Everybody joined with the next half of their neighbours on a ring of users in random order."""
    half, order = max(1, round(density * (n - 1) / 2)), rng.permutation(n)
    ahead = (np.arange(n)[:, None] + np.arange(1, half + 1)) % n
    joined = np.zeros((n, n), dtype=bool)
    joined[order[:, None], order[ahead]] = True
    # One entry for each pair, so that a pair is moved as a whole.
    joined = np.triu(joined | joined.T, 1)
    pairs = np.flatnonzero(joined)
    moved = rng.choice(pairs, round(rewired * len(pairs)), replace=False)
    joined.flat[moved] = False
    absent = np.flatnonzero(~joined & np.triu(np.ones_like(joined), 1))
    joined.flat[rng.choice(absent, len(moved), replace=False)] = True
    return joined


def _preferential(n: int, density: float, rng: np.random.Generator) -> Bool[np.ndarray, "n n"]:
    """Newcomers joined with earlier users, the better connected the likelier; a loop, as each depends on the last."""
    most, joined = max(1, round(density * (n - 1))), np.zeros((n, n), dtype=bool)
    degree = np.ones(n)
    for newcomer in range(1, n):
        share = degree[:newcomer] / degree[:newcomer].sum()
        chosen = rng.choice(newcomer, min(most, newcomer), replace=False, p=share)
        joined[newcomer, chosen] = True
        degree[chosen] += 1
        degree[newcomer] += len(chosen)
    return joined


def likeness(kind: str, histories: Float[Tensor, "n items"]) -> Float[Tensor, "n n"]:
    """How alike the histories of all pairs are, the higher the more; histories hold zeros and ones.

    Args:
        kind: one of `HISTORIES`: the cosine, the Euclidean distance below zero, the Jaccard index, or Pearson's
            correlation over the catalogue.
        histories: a one for every training item.
    """
    shared, count = histories @ histories.T, histories.sum(1)
    if kind == "euclidean":
        return (count.unsqueeze(1) + count - 2 * shared).clamp_(min=0).sqrt_().neg_()
    if kind == "jaccard":
        return shared / (count.unsqueeze(1) + count - shared).clamp_(min=1)
    if kind == "pearson":
        mean = count / histories.shape[1]
        shared = shared - histories.shape[1] * mean.unsqueeze(1) * mean
        norm = (count - histories.shape[1] * mean**2).clamp_(min=1e-12).sqrt_()
    else:
        norm = count.clamp(min=1e-12).sqrt()
    return shared / norm.unsqueeze(1) / norm


def densest(score: Float[Tensor, "n n"], density: float) -> Bool[Tensor, "n n"]:
    """The pairs of highest score, a share `density` of all, and everybody with themselves.

    Pairs that tie with the last one are joined, too.
    """
    n = len(score)
    others = ~torch.eye(n, dtype=torch.bool)
    pairs = score[others].sort(descending=True).values
    kept = round(density * len(pairs))
    near = torch.zeros_like(others) if not kept else score >= pairs[kept - 1]
    near.fill_diagonal_(True)  # noqa: FBT003 (the value to fill with)
    return near
