"""GPFedRec's user graph: similarities of users, and the tables that each personal target averages.

Source: Zhang et al., KDD 2024, eq. 3-5. The paper states cosine similarity; the released code computes cosine
distance and keeps entries above gamma times the mean, so its neighbours are the most dissimilar users. Both are
here. A target that averages very few tables hands them to another user, so a neighbourhood is widened to the
`min_neighbours` best-scoring other users.

A table is q_i = base + u_i, with the upload u_i and a base that is the same for all, and the inner products of tables
follow from those of the uploads: q_i q_j = u_i u_j + u_i base + u_j base + base base. The uploads are far shorter than
the tables, so an error in u_i u_j, by rounding or a sketch, is small compared to the rest, which is exact.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from privfed.compute.devices import on_host, placed

_COLUMNS, _ROWS = 8192, 256
"""Coordinates that are cut to bfloat16 together, and users whose products are taken together."""

_CACHED = 8
"""Users whose uploads are read three times in a row while they are in the cache."""

_SMALLEST = 1e-6
"""A squared norm below this share of its terms is rounding: such a table resembles nobody."""

Metric = Literal["similarity", "distance"]
Thinning = Literal["random", "nearest"]
Precision = Literal["float32", "bfloat16"]


def cosines(
    updates: Float[Tensor, "n size"], base: Float[Tensor, " size"], precision: Precision = "float32"
) -> Float[Tensor, "n n"]:
    """Cosine similarity of all pairs of tables base + updates[i].

    One symmetric rank-k product of the uploads (n^2 size FLOPs, half of a general one); three rank-one terms do the
    rest. In float32 a cosine errs by at most about 2 (size + 8) 2^-24 max(k_i, k_j)^2, k_i = (|u_i| + |base|) / |q_i|:
    little where an upload is shorter than its table, but one that nearly takes the base away leaves digits only until
    k_i reaches 1,000, where the table counts as zeros.

    Args:
        updates: one upload per user.
        base: what all tables share.
        precision: of u_i u_j for i != j. bfloat16 keeps 8 bits of every factor and of the sum over `_COLUMNS`
            coordinates, an error of at most 0.012 |u_i| |u_j|; norms and the terms with the base stay exact. On
            processors and devices that multiply in it the product takes a third to a quarter of the time, on others
            more than in float32.
    """
    if precision == "bfloat16":
        # Norms from the uploads themselves: the diagonal of a bfloat16 product has 8 bits.
        own = torch.linalg.vector_norm(updates, dim=1).double().square_()
        return _of_tables(_coarse_gram(updates), own, (updates @ base).double(), base)
    gram = _gram(updates)
    return _of_tables(gram, gram.diagonal().double(), (updates @ base).double(), base)


def _coarse_gram(updates: Float[Tensor, "n size"]) -> Float[Tensor, "n n"]:
    """Inner products of all pairs, multiplied in bfloat16 and summed in float32: the upper triangle, then mirrored."""
    n = len(updates)
    gram = updates.new_zeros(n, n)
    strips = [slice(first, first + _ROWS) for first in range(0, n, _ROWS)]
    for columns in torch.split(updates, _COLUMNS, 1):
        # [n, columns], cut once for all strips. Products of a block come out in bfloat16, but blocks add up in float32,
        # so the error does not grow with the number of blocks.
        short = columns.bfloat16()
        for strip in strips:
            gram[strip, strip.start :].add_(short[strip] @ short[strip.start :].T)
    for strip in strips:
        # The product is symmetric: strips took only columns from their own diagonal block on.
        gram[strip.stop :, strip] = gram[strip, strip.stop :].T
    return gram


def sketched_cosines(
    updates: Float[Tensor, "n size"], base: Float[Tensor, " size"], width: int, rng: np.random.Generator
) -> Float[Tensor, "n n"]:
    """Like `cosines`, with u_i u_j for i != j estimated from a random projection of the uploads to `width` numbers.

    Every coordinate gets a random sign, and coordinates that are `width` apart are added. The estimate is unbiased,
    with a standard error near |u_i| |u_j| / sqrt(width) (Charikar et al., ICALP 2002); norms and the terms with the
    base are exact. On MovieLens-100K at width 4096 about 0.3 % of the graph's edges differ from the exact graph's
    after one round and 0.5 % after 20.

    Args:
        updates: one upload per user.
        base: what all tables share.
        width: numbers that an upload is folded to; work falls from n^2 size to n^2 width FLOPs.
        rng: source of the signs; who can foretell them can make two unlike uploads look alike.
    """
    n, size = updates.shape
    signs = placed(rng.integers(0, 2, size, dtype=np.int8)).float().mul_(2).sub_(1)
    folded, own, with_base = updates.new_zeros(n, width), torch.empty(n), torch.empty(n)
    # Three readings of each upload (norm, product with the base, fold) while it is in the cache.
    for some in (slice(first, first + _CACHED) for first in range(0, n, _CACHED)):
        tables = updates[some]
        torch.linalg.vector_norm(tables, dim=1, out=own[some])
        torch.mv(tables, base, out=with_base[some])
        for columns, weight in zip(torch.split(tables, width, 1), torch.split(signs, width), strict=True):
            # Coordinate c goes to c mod width; random signs make products of different coordinates vanish in the mean.
            folded[some, : columns.shape[1]].addcmul_(columns, weight)
    return _of_tables(_gram(folded), own.double().square_(), with_base.double(), base)


def _gram(rows: Float[Tensor, "n width"]) -> Float[Tensor, "n n"]:
    """Inner products of all pairs; numpy uses their symmetry, which saves every second product."""
    if not rows.is_cpu:
        return rows @ rows.T
    flat = on_host(rows)
    return placed(flat @ flat.T)


def _of_tables(
    gram: Float[Tensor, "n n"], own: Float[Tensor, " n"], with_base: Float[Tensor, " n"], base: Float[Tensor, " size"]
) -> Float[Tensor, "n n"]:
    """Cosines of tables from the Gram matrix of their updates, in its place; `own` are the updates' squared norms."""
    shared = float(base.double() @ base.double())
    # float64: the terms cancel where an upload nearly takes the base away.
    squared, least = own + 2 * with_base + shared, _SMALLEST * (own + shared)
    norm = squared.maximum(least).clamp_(min=1e-24).sqrt_().float()
    # q_i q_j = u_i u_j + side_i + side_j: two broadcast additions, no further [n, n] array.
    side = (with_base + shared / 2).float()
    cosine = gram.add_(side.unsqueeze(1)).add_(side).div_(norm.unsqueeze(1)).div_(norm)
    # Exactly 1 where rounding leaves a little less or more, and 0 for a table that counts as zeros.
    cosine.diagonal().copy_(squared > least)
    return cosine


def neighbourhoods(
    cosine: Float[Tensor, "n n"], metric: Metric, gamma: float, min_neighbours: int
) -> Bool[Tensor, "n n"]:
    """Row i marks whose tables user i's personal target averages.

    Args:
        cosine: similarity of all pairs.
        metric: `similarity` keeps entries above gamma x mean similarity (a user is its own neighbour);
            `distance` keeps those above gamma x mean distance, as released (never the user itself).
        gamma: threshold factor.
        min_neighbours: smallest number of other users that a target averages; a smaller neighbourhood takes in the
            other users of highest score. With 0, as released, a user without neighbours averages only itself.
    """
    score = scores(cosine, metric)
    return widened(score > score.mean() * gamma, score, min_neighbours)


def widened(near: Bool[Tensor, "n n"], score: Float[Tensor, "n n"], min_neighbours: int) -> Bool[Tensor, "n n"]:
    """Neighbourhoods, in place, with those of highest score where fewer than `min_neighbours` others are in one."""
    others = near.sum(1) - near.diagonal().long()
    fewest = min(min_neighbours, len(near) - 1)
    small = (others < fewest).nonzero().squeeze(1)
    if len(small):
        # [small, n]: indexing copies, so removing the user from its own row leaves `score` as it is.
        rivals = score[small].scatter_(1, small.unsqueeze(1), -torch.inf)
        near[small.unsqueeze(1), rivals.topk(fewest, dim=1).indices] = True
    alone = (near.sum(1) == 0).nonzero().squeeze(1)
    # A mean over nobody is undefined.
    near[alone, alone] = True
    return near


def scores(cosine: Float[Tensor, "n n"], metric: Metric) -> Float[Tensor, "n n"]:
    """Scores that rank neighbours: the similarity itself, or the distance, which is 0 to oneself."""
    return cosine if metric == "similarity" else (1 - cosine).clamp_(0, 2).fill_diagonal_(0)


def thinned(near: Bool[Tensor, "n n"], max_neighbours: int, rank: Float[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
    """Neighbourhoods of at most `max_neighbours` other users: those of highest `rank`; who averages itself still does.

    Ranks drawn at random give every neighbour the same chance (neighbour sampling; the mean over draws is the whole
    neighbourhood's); scores give the k nearest.
    """
    if max_neighbours >= len(near) - 1:
        return near
    others = near.clone().fill_diagonal_(False)  # noqa: FBT003 (the value to fill with)
    best = rank.masked_fill(~others, -torch.inf).topk(max_neighbours, dim=1).indices
    # topk returns `most` columns in any case; where fewer are neighbours, the rest are taken out by the `and`.
    kept = torch.zeros_like(near).scatter_(1, best, True).logical_and_(others)  # noqa: FBT003
    kept.diagonal().copy_(near.diagonal())
    return kept
