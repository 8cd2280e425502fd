"""Local DP-SGD over single interactions, stacked over clients: the meaning of `Call.noisy_steps` for pointwise methods.

Each of S local steps (Abadi et al., CCS 2016, algorithm 1):

1. Every interaction of the user joins independently with probability q, and draws its own negatives from the whole
   catalogue.
2. The gradient of each such record over all that is trained (private vector or head, shared perceptron, touched rows of
   the device's copy of the item table) is clipped to a joint L2 norm C.
3. The sum plus N(0, (zC)^2) on every coordinate, the whole table included, is divided by a fixed public number.
4. Everything takes one step of plain SGD together. A step that drew no interaction still adds its noise.

The private vector steps inside the same noise. An exact one would carry each interaction into the gradients that later
records release. A sum in which blocks count at different scales is described in
`privfed.methods.shared.record_gradients`.

Noise of a table row is drawn when the row is next read, or at the end: n steps' worth is one draw of n times the
variance. What is read and what leaves has exactly the law of noise drawn step by step, at about 1 / S of its cost.

What a step releases lies on a grid (`privfed.federation.grid`): sums of clipped gradients are kept in float64, the new
value is rounded to the grid, and noise is a whole number of its steps. The sum of the noise of several steps, rounded
once, is post-processing of the sums that each had its own. What a table changes by is kept apart from the table, whose
numbers a server chooses: added to large ones whenever a row is read, noise would be lost on the rows that are read.

Randomness comes from the device's own key, which is never sent.
Addresses are `query x 65536 + slot`, and a slot is used once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.tiles import padded, tile_size, tiles
from privfed.contracts import NoisySteps
from privfed.data import Histories
from privfed.federation import Call, FederationError, Purpose
from privfed.federation.grid import Grid, NoisedSum, released
from privfed.methods.shared.local_training import Parameters
from privfed.methods.shared.record_gradients import RecordGradients, with_negatives
from privfed.methods.shared.samples import tile_order
from privfed.updates import add_rows_
from privfed.updates.parts import largest

SLOTS_PER_QUERY = 65_536
_RECORDS_AT_ONCE = 16
_NOISED_AT_ONCE = 4
_LARGEST = 2.0**32
"""With larger numbers, norms of gradients might overflow: for whoever reads them, and for nobody else."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledRecords:
    """The records that a tile of clients drew into one step.

    Attributes:
        items: the positive, then its negatives; padding has arbitrary items.
        drawn: which are records at all.
    """

    items: Int64[Tensor, "tile records samples"]
    drawn: Bool[Tensor, "tile records"]


class InteractionTrainer:
    """Trains any users of a population by noisy steps.

    Args:
        positives: training items of every user.
        negatives: distinct negatives of every record.
        gradients: clipped sums of the method's head.
        rates: learning rate of every parameter, and of `items`.
        base_rate: the rate of the blocks whose scale is 1.

    Raises:
        ValueError: the catalogue is too small for so many negatives.
    """

    def __init__(
        self,
        positives: Histories,
        negatives: int,
        gradients: RecordGradients,
        rates: Mapping[str, float],
        base_rate: float,
    ) -> None:
        if positives.n_items <= negatives:
            raise ValueError(
                f"a catalogue of {positives.n_items} items has no {negatives} others to draw as negatives of one; use "
                f"fewer negatives or a larger catalogue"
            )
        self.n_items, self.negatives, self.gradients = positives.n_items, negatives, gradients
        self.rates, self.scales = rates, {name: math.sqrt(rate / base_rate) for name, rate in rates.items()}
        self._start = placed(positives.indptr[:-1].copy())
        self._counts = placed(positives.counts.copy())
        self._items = placed(positives.items)

    def train(
        self, call: Call, parameters: Parameters, items: Float[Tensor, "items dim"]
    ) -> tuple[Parameters, Float[Tensor, "clients items dim"]]:
        """Run all noisy steps of the called clients.

        Args:
            call: with `noisy_steps`.
            parameters: what each client starts from, `[clients, *shape]`.
            items: the item table that everybody received.

        Returns:
            New parameters, and what each client's copy of the table changed by.

        Raises:
            FederationError: the call has no noise, or more steps than there are addresses; or a server sent such large
                numbers that training may fail, which would show whose history has their rows.
        """
        how = call.noisy_steps
        if how is None:
            raise FederationError("training by noisy steps was called without saying how noisy; set noisy_steps")
        if 2 * how.steps >= SLOTS_PER_QUERY or call.query_id >= 2**32 // SLOTS_PER_QUERY:
            raise FederationError(
                f"query {call.query_id} with {how.steps} local steps has no fresh addresses for its noise: at most "
                f"{2**32 // SLOTS_PER_QUERY} queries per round and {SLOTS_PER_QUERY // 2 - 1} steps have"
            )
        if not all(largest(values) <= _LARGEST for values in (items, *parameters.values())):
            raise FederationError(
                f"parameters came with NaN or with numbers beyond {_LARGEST:g}, and noisy steps train from neither; "
                "drop the message"
            )
        new = {name: torch.empty_like(values) for name, values in parameters.items()}
        changes = torch.empty(len(call.clients), *items.shape)
        for tile in torch.split(tile_order(self._counts[call.clients]), tile_size()):
            real = tile[tile >= 0]
            p = {name: values.index_select(0, tile.clamp(min=0)) for name, values in parameters.items()}
            table = self._steps(call, how, tile, p, items)
            changes.index_copy_(0, real, table[: len(real)])
            for name, values in p.items():
                new[name].index_copy_(0, real, values[: len(real)])
        return new, changes

    def _steps(
        self,
        call: Call,
        how: NoisySteps,
        tile: Int64[Tensor, " tile"],
        p: Parameters,
        items: Float[Tensor, "items dim"],
    ) -> Float[Tensor, "tile items dim"]:
        """Train one tile (positions, -1 for padding): `p` in place; returns the change of every table."""
        users = call.clients[tile.clamp(min=0)]
        counts = torch.where(tile >= 0, self._counts[users], 0)
        table = items.repeat(len(tile), 1, 1)
        rows = table.view(-1, items.shape[1])
        grids = self._grids(how, p, items)
        noise = RowNoise(call, users.tolist(), table, items, grids["items"])
        for step in range(how.steps):
            records = self._draw(call, how.rate, users, counts, step)
            place = records.items + (torch.arange(len(tile)) * self.n_items).view(-1, 1, 1)
            noise.settle_(torch.unique(place[records.drawn]), step)
            exact = {name: values.double() for name, values in p.items()}
            moves, sums = list[tuple[Tensor, Tensor]](), {name: torch.zeros_like(v) for name, v in exact.items()}
            for some in torch.split(torch.arange(place.shape[1]), _RECORDS_AT_ONCE):
                at = place[:, some]
                q = rows.index_select(0, at.flatten()).view(*at.shape, -1).double()
                drawn = records.drawn[:, some].double()
                gradients, d_items = self.gradients(exact, q, drawn, how.clip_norm, self.scales)
                for name, gradient in gradients.items():
                    sums[name].add_(gradient)
                moves.append((at.flatten(), d_items.flatten(0, 2)))
            for at, d_items in moves:
                noise.move_(at, d_items.mul_(-self.rates["items"] / how.divisor))
            self._descend_(call, users.tolist(), p, sums, step, how.divisor, grids)
        noise.finish_(how.steps)
        return table

    def _draw(
        self, call: Call, rate: float, users: Int64[Tensor, " tile"], counts: Int64[Tensor, " tile"], step: int
    ) -> SampledRecords:
        """Inclusion bits of all interactions, and negatives of those included."""
        who, most = users.tolist(), int(counts.max())
        slot = call.query_id * SLOTS_PER_QUERY + 2 * step
        inclusion = call.streams.uniform(Purpose.SAMPLES, call.round, slot, who, most)
        joined = (inclusion < rate) & (torch.arange(most) < counts.unsqueeze(1))
        owner, rank = joined.nonzero(as_tuple=True)
        place = (joined.cumsum(1) - 1)[owner, rank]
        width = padded(int(joined.sum(1).max().clamp(min=1)), _RECORDS_AT_ONCE)
        positives, drawn = torch.zeros(len(who), width, dtype=torch.int64), torch.zeros(len(who), width).bool()
        positives[owner, place] = self._items[self._start[users][owner] + rank]
        drawn[owner, place] = True
        words = call.streams.words(Purpose.SAMPLES, call.round, slot + 1, who, width * self.negatives)
        own = placed(words.astype(np.int64)).view(len(who), width, self.negatives)
        return SampledRecords(with_negatives(positives, own, self.n_items), drawn)

    def _grids(self, how: NoisySteps, p: Parameters, items: Float[Tensor, "items dim"]) -> dict[str, Grid]:
        """The grid of every parameter and of `items`, in units of their values."""
        noised = NoisedSum(
            clip_norm=how.clip_norm,
            deviation=how.noise_multiplier * how.clip_norm,
            coordinates=items.numel() + sum(values[0].numel() for values in p.values()),
            summands=self.n_items * (1 + self.negatives),
        )
        return {name: noised.grid(self.scales[name] * how.divisor / rate) for name, rate in self.rates.items()}

    def _descend_(
        self,
        call: Call,
        users: Sequence[int],
        p: Parameters,
        sums: Parameters,
        step: int,
        divisor: float,
        grids: Mapping[str, Grid],
    ) -> None:
        """One step of every parameter but the table, with its noise."""
        sizes = [values[0].numel() for values in p.values()]
        ratios = np.concatenate([np.full(size, grids[name].ratio) for name, size in zip(p, sizes, strict=True)])
        slot = call.query_id * SLOTS_PER_QUERY + 2 * step
        noise = call.streams.normal_steps(Purpose.NOISE, call.round, slot, users, sum(sizes), ratios)
        for (name, values), own in zip(p.items(), torch.split(noise, sizes, 1), strict=True):
            moved = values.double().sub_(sums[name], alpha=self.rates[name] / divisor)
            values.copy_(released(moved, own.view(values.shape), grids[name]))


class RowNoise:
    """Noise of every step on every row of every client's table, drawn no earlier than somebody could look.

    Args:
        call: whose streams and address are used.
        users: of the tile.
        table: their copies of the item table, moved and noised in place; at the end, what they changed by.
        items: the table that they started from.
        grid: of the noise of one step.
    """

    def __init__(
        self,
        call: Call,
        users: Sequence[int],
        table: Float[Tensor, "tile items dim"],
        items: Float[Tensor, "items dim"],
        grid: Grid,
    ) -> None:
        self._call, self._users, self._table, self._items, self._grid = call, users, table, items, grid
        self._moves = torch.zeros(table.shape, dtype=torch.float64)
        self._settled = torch.zeros(table.shape[:2], dtype=torch.int32)

    def move_(self, positions: Int64[Tensor, " rows"], moves: Float64[Tensor, "rows dim"]) -> None:
        """Add to rows (client x items + item) what nobody sees before their noise is settled."""
        add_rows_(self._moves.view(-1, self._moves.shape[2]), positions, moves)

    def settle_(self, positions: Int64[Tensor, " rows"], step: int) -> None:
        """Bring rows (client x items + item, distinct, ascending) up to date before step `step` reads them."""
        if step == 0 or len(positions) == 0:
            return
        tile, n_items, dim = self._table.shape
        owner = positions // n_items
        counts = torch.bincount(owner, minlength=tile)
        rank = torch.arange(len(positions)) - (counts.cumsum(0) - counts)[owner]
        ratios = torch.zeros(tile, int(counts.max()), 1, dtype=torch.float64)
        ratios[owner, rank] = self._due(positions, step)
        slot = self._call.query_id * SLOTS_PER_QUERY + 2 * step + 1
        noise = self._noise(slot, self._users, ratios.expand(-1, -1, dim))[owner, rank]
        rows, moves = self._table.view(-1, dim), self._moves.view(-1, dim)
        moves[positions] = released(moves[positions], noise, self._grid)
        rows[positions] = (self._items[positions % n_items] + moves[positions]).float()

    def finish_(self, steps: int) -> None:
        """Put what every row changed by, with all of its noise, in the place of the row."""
        slot = self._call.query_id * SLOTS_PER_QUERY + 2 * steps
        due = self._due(torch.arange(self._settled.numel()), steps).view(*self._settled.shape, 1)
        for some in tiles(len(self._users), _NOISED_AT_ONCE):
            own = self._moves[some]
            noise = self._noise(slot, self._users[some], due[some].expand(own.shape))
            self._table[some] = released(own, noise, self._grid)

    def _noise(
        self, slot: int, users: Sequence[int], ratios: Float64[Tensor, "users rows dim"]
    ) -> Float64[Tensor, "users rows dim"]:
        """Whole numbers of these standard deviations under the users' own keys."""
        flat = on_host(ratios.flatten(1))
        noise = self._call.streams.normal_steps(Purpose.NOISE, self._call.round, slot, users, flat.shape[1], flat)
        return noise.view(ratios.shape)

    def _due(self, at: Int64[Tensor, " rows"], step: int) -> Float64[Tensor, "rows 1"]:
        """Standard deviation, in steps of the grid, of what rows owe after `step` steps and not any more."""
        settled = self._settled.view(-1)
        owed = (step - settled[at]).double().sqrt_().mul_(self._grid.ratio)
        settled[at] = step
        return owed.unsqueeze(1)
