"""GPFedRec's user graph: who resembles whom, and the mean table of each user's neighbours.

Source: Zhang et al., KDD 2024, eq. 3-6. The paper states cosine similarity; the released code computes cosine
distance and keeps entries above gamma times the mean, so its neighbours are the most dissimilar users. Both are
here. A target that averages very few tables hands them to another user, so a neighbourhood is widened to the
`min_neighbours` best-scoring other users.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_GROUP, _COLUMNS = 32, 8192
_WORTH_GROUPING = 0.4

Metric = Literal["similarity", "distance"]


def cosines(tables: Float[Tensor, "n size"]) -> Float[Tensor, "n n"]:
    """Cosine similarity of all pairs of rows; a symmetric rank-k product, half the work of a general one."""
    flat = tables.numpy()
    gram = torch.from_numpy(flat @ flat.T)
    norm = gram.diagonal().sqrt().clamp(min=1e-12)
    return gram.div_(norm.unsqueeze(1)).div_(norm)


def neighbourhoods(
    cosine: Float[Tensor, "n n"], metric: Metric, gamma: float, min_neighbours: int
) -> Bool[Tensor, "n n"]:
    """Row i marks whose tables user i's personal target averages.

    Args:
        cosine: similarity of all pairs.
        metric: `similarity` keeps entries above gamma x mean similarity (a user is its own neighbour);
            `distance` keeps those above gamma x mean distance, as released (never the user itself).
        gamma: threshold factor.
        min_neighbours: fewest other users a target may average; a smaller neighbourhood takes in the other users
            of highest score. With 0, as released, a user without neighbours averages only itself.
    """
    score = cosine if metric == "similarity" else (1 - cosine).clamp_(0, 2).fill_diagonal_(0)
    near = score > score.mean() * gamma
    others = near.sum(1) - near.diagonal().long()
    fewest = min(min_neighbours, len(near) - 1)
    small = (others < fewest).nonzero().squeeze(1)
    if len(small):
        rivals = score[small].scatter_(1, small.unsqueeze(1), -torch.inf)
        near[small.unsqueeze(1), rivals.topk(fewest, dim=1).indices] = True
    alone = (near.sum(1) == 0).nonzero().squeeze(1)
    near[alone, alone] = True
    return near


def neighbour_means(
    near: Bool[Tensor, "n n"], tables: Float[Tensor, "n size"], out: Float[Tensor, "n size"]
) -> Float[Tensor, "n size"]:
    """Mean table of every neighbourhood, written to `out` (which must not overlap `tables`).

    Users with equally many neighbours have nearly the same ones (the graph is hub-like), so rows are taken in
    groups of similar degree: columns that the whole group shares are summed once for all its rows, and only the
    rest, some 8 % on MovieLens-100K, is multiplied out. Exact up to rounding; where groups share little, the plain
    product is used.
    """
    degree = near.sum(1)
    groups = torch.split(degree.argsort(stable=True), _GROUP)
    shared = torch.stack([near[group].all(0) for group in groups])
    varying = torch.stack([near[group].any(0) for group in groups]) & ~shared
    if varying.float().mean() > _WORTH_GROUPING:
        torch.mm(near.float(), tables, out=out)
        return out.div_(degree.unsqueeze(1))
    weights = [near[group][:, columns].float() for group, columns in zip(groups, varying, strict=True)]
    own = [columns.nonzero().squeeze(1) for columns in varying]
    for part, means in zip(torch.split(tables, _COLUMNS, 1), torch.split(out, _COLUMNS, 1), strict=True):
        common = shared.float() @ part
        for g, group in enumerate(groups):
            rows = torch.addmm(common[g], weights[g], part.index_select(0, own[g]))
            means.index_copy_(0, group, rows.div_(degree[group].unsqueeze(1)))
    return out
