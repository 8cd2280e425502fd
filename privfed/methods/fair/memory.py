"""What a device of a tier keeps in memory while it trains: counted on the very arrays that training works on.

Two things are not counted, because a device needs no memory for them and a simulation only remembers them for speed:
the hash of a table's elements, which it computes where it needs it, and random words, which its key stream yields in
any place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.spaces import Factors, TableSpace
from privfed.methods.fair.training import network, scratch_for, slots_needed

_OPTIMISER = ("gradient", "first_moment", "second_moment", "dense_gradient", "dense_first", "dense_second")
_TRAINED = ("trained", "slots", "slot_position")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on one device, all at the same time.

    Attributes:
        received: tables and layers as downloaded, to which the upload is the difference.
        trained: the values that move, and where a device keeps only those that it touched, which these are.
        optimiser: gradients and Adam's two moments.
        working: one block of a minibatch on its way through the network.
        interactions: the user's own, and what else is barred from the negatives.
    """

    received: int
    trained: int
    optimiser: int
    working: int
    interactions: int

    @property
    def total(self) -> int:
        """Total number of bytes."""
        return self.received + self.trained + self.optimiser + self.working + self.interactions


def device_memory(
    config: FairConfig, spaces: Mapping[str, TableSpace], n_items: int, interactions: int, barred: int = 0
) -> DeviceMemory:
    """Memory of a device during training.

    Args:
        config: settings.
        spaces: how its tier keeps each table.
        n_items: of the catalogue.
        interactions: of its user.
        barred: items barred from the negatives, where these are others than the user's own.
    """
    dtype, index = np.dtype(np.float32), np.dtype(np.int32)
    sizes = np.array([space.size for space in spaces.values()])
    kept = np.array([space.kept for space in spaces.values()])
    factored = any(isinstance(space, Factors) for space in spaces.values())
    slots = int(slots_needed(config, sizes, kept, np.array([interactions]), n_items).sum())
    total = int(sizes.sum())
    only_touched = slots < total
    shared = config.model.size + (int(kept.sum()) * config.dim if factored else 0)
    numbers = len(spaces) * config.dim + shared
    signed = config.subspace == "signed" and total < len(spaces) * n_items * config.dim
    net = network(config, kept, factored=factored)
    listed, places = (slots, total) if only_touched else (0, 0)
    scratch = scratch_for(net, slots, listed, places, numbers, signed=signed, dtype=dtype)._asdict()
    optimiser = sum(scratch.pop(name).nbytes for name in _OPTIMISER)
    trained = sum(scratch.pop(name).nbytes for name in _TRAINED)
    each = index.itemsize + (dtype.itemsize if config.task == "rating" else 0)
    return DeviceMemory(
        received=dtype.itemsize * (total + shared),
        trained=dtype.itemsize * numbers + trained,
        optimiser=optimiser,
        working=sum(array.nbytes for array in scratch.values()),
        interactions=each * interactions + index.itemsize * barred,
    )


def working_bytes(config: FairConfig) -> int:
    """Bytes of a device besides five copies of every value: arrays of a block, and interactions."""
    net = network(config, np.full(len(config.model.tables), config.dim), factored=False)
    scratch = scratch_for(net, 0, 0, 0, 0, signed=config.subspace == "signed", dtype=np.dtype(np.float32))
    return sum(array.nbytes for array in scratch) + config.interactions * (8 if config.task == "rating" else 4)
