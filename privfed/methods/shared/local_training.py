"""Local training of methods whose clients fine-tune a copy of one item table (FedMF, FedNCF, PFedRec, GPFedRec).

Only sampled rows of the table move by the loss, so a client's copy is kept as its touched rows; nothing of size
clients x items x dim exists here. GPFedRec's proximal term towards a personal target moves every row, in closed form.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, Purpose
from privfed.methods.shared.samples import NegativeSampler, Samples, TouchedRows, steps_taken, tile_batches
from privfed.updates import ClientUpdates, add_rows_

Parameters = dict[str, Tensor]
HeadStep = Callable[[Parameters, Tensor, Tensor, Tensor], Tensor]
"""(tile parameters, q, labels, weight) -> dL/dq; updates the parameters in place."""


@dataclass(frozen=True, slots=True, eq=False)
class ProximalTerm:
    """A quadratic proximal term of every row towards `target`: each step moves a row by `strength` of its distance."""

    target: Float[Tensor, "rows dim"]
    strength: float


def draw_samples(sampler: NegativeSampler, call: Call) -> Samples:
    """This round's samples of the called clients, from their own addressed words."""
    count = sampler.words_needed(call.clients)
    words = call.streams.words(Purpose.SAMPLES, call.round, call.query_id, call.clients.tolist(), count)
    return sampler.draw(call.clients, words)


def local_epoch(
    samples: Samples,
    rows: TouchedRows,
    table: Float[Tensor, "rows dim"],
    parameters: Parameters,
    step: HeadStep,
    *,
    batch_size: int,
    lr_items: float,
    proximal: ProximalTerm | None = None,
) -> Parameters:
    """One pass of mini-batch SGD over every client's samples; `table` is updated in place.

    With a proximal term, q = target + s f with s = (1 - strength)^t (GPFedRec, KDD 2024, eq. 7, solved exactly between
    gradient steps): f moves on sampled rows only and every row decays through the scalar s.

    Args:
        samples: one epoch of every client.
        rows: the (client, item) rows the samples touch.
        table: current value of those rows.
        parameters: head parameters, `[clients, *shape]`.
        step: the head's gradient step.
        batch_size: samples per step.
        lr_items: learning rate of table rows.
        proximal: optional proximal term towards per-row targets.

    Returns:
        New head parameters, in the order of the clients.
    """
    new = {name: values.clone() for name, values in parameters.items()}
    decay = Decay(proximal.strength, steps_taken(samples, batch_size)) if proximal else None
    # From here on the rows hold f = q - target, and `scale` holds s.
    if proximal:
        table.sub_(proximal.target)
    left = len(samples.counts)
    for clients, batches in tile_batches(samples, batch_size):
        # Padding (-1) reads client 0 and is never written back.
        tile = {name: values.index_select(0, clients.clamp(min=0)) for name, values in parameters.items()}
        scale = 1.0
        for batch in batches:
            at = rows.of_sample[batch.samples.view(-1)]
            q = table.index_select(0, at)
            if proximal:
                q = torch.add(proximal.target.index_select(0, at), q, alpha=scale)
            labels = samples.labels[batch.samples]
            dq = step(tile, q.view(*batch.samples.shape, -1), labels, batch.weight)
            # Decay first: a move of q by -lr dq is one of f by -lr dq / s, with the s that holds after this step.
            if decay:
                scale = decay.next_scale_(scale, table, rows, clients, batch.step)
            add_rows_(table, at, dq.view(len(at), -1).mul_(-lr_items / scale))
        # Padding stands at the end of the last tile only (`tile_order`).
        real = min(len(clients), left)
        left -= real
        for name, values in tile.items():
            new[name].index_copy_(0, clients[:real], values[:real])
    if proximal and decay:
        decay.settle_(table, rows)
        table.add_(proximal.target)
    return new


class Decay:
    """Tracks how far each client's rows have decayed towards the target of the proximal term.

    The common case multiplies once at the end. A scale too small for float32, zero or negative (strength >= 1)
    is folded into the rows at that step instead.
    """

    SMALLEST_SCALE = 1e-4

    def __init__(self, strength: float, steps: Int64[Tensor, " clients"]) -> None:
        self.keep, self.steps = 1.0 - strength, steps
        self.settled = torch.zeros_like(steps)

    def next_scale_(
        self,
        scale: float,
        table: Float[Tensor, "rows dim"],
        rows: TouchedRows,
        tile: Int64[Tensor, " tile"],
        step: int,
    ) -> float:
        """The scale after `step`; folds it into the tile's rows and returns 1 where it grew too small."""
        scale *= self.keep
        if scale >= self.SMALLEST_SCALE:
            return scale
        clients = tile[tile >= 0]
        # Clients of a tile take unequal numbers of steps; each decays by its own, less what was folded in before.
        due = (self.steps[clients].clamp(max=step + 1) - self.settled[clients]).clamp(min=0)
        # 1 for all clients of other tiles, whose rows share the table.
        factor = torch.ones(len(self.steps)).index_copy_(0, clients, self._power(due))
        self.settled[clients] += due
        table.mul_(factor[rows.owner].unsqueeze(1))
        return 1.0

    def settle_(self, table: Float[Tensor, "rows dim"], rows: TouchedRows) -> None:
        """Apply the decay that has not been folded yet, for every client."""
        table.mul_(self._power(self.steps - self.settled)[rows.owner].unsqueeze(1))

    def untouched(self) -> Float[Tensor, " clients"]:
        """Remaining share of the initial distance in rows that no gradient moved: keep^steps."""
        return self._power(self.steps)

    def _power(self, steps: Int64[Tensor, " k"]) -> Float[Tensor, " k"]:
        # Whole exponents: keep is negative above a strength of 1, and has no real power there.
        return torch.pow(torch.tensor(self.keep), steps)


def local_tables(
    message: Message, updates: ClientUpdates | None, candidates: Int64[Tensor, "clients c"]
) -> Float[Tensor, "clients c dim"]:
    """Candidate rows of every client's own copy of the table `items`: the message's rows plus its update."""
    n, c = candidates.shape
    owner, ids = torch.arange(n).repeat_interleave(c), candidates.reshape(-1)
    q = message.rows("items", owner, ids)
    if updates is not None:
        q.add_(updates.rows_at("items", owner, ids))
    return q.view(n, c, -1)


def whole_catalogue(clients: int, n_items: int) -> Int64[Tensor, "clients items"]:
    """Every item as a candidate of every client."""
    return torch.arange(n_items).expand(clients, n_items)
