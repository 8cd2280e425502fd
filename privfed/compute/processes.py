"""`Processes`: the processes among which the clients of a simulation are shared, on `torch.distributed`.

Every process hosts a range of the population and runs the same server: it trains its own clients, sums are added up
over all processes before anything is done with them, and so every server goes on from the same numbers. What a client
draws is addressed by its number in the population (`privfed.federation.streams`), so it does not matter where it lives.

    torchrun --nproc-per-node 2 -m privfed run hetefedrec --data ml-1m --out runs/hete

starts two on one machine; torchrun's own options spread them over several. All of them are one party: what they
exchange is not protected, as nothing in a simulation is.
"""

import atexit
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, distributed

from privfed.compute.launched import launched_processes
from secure_agg.encoding import RingElements

T = TypeVar("T")


class ProcessesError(ValueError):
    """The processes of a run cannot work together."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one run, of which this is one.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def launched(cls) -> "Processes":
        """The processes that torchrun started with this one; alone where it was started by itself.

        Raises:
            ProcessesError: torchrun's variables are there, but the processes do not find each other.
        """
        if launched_processes() == 1:
            return ALONE
        if not distributed.is_initialized():
            try:
                distributed.init_process_group("gloo")
                atexit.register(distributed.destroy_process_group)
            except (RuntimeError, ValueError) as error:
                raise ProcessesError(
                    f"the processes that torchrun started cannot find each other ({error}): see that its --master-addr "
                    "and port can be reached from all of them"
                ) from error
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def hosted(self, population: int) -> Int64[np.ndarray, " hosted"]:
        """Users who live in this process: a range, so that ranges of all processes follow each other."""
        return np.arange(*self._range(population))

    def first_user(self, population: int) -> int:
        """The lowest number of a user who lives in this process."""
        return self._range(population)[0]

    def own(self, members: Int64[Tensor, " members"], population: int) -> Int64[Tensor, " own"]:
        """Those of `members` (ascending) who live in this process."""
        return members[slice(*self._places(members, population, self.rank))]

    def add_(self, sums: Mapping[str, Tensor]) -> None:
        """Add every tensor up over all processes, in place; all hold the same bits then."""
        for dtype in sorted({values.dtype for values in sums.values()}, key=str) if self.size > 1 else ():
            alike = [values for values in sums.values() if values.dtype == dtype]
            together = torch.cat([values.flatten() for values in alike])
            with _others():
                distributed.all_reduce(together)
            parts = torch.split(together, [values.numel() for values in alike])
            for values, summed in zip(alike, parts, strict=True):
                values.copy_(summed.view_as(values))

    def add_ring_elements_(self, ring_elements: RingElements) -> RingElements:
        """Add ring words up over all processes, in place: wrap-around sums, in which order does not matter."""
        if self.size > 1:
            # What all-reduce knows: 32 and 64 bits, signed, where the sum wraps around to the same bits.
            signed = np.dtype(f"<i{max(ring_elements.dtype.itemsize, 4)}")
            summed = torch.from_numpy(ring_elements.astype(signed))
            with _others():
                distributed.all_reduce(summed)
            ring_elements[...] = summed.numpy().astype(ring_elements.dtype)
        return ring_elements

    def spread_(self, uploads: Mapping[str, Tensor], members: Int64[Tensor, " members"], population: int) -> None:
        """Give every process the rows `[members, ...]` that the others have made, in place."""
        for rank in range(self.size) if self.size > 1 else ():
            place = slice(*self._places(members, population, rank))
            for values in uploads.values() if place.start < place.stop else ():
                with _others():
                    distributed.broadcast(values[place], src=rank)

    def every(self, value: T) -> list[T]:
        """Values of all processes, in the order of ranks; small Python values."""
        found = [value] * self.size
        if self.size > 1:
            with _others():
                distributed.all_gather_object(found, value)
        return found

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """What one process is to do before the others: fetch a file, fill a cache."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        """Go on once all processes are here."""
        if self.size > 1:
            with _others():
                distributed.barrier()

    def _range(self, population: int) -> tuple[int, int]:
        return self.rank * population // self.size, (self.rank + 1) * population // self.size

    def _places(self, members: Int64[Tensor, " members"], population: int, rank: int) -> tuple[int, int]:
        """Positions among `members` of those who live in process `rank`."""
        low, high = Processes(rank, self.size)._range(population)
        found = torch.searchsorted(members, torch.tensor([low, high]))
        return int(found[0]), int(found[1])


@contextmanager
def _others() -> Iterator[None]:
    """An exchange with all other processes, which cannot be had once one of them is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessesError("another process of this run has ended, so this one ends too; see what it said") from error


ALONE = Processes()
"""One process that hosts everybody."""
