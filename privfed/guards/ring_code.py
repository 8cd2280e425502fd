"""From the blocks of one upload to ring elements, and from their sum back to sums of blocks.

The layout is public: the real blocks of the schema one after another, each coordinate times its block's weight, then
the integer blocks. Without noise real values travel in fixed point; where every client adds a share of integer noise
they are rounded conditionally first (`secure_agg.noise`). Integer blocks travel exactly, and without noise.
That no sum overflows is proven when the code is built, for the
number of clients that a round can have.
"""

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import Schema, share_of
from privfed.guards.noise_kernels import COMPILED
from privfed.guards.share_code import integer_code
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Mechanism
from privfed.privacy.mechanisms.masking import weighted
from privfed.updates import ClientUpdates
from secure_agg.encoding import FixedPoint, Ring, RingElements, Rounding
from secure_agg.noise import DistributedMechanism, compute_with

KEY_WORDS = 8
"""Random 32-bit words that key one client's rounding and noise."""


class RingCode:
    """The code of one schema under one mechanism.

    Args:
        mechanism: with a masked sum, noised or not.
        schema: blocks of the query.
        max_clients: number of clients that a round can have.

    Raises:
        RingOverflowError: the sum does not fit the ring.
        PlanError: an integer block without a bound, or a mechanism that masks nothing.
    """

    def __init__(self, mechanism: Mechanism, schema: Schema, max_clients: int) -> None:
        masking = mechanism.masking
        if masking is None:
            raise PlanError(f"{mechanism.label!r} masks no uploads, so there is no ring to write them in")
        self.schema, self.ring = schema, Ring(masking.bits)
        self.real = [name for name, block in schema.items() if block.kind == "real"]
        self.integer = [name for name, block in schema.items() if block.kind == "integer"]
        self.coordinates = sum(schema[name].size for name in self.real)
        share = share_of(schema)
        self._clip_norm = masking.clip_norm * math.sqrt(share)
        self.distributed: DistributedMechanism | None = None
        self._fixed: FixedPoint | None = None
        if self.coordinates and masking.noise is not None:
            self.distributed = masking.noised(masking.noise, self.coordinates, max_clients, share)
            compute_with(COMPILED)
        elif self.coordinates:
            self._fixed = masking.fixed_point(max_clients, share)
        self._codes = {name: integer_code(self.ring, name, schema[name], max_clients) for name in self.integer}

    @property
    def randomised(self) -> bool:
        """Whether ring elements follow from a client's own randomness too: shares of noise, and stochastic rounding."""
        stochastic = self._fixed is not None and self._fixed.rounding is Rounding.STOCHASTIC
        return self.distributed is not None or stochastic

    @property
    def length(self) -> int:
        """Number of ring elements of one upload."""
        return self.coordinates + sum(self.schema[name].size for name in self.integer)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Positions of the ring elements of every block in an upload."""
        slices, start = {}, 0
        for name in (*self.real, *self.integer):
            slices[name] = slice(start, start + self.schema[name].size)
            start = slices[name].stop
        return slices

    def encode(self, uploads: Mapping[str, Tensor], position: int, key: bytes, weight: float = 1.0) -> RingElements:
        """Ring elements `[length]` of one client of dense uploads `[n, *shape]`.

        Args:
            uploads: of several clients.
            position: of this one.
            key: seeds its own randomness.
            weight: of its tier, by which its upload has been multiplied; rounding keeps to the norm that is left.
        """
        pieces = [code.encode(on_host(uploads[name][position]).reshape(-1)) for name, code in self._codes.items()]
        if self.coordinates:
            # [coordinates] weighted values, in float64 where noise is added to them.
            flat: NDArray[np.floating] = np.empty(self.coordinates, np.float64 if self.distributed else np.float32)
            places = self.places
            for name in self.real:
                block = on_host(uploads[name][position]).reshape(-1)
                np.multiply(block, self.schema[name].weight, out=flat[places[name]])
            doubles = flat.astype(np.float64, copy=False)
            # Materialising rounds: what the clip left exactly at its norm may come out a little longer.
            bound = self._clip_norm * (weight or 1.0)
            excess = math.sqrt(doubles @ doubles) / bound
            flat = flat / excess if excess > 1.0 else flat
            # The noise is sized for vectors within the clip norm, to the last bit.
            if self.distributed is not None:
                code = weighted(self.distributed, weight or 1.0)
                ring_elements = self.ring.from_integers(code.encode(flat[None], key)[0])
            elif self._fixed is not None:
                ring_elements = self._fixed.encode(flat, key)
            pieces.insert(0, ring_elements)
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def summed_steps(self, uploads: Mapping[str, Tensor]) -> Int64[Tensor, " length"]:
        """The sum of several clients' elements before reduction to the ring, without noise, where the uploads are.

        Whole numbers are added modulo 2^64, in any order, so reduced to the ring it is what the clients' elements from
        `encode` add up to.

        Args:
            uploads: dense blocks `[n, *shape]`.

        Raises:
            ConfigurationError: a value over its block's bound.
        """
        pieces = [uploads[name].flatten(1) for name in self.integer]
        for name, piece in zip(self.integer, pieces, strict=True):
            # The two extremes stand for all values: encoding them raises where any value is over the bound.
            self._codes[name].encode(on_host(torch.stack(piece.aminmax())))
        if self._fixed is not None:
            flat = torch.cat([uploads[n].flatten(1) * self.schema[n].weight for n in self.real], 1)
            excess = (torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64) / self._clip_norm).clamp_(min=1)
            flat = flat / excess.to(flat.dtype).unsqueeze(1)
            self._fixed.encode(on_host(torch.stack(flat.aminmax())))
            pieces.insert(0, flat.double().mul_(self._fixed.scale).round_().long())
        return torch.cat(pieces, 1).sum(0)

    def accepts(self, updates: ClientUpdates) -> None:
        """Refuse whole numbers over their block's bound, as `encode` would.

        Raises:
            ConfigurationError: there is one.
        """
        for name, code in self._codes.items():
            code.encode(np.array([updates.largest(name)]))

    def decode(self, total: RingElements) -> dict[str, Tensor]:
        """Sums `[*shape]` of every block, float64 or int64, from summed elements."""
        sums: dict[str, Tensor] = {}
        at = self.coordinates
        if self.distributed is not None:
            sums |= self._split(self.distributed.decode(self.ring.centred(total[:at])))
        elif self._fixed is not None:
            sums |= self._split(self._fixed.decode(total[:at]))
        for name, code in self._codes.items():
            block = self.schema[name]
            sums[name] = placed(code.decode(total[at : at + block.size])).view(block.shape)
            at += block.size
        return {name: sums[name] for name in self.schema}

    def analytic_deviation(self, members: int) -> float:
        """Standard deviation, in the units of weighted values, of the noise on a sum of `members` shares."""
        if self.distributed is None:
            return 0.0
        return math.sqrt(self.distributed.noise.client_variance * members) * self.distributed.grid

    def _split(self, flat: Float[np.ndarray, " coordinates"]) -> dict[str, Tensor]:
        out, at = {}, 0
        for name in self.real:
            block = self.schema[name]
            out[name] = placed(flat[at : at + block.size] / block.weight).view(block.shape)
            at += block.size
        return out
