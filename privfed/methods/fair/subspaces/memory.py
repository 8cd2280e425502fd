"""What a device's memory holds: from a budget in bytes to the largest subspace that fits.

While it trains, a device keeps five copies of every value, all at once: the value as it was received (the update is a
difference to it), the value as trained, its gradient, and Adam's two moments. With m_g values of each table, `others`
values of shared layers and the device's own, and v bytes a value,

    bytes(g) = copies * v * (sum of m_g over tables + others) + working,    copies = 5 in training, 1 without.

An optimiser step that works in place (a fused one) and a gradient that is dense are counted; tables of a step that is
not in place are `working`, and so are a batch's activations and the interactions themselves. Once training ends, the
upload takes the place of gradient and moments, up to three values' bytes each. Slots are hashed as they are needed
(`Subspace.remember` off); a remembered hash would cost 4 bytes for each element of the whole table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from privfed.methods.fair.subspaces.errors import CapacityError
from privfed.methods.fair.subspaces.subspace import Subspace

TRAINING_COPIES = 5
"""Received, trained, gradient, and two moments."""


@dataclass(frozen=True, slots=True)
class SubspaceMemory:
    """Memory of a device at each level.

    Attributes:
        tables: the compressed tables, at any level.
        others: values of everything that is not compressed: shared layers, the device's own vectors.
        training: count what local training keeps, not the values alone.
        working: bytes besides: activations of a batch, indices, interactions.
        value: bytes of a value.

    Raises:
        CapacityError: there is no table, or tables have different levels.
    """

    tables: Sequence[Subspace]
    others: int = 0
    training: bool = True
    working: int = 0
    value: int = 4

    def __post_init__(self) -> None:
        deepest = {table.levels for table in self.tables}
        if len(deepest) != 1:
            raise CapacityError(
                f"tables with {sorted(deepest)} levels were given: give at least one table, all with the same levels"
            )

    @property
    def levels(self) -> int:
        """The deepest level."""
        return self.tables[0].levels

    def needs(self, level: int) -> int:
        """Bytes that a device at this level has to hold.

        Raises:
            SubspaceError: the tables have no such level.
        """
        values = sum(replace(table, level=level).size for table in self.tables) + self.others
        return (TRAINING_COPIES if self.training else 1) * self.value * values + self.working

    def level_of(self, budget: int) -> int:
        """The largest subspace that fits.

        Args:
            budget: bytes that the device can spare.

        Raises:
            CapacityError: not even the smallest fits.
        """
        for level in range(self.levels + 1):
            if self.needs(level) <= budget:
                return level
        raise CapacityError(
            f"a budget of {budget:,} bytes was given, but level {self.levels}, the smallest subspace, takes "
            f"{self.needs(self.levels):,}: raise the budget or the number of levels"
        )
