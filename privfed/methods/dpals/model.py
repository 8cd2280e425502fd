"""The item step of differentially private alternating least squares, from noisy sums.

Chien, Jain, Krichene, Rendle, Song, Thakurta and Zhang ("Private Alternating Least Squares", ICML 2021). Users have
unit embeddings u and weigh their own items by c_uj; everybody weighs all items by b. With K = sum_u u u^T, item j is

    v_j = (A_j + b K + l n b I)^-1 r_j,    A_j = sum_{u has j} c_uj u u^T,    r_j = sum_{u has j} c_uj u.

K, A_j and r_j come with noise. K and A_j are projected to positive semidefinite matrices, as published. Without the
matrices A_j, which are k (k + 1) / 2 noisy numbers for every item, A_j is taken to be (a_j / n) K, a_j = sum c_uj: what
it is where an item's users are like everybody else. All r_j together are a matrix, whose singular values are shrunk by
what noise of a known size adds to them (Gavish and Donoho, "Optimal Shrinkage of Singular Values", IEEE Transactions
on Information Theory, 2017, for the Frobenius loss).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.compute.linear_algebra import eigenpairs_of, singular_triplets_of, solve_positive_of

_NOISE_RIDGE = 0.5


def shrunk(matrix: Float64[Tensor, "rows columns"], deviation: float) -> Float64[Tensor, "rows columns"]:
    """The matrix with its singular values shrunk, and those that noise alone may have dropped.

    Args:
        matrix: with independent noise in every entry.
        deviation: standard deviation of the noise; 0 leaves the matrix as it is.
    """
    if not deviation:
        return matrix
    short, long = sorted(matrix.shape)
    left, values, right = singular_triplets_of(matrix)
    scale, ratio = deviation * math.sqrt(long), short / long
    y = values / scale
    kept = ((y.square() - ratio - 1).square() - 4 * ratio).clamp(min=0).sqrt() / y.clamp(min=1)
    found: Tensor = (left * torch.where(y > 1 + math.sqrt(ratio), kept * scale, 0.0)) @ right
    return found


def positive(matrices: Float64[Tensor, "*any dim dim"]) -> Float64[Tensor, "*any dim dim"]:
    """The nearest positive semidefinite matrices."""
    values, vectors = eigenpairs_of(matrices)
    found: Tensor = (vectors * values.clamp(min=0).unsqueeze(-2)) @ vectors.mT
    return found


@dataclass(frozen=True, slots=True)
class ItemStep:
    """Settings of the step from noisy sums to item factors.

    Attributes:
        clients: n, users in the sums.
        everybody: b, weight of every pair of user and item.
        regularisation: l.
        sums_deviation: standard deviation of the noise on every number of r_j.
        squares_deviation: of the noise on the diagonals of A_j; off them sqrt(2) times less.
    """

    clients: float
    everybody: float
    regularisation: float
    sums_deviation: float
    squares_deviation: float = 0.0

    def factors(
        self,
        gram: Float64[Tensor, "dim dim"],
        sums: Float64[Tensor, "items dim"],
        reach: Float64[Tensor, " items"],
        squares: Float64[Tensor, "items dim dim"] | None = None,
    ) -> Float64[Tensor, "items dim"]:
        """The item factors v_j.

        Args:
            gram: K.
            sums: r_j.
            reach: a_j, from which A_j follows where it was not collected.
            squares: A_j; None where they were not.
        """
        dim, ridge = len(gram), self.regularisation * self.clients * self.everybody
        whole = positive(gram)
        if squares is None:
            own = (reach / self.clients).view(-1, 1, 1) * whole
        else:
            own = positive(squares)
            ridge += _NOISE_RIDGE * self.squares_deviation * math.sqrt(dim)
        systems = own + self.everybody * whole
        systems.diagonal(dim1=1, dim2=2).add_(ridge)
        return solve_positive_of(systems, shrunk(sums, self.sums_deviation))
