"""Tables cut to their first columns for small devices: HeteroFL (Diao et al., ICLR 2021).

A device keeps the first k columns of a table and what of the layers above meets them. The server averages each value
over the devices that hold it and leaves alone what nobody held: `recover` of ones tells who held what.
"""

from dataclasses import dataclass

from jaxtyping import Num
from torch import Tensor

from privfed.methods.fair.subspaces.errors import SubspaceError


@dataclass(frozen=True, slots=True)
class Columns:
    """The first columns of a table.

    Attributes:
        rows: rows of the table.
        width: values of a row.
        kept: k, how many columns a device keeps.

    Raises:
        SubspaceError: a row has fewer columns, or none is kept.
    """

    rows: int
    width: int
    kept: int

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.width:
            raise SubspaceError(f"{self.kept} columns of {self.width} were to be kept: keep 1 to {self.width}")

    @classmethod
    def compressed(cls, rows: int, width: int, compression: int) -> "Columns":
        """The width divided by the compression, at least 1.

        Args:
            rows: rows of the table.
            width: values of a row.
            compression: 4 for a device of a quarter of the size.
        """
        if compression < 1:
            raise SubspaceError(f"a compression of {compression} was asked for: use 1 or more")
        return cls(rows, width, max(1, width // compression))

    @property
    def size(self) -> int:
        """Values kept."""
        return self.rows * self.kept

    def reduce(self, table: Num[Tensor, "*batch rows width"]) -> Num[Tensor, "*batch rows kept"]:
        """The columns kept."""
        return table[..., : self.kept].clone()

    def recover(self, part: Num[Tensor, "*batch rows kept"]) -> Num[Tensor, "*batch rows width"]:
        """The whole table, zero where nothing is kept. An isometry, and linear."""
        table = part.new_zeros(*part.shape[:-1], self.width)
        table[..., : self.kept] = part
        return table

    def project(self, table: Num[Tensor, "*batch rows width"]) -> Num[Tensor, "*batch rows width"]:
        """The table without the columns that are not kept."""
        return self.recover(self.reduce(table))
