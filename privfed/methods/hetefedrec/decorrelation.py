"""Dimensional decorrelation: alpha ||corr(V)||_F / N on a client's own item rows (HeteFedRec, ICDE 2024, eq. 13-14).

With X the centred rows, S = X^T X / R their covariance and s its deviations, corr(V) = S / (s s^T), which is the
identity and gives 1/sqrt(N) where the columns are white. With C = corr and M = C / ||C||_F the gradient is

    dL/dV = X B,    B = 2 alpha / (N R)  (M - diag(M C)) / (s s^T).

Only the rows a client touches take part: they are what it holds, and with Adam any gradient on the others, however
small, would move every row of the catalogue by a whole step.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Decorrelation:
    """The regulariser for one tile of clients.

    Attributes:
        alpha: its weight; a client with fewer rows than N is left out, as its correlations say little.
        real: 1 for rows that exist, 0 for padding.
        count: number of rows of every client.
    """

    alpha: float
    real: Float[Tensor, "n rows"]
    count: Float[Tensor, " n"]

    def loss(self, items: Float[Tensor, "n width rows"]) -> Float[Tensor, " n"]:
        """The term itself, alpha ||corr||_F / N of every client."""
        norm: Tensor = torch.linalg.matrix_norm(self._correlation(self._centred(items))[0])
        return self._weight(items.shape[1]) * norm

    def add_gradient_(self, gradient: Float[Tensor, "n width rows"], items: Float[Tensor, "n width rows"]) -> None:
        """Add the gradient by every row to `gradient`."""
        centred = self._centred(items)
        correlation, scale = self._correlation(centred)
        m = correlation / torch.linalg.matrix_norm(correlation, keepdim=True).clamp(min=_LEAST_VARIANCE)
        weight = 2 * self._weight(items.shape[1]) / self.count.clamp(min=1)
        # diag(M C): both are symmetric, so it is the row sums of their elementwise product.
        matrix = m - torch.diag_embed((m * correlation).sum(2))
        # Rows lie feature by feature, [n, width, rows], so X B of the formula is B X here; B is symmetric.
        gradient.baddbmm_(matrix.mul_(scale).mul_(weight[:, None, None]), centred)

    def _weight(self, width: int) -> Float[Tensor, " n"]:
        # Fewer rows than columns have correlations of deficient rank whatever the client likes: weight 0.
        return self.alpha / width * (self.count >= width)

    def _centred(self, items: Tensor) -> Tensor:
        """Rows less their mean; padding, which is zero, stays zero."""
        mean = items.sum(2, keepdim=True) / self.count.clamp(min=1)[:, None, None]
        # The mean goes off where `real` is 1 only, so padding needs no mask afterwards.
        return torch.baddbmm(items, mean, self.real.unsqueeze(1), alpha=-1)

    def _correlation(self, centred: Tensor) -> tuple[Tensor, Tensor]:
        """The correlations and 1 / (s s^T), both `[n, width, width]`."""
        covariance = torch.bmm(centred, centred.transpose(1, 2)).div_(self.count.clamp(min=1)[:, None, None])
        # The floor makes a constant column uncorrelated, where 1 / s would be infinite.
        inverse = covariance.diagonal(dim1=1, dim2=2).clamp(min=_LEAST_VARIANCE).rsqrt()
        scale = inverse.unsqueeze(2) * inverse.unsqueeze(1)
        return covariance * scale, scale
