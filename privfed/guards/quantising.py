"""Uploads of b bits a number: every block of an upload rounded at random to whole steps of its own largest value.

With L = 2^(b-1) - 1 and the step s = max |v| / L, a value v becomes q = floor(v / s + u), u uniform in [0, 1), a whole
number from -L to L, and is read as q s. What arrives is right on average, zero stays zero, and a coordinate errs by
less than a step, with a variance of at most s^2 / 4; the variances of n uploads add up to at most n s^2 / 4.

On the wire a block is its step (a float32) and its numbers, packed to b bits each.

What it does to privacy: nothing. Rounding is the last thing that happens to an upload, and reads nothing but the upload
(the largest value included) and randomness of its own. After noise it is post-processing of what is protected already
(Dwork and Roth 2014, proposition 2.1), so the guarantee is that of the noise. Without noise it hides nothing. Where a
sum is noised or masked it has no place: rounding may lengthen a clipped upload beyond the clip norm, and a ring rounds
itself.

Source: Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding" (NeurIPS 2017), with the largest value in the place of the norm.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, UInt8, UInt32
from torch import Tensor

from privfed.compute.devices import placed
from privfed.privacy.upload_bits import STEP_BYTES, coded_bytes, levels
from privfed.updates import ClientUpdates, Rows
from secure_agg.encoding import Ring
from secure_agg.errors import MalformedMessage

_ROW_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class UploadCode:
    """The code of numbers that travel with `bits` bits each.

    Attributes:
        bits: 2 to 16.
    """

    bits: int

    @property
    def levels(self) -> int:
        """The largest whole number, L."""
        return levels(self.bits)

    def packed_bytes(self, count: int) -> int:
        """Bytes of so many packed numbers."""
        return Ring(self.bits).packed_bytes(count)

    def steps_of(self, values: Float32[Tensor, "n size"]) -> Float32[Tensor, " n"]:
        """The step of every row: the smallest float32 that L times reaches the largest magnitude."""
        largest = values.abs().amax(1)
        steps = largest / self.levels
        # Division rounds: where L steps stay below the largest value [n], the next float32 up makes them reach it.
        short = steps.double() * self.levels < largest.double()
        steps = torch.where(short, torch.nextafter(steps, torch.full_like(steps, torch.inf)), steps)
        limits = torch.finfo(torch.float32)
        return steps.clamp(min=limits.tiny, max=limits.max / self.levels)

    def whole(
        self,
        values: Float32[Tensor, "n size"],
        steps: Float32[Tensor, " n"],
        ring_elements: UInt32[np.ndarray, "n size"],
    ) -> Float64[Tensor, "n size"]:
        """Whole numbers from -L to L, right on average to within 2^-32 of a step.

        Args:
            values: rows.
            steps: of the rows, as `steps_of` gives them.
            ring_elements: a uniform word for every value.
        """
        # floor(v / s + u) with u uniform in [0, 1) is right on average, and leaves whole multiples of s as they are.
        uniform = placed(ring_elements * 2.0**-32)
        return values.double().div_(steps.double().unsqueeze(1)).add_(uniform).floor_()

    def pack(self, values: Float32[np.ndarray, " size"], step: np.float32) -> UInt8[np.ndarray, " bytes"]:
        """The bytes of a row of values that are whole multiples of `step`."""
        ring = Ring(self.bits)
        return ring.pack(ring.from_integers(np.rint(values.astype(np.float64) / np.float64(step)).astype(np.int64)))

    def unpack(self, data: UInt8[np.ndarray, " bytes"], step: np.float32, size: int) -> Float32[np.ndarray, " size"]:
        """The values that were packed, to the bit.

        Raises:
            MalformedMessage: another number of bytes than `size` numbers take, bits set after the last, or a step or a
                number that no code gives.
        """
        ring, max_clients = Ring(self.bits), np.finfo(np.float32).max
        whole = ring.centred(ring.unpack(data.tobytes(), size))
        if not 0 < step <= max_clients / self.levels or int(whole.min(initial=0)) < -self.levels:
            raise MalformedMessage(f"a step or a number is out of range for {self.bits} bits; drop the message")
        return whole.astype(np.float32) * step


def coded_upload_bytes(updates: ClientUpdates, bits: int, *, dense: bool) -> int:
    """Bytes that these clients upload: real blocks with `bits` bits a number, integer blocks as represented.

    Rows stay rows, with an id of 32 bits each; other representations are written out, because what is rounded is the
    upload and not its factors.

    Args:
        updates: of the clients.
        bits: of a number.
        dense: whether noise covers every coordinate of every block, sent or not.
    """
    total = 0
    for held, (name, block) in zip(updates.holds().T, updates.schema.items(), strict=True):
        parts = [part for part in updates.parts if part.block == name]
        if block.kind == "integer":
            total += sum(part.nbytes for part in parts)
        elif dense:
            total += len(updates) * int(coded_bytes(block.size, bits))
        elif all(isinstance(part, Rows) for part in parts):
            rows = sum((torch.bincount(part.owner, minlength=len(updates)) for part in parts), torch.zeros(1).long())
            packed = -(-rows * (block.size // block.shape[0]) * bits // 8)
            total += int((packed + _ROW_ID_BYTES * rows).sum()) + STEP_BYTES * int(held.sum())
        else:
            total += int(held.sum()) * int(coded_bytes(block.size, bits))
    return total
