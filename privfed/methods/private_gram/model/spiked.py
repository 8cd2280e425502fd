"""Eigenpairs of a low-rank matrix under symmetric noise: which to believe, how large they were, how far they turned.

A B x B symmetric matrix of independent noise of standard deviation t off the diagonal has its largest eigenvalue near
the edge 2 t sqrt(B). Of a signal with eigenvalue theta > t sqrt(B), what is seen is lambda = theta + t^2 B / theta and
an eigenvector whose squared cosine with the true one is s = 1 - t^2 B / theta^2 (Benaych-Georges and Nadakuditi,
Advances in Mathematics 227, 2011, for the Wigner matrix). Without noise the edge is 0, theta = lambda and s = 1.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from privfed.compute.linear_algebra import largest_eigenpairs, orthogonal_roots


def edge_of(deviation: float, side: int) -> float:
    """Where the eigenvalues of noise alone end, for its standard deviation off the diagonal."""
    return 2 * deviation * math.sqrt(side)


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Prior correlations of the entries of a direction: K = (1 - share) I + share H H^T.

    Attributes:
        roots: H, orthogonal columns.
        scales: their squared lengths.
        share: of what they explain.
    """

    roots: Float64[np.ndarray, "side d"]
    scales: Float64[np.ndarray, " d"]
    share: float = 1.0

    @classmethod
    def from_kernel(cls, kernel: Float64[np.ndarray, "side side"]) -> "Prior":
        """The prior whose correlations are `kernel`, positive semidefinite."""
        return cls(*orthogonal_roots(kernel))

    def mixed(self, share: float) -> "Prior":
        """The mixture of `share` of this prior with uncorrelated entries for the rest."""
        return replace(self, share=share * self.share)

    def expected(
        self, seen: Float64[np.ndarray, "side d"], trust: Float64[np.ndarray, " d"]
    ) -> Float64[np.ndarray, "side d"]:
        """K (s K + (1 - s) I)^-1 v of every vector v, s its trust."""
        bare, left, inside = self._inside(seen, trust)
        expected: np.ndarray = bare / left * seen + self.roots @ ((1 - trust) / left * inside)
        return expected

    def solved(
        self, seen: Float64[np.ndarray, "side d"], trust: Float64[np.ndarray, " d"]
    ) -> Float64[np.ndarray, "side d"]:
        """(s K + (1 - s) I)^-1 v of every vector v, s its trust."""
        _, left, inside = self._inside(seen, trust)
        solved: np.ndarray = (seen - self.roots @ (trust * inside)) / left
        return solved

    def _inside(
        self, seen: Float64[np.ndarray, "side d"], trust: Float64[np.ndarray, " d"]
    ) -> tuple[float, Float64[np.ndarray, " d"], Float64[np.ndarray, "k d"]]:
        # As H^T H is diagonal, a solve is a division by eigenvalues, and none is factored for a trust of its own. tiny
        # keeps 0 / 0 out where s = 1 and K is singular.
        bare = 1 - self.share + np.finfo(np.float64).tiny
        left = trust * bare + (1 - trust)
        explained: np.ndarray = left + trust * self.share * self.scales[:, None]
        return bare, left, self.share * (self.roots.T @ seen) / explained


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
        return prior.expected(self.directions * np.sqrt(self.trust), self.trust)

    def carried(self, across: Float64[np.ndarray, "j side"], prior: Prior) -> Float64[np.ndarray, "j d"]:
        """Smoothed directions of items outside, whose correlations with those inside are `across`."""
        carried: np.ndarray = across @ prior.solved(self.directions * np.sqrt(self.trust), self.trust)
        return carried
