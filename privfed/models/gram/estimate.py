"""Weights between items from the noisy Gram matrix of users' centred histories.

With n users whose unit histories u have the covariance Sigma, the released matrix is G = sum_u u u^T + noise. Sigma is
estimated as what public content explains, K, plus what stands out of the noise besides (`spiked`), and a device
predicts the rest of its own history y by W y, W = Sigma (Sigma + I / B)^-1: the posterior mean under the prior Sigma
and white noise of the total variance of a unit vector.

For catalogues of short histories, pairs of items that stand out one by one are added: what is left of G after the
above, beyond a threshold at the size of the largest of B^2 / 2 noises, and shrunk to a share of the pair's evidence.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.linalg import cho_factor, cho_solve

from privfed.models.gram.content import Content
from privfed.models.gram.spiked import Spikes


@dataclass(frozen=True, slots=True)
class Estimator:
    """How a noisy Gram matrix becomes weights.

    Attributes:
        clients: n, vectors in the sum.
        deviation: standard deviation of the noise on packed numbers: on the diagonal; off it sqrt(2) times less.
        diagonal: whether the sum has a diagonal.
        rank: most eigenpairs that are used; 0 leaves what content explains.
        smoothing: share of the content kernel in the prior of eigenvectors, below 1.
        threshold: of single pairs, in expected largest noises; None adds no pairs.
    """

    clients: float
    deviation: float
    diagonal: bool = True
    rank: int = 64
    smoothing: float = 0.0
    threshold: float | None = None

    @property
    def noise(self) -> float:
        """Standard deviation of the noise off the diagonal."""
        return self.deviation / math.sqrt(2)

    def weights(
        self,
        gram: Float64[np.ndarray, "side side"],
        popularity: Float64[np.ndarray, " side"],
        content: Content | None = None,
    ) -> Float64[np.ndarray, "side side"]:
        """W: row j says what each entry of a centred history adds to item j.

        Args:
            gram: G, symmetric.
            popularity: positive shares of the items, for one trend that content must not explain.
            content: kernels over the items; None where nothing is known of them.
        """
        side, n = len(gram), self.clients
        explained = np.zeros_like(gram) if content is None else self._explained(gram, popularity, content)
        left = gram - n * explained
        if not self.diagonal:
            np.fill_diagonal(left, 0)
        bulk = max(float(np.trace(left)), 0.0) / side
        spikes = Spikes.of(left, self.noise, min(self.rank, side))
        turned = spikes.smoothed(self._prior(content, side))
        covariance = explained + (turned * (np.maximum(spikes.strengths - bulk, 0) / n)) @ turned.T
        weights = _posterior(covariance, 1 / side)
        if self.threshold is not None:
            weights += self._pairs(gram - n * covariance)
        if not self.diagonal:
            np.fill_diagonal(weights, 0)
        return weights

    def _explained(
        self, gram: Float64[np.ndarray, "side side"], popularity: Float64[np.ndarray, " side"], content: Content
    ) -> Float64[np.ndarray, "side side"]:
        """K: least squares of G / n off its diagonal on the kernels, a constant and popularity, kernels from 0 up."""
        trend = np.log(popularity)
        trend = (trend - trend.mean()) / max(float(trend.std()), np.finfo(np.float64).tiny)
        basis = [*content.kernels, np.ones_like(gram), np.outer(trend, trend)]
        products = np.array([[_off_diagonal(one, other) for other in basis] for one in basis])
        seen = np.array([_off_diagonal(one, gram) for one in basis]) / self.clients
        found = np.linalg.lstsq(products, seen, rcond=None)[0]
        explained = np.zeros_like(gram)
        for kernel, coefficient in zip(content.kernels, found[: len(content.kernels)], strict=True):
            explained += max(float(coefficient), 0.0) * kernel
        return explained

    def _prior(self, content: Content | None, side: int) -> Float64[np.ndarray, "side side"] | None:
        if content is None or not self.smoothing:
            return None
        return (1 - self.smoothing) * np.eye(side) + self.smoothing * content.mean

    def _pairs(self, left: Float64[np.ndarray, "side side"]) -> Float64[np.ndarray, "side side"]:
        """Single pairs that stand out: r / (r + n / B) for what exceeds the threshold by r."""
        side = len(left)
        least = (self.threshold or 0.0) * self.noise * math.sqrt(2 * math.log(max(side**2 / 2, 1)))
        excess: np.ndarray = np.maximum(left - least, 0)
        np.fill_diagonal(excess, 0)
        pairs: np.ndarray = excess / (excess + self.clients / side)
        return pairs


def _off_diagonal(one: Float64[np.ndarray, "side side"], other: Float64[np.ndarray, "side side"]) -> float:
    """Inner product over everything but the diagonal."""
    return float(np.vdot(one, other) - one.diagonal() @ other.diagonal())


def _posterior(covariance: Float64[np.ndarray, "side side"], noise: float) -> Float64[np.ndarray, "side side"]:
    """S (S + c I)^-1, which is I - c (S + c I)^-1."""
    identity = np.eye(len(covariance))
    factor = cho_factor(covariance + noise * identity, overwrite_a=True, check_finite=False)
    posterior: np.ndarray = identity - cho_solve(factor, noise * identity, overwrite_b=True, check_finite=False)
    return posterior
