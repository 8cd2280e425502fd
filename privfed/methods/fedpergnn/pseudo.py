"""Pseudo-interacted items of FedPerGNN: rows of items that nobody trained on, whose gradients are made up.

They are normal with the mean and covariance of the client's real row gradients, so that an upload shows more rows than
the client has. No guarantee comes with it: real rows of positives and of negatives point in two directions, and made-up
ones lie between.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.linear_algebra import eigenpairs_of
from privfed.compute.tiles import TILE, rungs_of
from privfed.federation import Call, Purpose
from privfed.methods.shared.samples import TouchedRows, padded_one


def with_pseudo_items(
    call: Call, rows: TouchedRows, gradients: Float[Tensor, "rows dim"], n_items: int, count: int
) -> tuple[Int64[Tensor, " more"], Int64[Tensor, " more"], Float[Tensor, "more dim"]]:
    """Owners, items and gradients of real and made-up rows, ascending, so that their order says nothing.

    Args:
        call: names the clients and their random words.
        rows: real ones.
        gradients: theirs.
        n_items: of the catalogue.
        count: pseudo items of every client, as far as there are so many.
    """
    owner, ids = _untouched(call, rows, n_items, count)
    clients, dim = len(call.clients), gradients.shape[1]
    mean, root = _moments(rows.owner, gradients, clients)
    users = call.clients.tolist()
    unit = call.streams.normal(Purpose.LATENT, call.round, call.query_id, users, count * dim).view(clients, count, dim)
    # Pseudo items of a client come one after another: their places among its draws.
    place = torch.arange(len(owner)) - torch.searchsorted(owner, owner)
    # [clients, count, dim] times the root of the covariance.
    made_up = (mean.unsqueeze(1) + torch.bmm(unit, root))[owner, place]
    order = torch.cat([rows.owner * n_items + rows.ids, owner * n_items + ids]).argsort()
    everything = ((rows.owner, owner), (rows.ids, ids), (gradients, made_up))
    owners, items, values = (torch.cat(pair)[order] for pair in everything)
    return owners, items, values


def _untouched(
    call: Call, rows: TouchedRows, n_items: int, count: int
) -> tuple[Int64[Tensor, " k"], Int64[Tensor, " k"]]:
    """Distinct items that a client did not touch: those of its smallest random words."""
    words = call.streams.words(Purpose.THINNING, call.round, call.query_id, call.clients.tolist(), n_items)
    # The item in the lower digits makes words distinct, so that no tie is broken by a processor.
    keys = placed(words.astype(np.int64)) * n_items + torch.arange(n_items)
    last = torch.iinfo(torch.int64).max
    keys[rows.owner, rows.ids] = last
    least = keys.topk(min(count, n_items), largest=False, sorted=True).values
    owner, place = (least < last).nonzero(as_tuple=True)
    return owner, least[owner, place] % n_items


def _moments(
    owner: Int64[Tensor, " rows"], gradients: Float[Tensor, "rows dim"], clients: int
) -> tuple[Float[Tensor, "clients dim"], Float[Tensor, "clients dim dim"]]:
    """Mean of every client's rows, and the root of their covariance; zero for clients without rows."""
    dim, counts = gradients.shape[1], torch.bincount(owner, minlength=clients)
    first, many = counts.cumsum(0) - counts, counts.clamp(min=1).unsqueeze(1)
    mean = torch.zeros(clients, dim).index_add_(0, owner, gradients) / many
    covariance = torch.zeros(clients, dim, dim, dtype=torch.float64)
    by_row, widths = padded_one(gradients), rungs_of(counts)
    for width in np.unique(on_host(widths)).tolist():
        for members in torch.split((widths == width).nonzero().squeeze(1), TILE):
            column = torch.arange(width)
            lanes = torch.nn.functional.pad(members, (0, TILE - len(members)), value=-1)
            inside = (column < counts[lanes].unsqueeze(1)) & (lanes >= 0).unsqueeze(1)
            rows = torch.where(inside, first[lanes].unsqueeze(1) + column, len(gradients))
            # [tile, rows, dim], zero at padding.
            centred = torch.where(inside.unsqueeze(2), by_row[rows] - mean[lanes].unsqueeze(1), 0.0)
            squares = torch.bmm(centred.transpose(1, 2), centred)[: len(members)]
            covariance[members] = (squares / many[members].unsqueeze(2)).double()
    values, vectors = eigenpairs_of(covariance)
    # The symmetric root V sqrt(values) V^T is one, whatever signs and bases a routine chooses; fewer rows than columns
    # leave values of zero, before rounding.
    root = (vectors * values.clamp(min=0).sqrt().unsqueeze(1)) @ vectors.mT
    return mean, root.float()
