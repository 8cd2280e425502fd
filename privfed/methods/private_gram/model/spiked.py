"""Eigenpairs of a low-rank matrix under symmetric noise: which to believe, how large they were, how far they turned.

A B x B symmetric matrix of independent noise of standard deviation t off the diagonal has its largest eigenvalue near
the edge 2 t sqrt(B). Of a signal with eigenvalue theta > t sqrt(B), what is seen is lambda = theta + t^2 B / theta and
an eigenvector whose squared cosine with the true one is s = 1 - t^2 B / theta^2 (Benaych-Georges and Nadakuditi,
Advances in Mathematics 227, 2011, for the Wigner matrix). Without noise the edge is 0, theta = lambda and s = 1.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from privfed.compute.linear_algebra import largest_eigenpairs


def edge_of(deviation: float, side: int) -> float:
    """Where the eigenvalues of noise alone end, for its standard deviation off the diagonal."""
    return 2 * deviation * math.sqrt(side)


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Prior correlations of the entries of a direction, as eigenpairs of their matrix.

    Attributes:
        scales: eigenvalues, from 0 up.
        basis: eigenvectors, one per column.
    """

    scales: Float64[np.ndarray, " side"]
    basis: Float64[np.ndarray, "side side"]

    @classmethod
    def from_kernel(cls, kernel: Float64[np.ndarray, "side side"]) -> "Prior":
        """The prior whose correlations are `kernel`, positive semidefinite."""
        scales, basis = largest_eigenpairs(kernel, len(kernel))
        return cls(np.maximum(scales, 0), basis)

    def mixed(self, share: float) -> "Prior":
        """The mixture of `share` of this prior with uncorrelated entries for the rest."""
        # (1 - share) I + share K has the eigenvectors of K.
        return Prior((1 - share) + share * self.scales, self.basis)


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Eigenpairs above the edge of the noise, largest first.

    Attributes:
        strengths: theta, what the eigenvalues were without noise.
        trust: s, squared cosines between what is seen and what was there, in (0, 1].
        directions: unit eigenvectors as seen, one per column.
    """

    strengths: Float64[np.ndarray, " d"]
    trust: Float64[np.ndarray, " d"]
    directions: Float64[np.ndarray, "side d"]

    @classmethod
    def from_matrix(cls, matrix: Float64[np.ndarray, "side side"], deviation: float, max_spikes: int) -> "Spikes":
        """At most `max_spikes` spikes of `matrix`, whose off-diagonal noise has standard deviation `deviation`."""
        side = len(matrix)
        if max_spikes == 0:
            return cls(np.empty(0), np.empty(0), np.empty((side, 0)))
        values, vectors = largest_eigenpairs(matrix, max_spikes)
        # Eigenvalues come in ascending order; spikes are kept largest first.
        above = np.flatnonzero(values > edge_of(deviation, side))[::-1]
        values, vectors = values[above], vectors[:, above]
        # The larger root of theta^2 - lambda theta + t^2 side = 0; the edge 2 t sqrt(side) is where it becomes real.
        strengths = (values + np.sqrt(values**2 - 4 * deviation**2 * side)) / 2
        return cls(strengths, 1 - deviation**2 * side / strengths**2, vectors)

    def strongest(self, max_spikes: int) -> "Spikes":
        """The first `max_spikes` of them."""
        return Spikes(self.strengths[:max_spikes], self.trust[:max_spikes], self.directions[:, :max_spikes])

    def smoothed(self, prior: Prior | None) -> Float64[np.ndarray, "side d"]:
        """Directions scaled by sqrt(s), so that each weighs what is believed of it; smoothed along a prior.

        With entries of a direction a priori Gaussian with correlations K, what is expected of the true one is
        s K (s K + (1 - s) I)^-1 v / sqrt(s), which is sqrt(s) v for K = I.
        """
        if prior is None or not len(self.trust):
            trusted: np.ndarray = self.directions * np.sqrt(self.trust)
            return trusted
        # In the basis of K the solve is a division: [side, side] times [side, d], and no factorisation per spike.
        turned: np.ndarray = prior.basis @ (prior.scales[:, None] * self._in(prior))
        return turned

    def carried(self, across: Float64[np.ndarray, "j side"], prior: Prior) -> Float64[np.ndarray, "j d"]:
        """Smoothed directions of items outside, whose correlations with those inside are `across`."""
        carried: np.ndarray = across @ (prior.basis @ self._in(prior))
        return carried

    def _in(self, prior: Prior) -> Float64[np.ndarray, "side d"]:
        """(s K + (1 - s) I)^-1 v sqrt(s) in the basis of K."""
        # [side, d]: eigenvalues of K by spikes. tiny keeps 0 / 0 out where s = 1 and K is singular.
        left = self.trust * prior.scales[:, None] + (1 - self.trust) + np.finfo(np.float64).tiny
        inside: np.ndarray = np.sqrt(self.trust) * (prior.basis.T @ self.directions) / left
        return inside
