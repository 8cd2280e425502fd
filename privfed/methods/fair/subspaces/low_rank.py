"""Tables cut to a low rank for small devices: FedHM (Yao et al., Federated learning via low-rank factorisation, 2021).

A small device trains B [rows, k] and C [k, width] in place of W. The server starts them from W's truncated singular
value decomposition W ~ U S V^T, shared evenly: B = U S^(1/2) = W V S^(-1/2) and C = S^(1/2) V^T, with k columns each. V
and S^2 are eigenvectors and eigenvalues of W^T W, which is width x width: no tall matrix is decomposed.
Products B C add up over devices, factors do not: a sum of uploads is one of tables.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.linear_algebra import eigenpairs_of
from privfed.methods.fair.subspaces.errors import SubspaceError


@dataclass(frozen=True, slots=True)
class LowRankTables:
    """Tables of one shape and at most one rank.

    Attributes:
        rows: rows of the table.
        width: values of a row.
        rank: k.

    Raises:
        SubspaceError: no table of that shape has that rank.
    """

    rows: int
    width: int
    rank: int

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= min(self.rows, self.width):
            raise SubspaceError(
                f"rank {self.rank} was asked for a table of {self.rows} x {self.width}: use 1 to "
                f"{min(self.rows, self.width)}, a weaker compression, or the rank of the width"
            )

    @classmethod
    def compressed(
        cls, rows: int, width: int, compression: int, rank: Literal["width", "released"] = "width"
    ) -> "LowRankTables":
        """The rank that a capacity of 1 / compression affords.

        Args:
            rows: rows of the table.
            width: values of a row.
            compression: 4 for a device of a quarter of the size.
            rank: `width`, the width divided by the compression, at least 1, as FAIR's paper describes the baseline.
                `released`, floor(rows width / (compression (rows + width))), the most that fits in the same number of
                values, as FAIR's code has it; for embedding tables it is one less wherever the first divides evenly.

        Raises:
            SubspaceError: the released rule leaves no rank at all.
        """
        if compression < 1:
            raise SubspaceError(f"a compression of {compression} was asked for: use 1 or more")
        if rank == "width":
            return cls(rows, width, min(rows, max(1, width // compression)))
        return cls(rows, width, rows * width // (compression * (rows + width)))

    @property
    def size(self) -> int:
        """Values of both factors."""
        return self.rank * (self.rows + self.width)

    def reduce(
        self, table: Float[Tensor, "*batch rows width"]
    ) -> tuple[Float[Tensor, "*batch rows rank"], Float[Tensor, "*batch rank width"]]:
        """B and C whose product is the nearest table of this rank; computed in float64.

        The largest entry of each row of C is positive, so that equal tables have equal factors.
        """
        wide = table.double()
        squares, vectors = eigenpairs_of(wide.mT @ wide)
        singular = squares[..., -self.rank :].flip(-1).clamp_(min=0).sqrt_()
        V = vectors[..., -self.rank :].flip(-1)
        V = V * V.gather(-2, V.abs().argmax(-2, keepdim=True)).sign()
        root = singular.sqrt()
        inverse = torch.where(root > 0, 1 / root, 0)
        B, C = wide @ V * inverse.unsqueeze(-2), root.unsqueeze(-1) * V.mT
        return B.to(table.dtype), C.to(table.dtype)

    def recover(
        self, B: Float[Tensor, "*batch rows rank"], C: Float[Tensor, "*batch rank width"]
    ) -> Float[Tensor, "*batch rows width"]:
        """B C."""
        return B @ C

    def project(self, table: Float[Tensor, "*batch rows width"]) -> Float[Tensor, "*batch rows width"]:
        """The nearest table of this rank."""
        return self.recover(*self.reduce(table))
