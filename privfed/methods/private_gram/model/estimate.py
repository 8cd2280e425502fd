"""Weights between items from the noisy Gram matrix of users' centred histories.

With n users whose unit histories u have the covariance Sigma, the released matrix is G = sum_u u u^T + noise. Sigma is
estimated as what public content explains, K, plus what stands out of the noise besides (`spiked`), and a device
predicts the rest of its own history y by W y, W = Sigma (Sigma + I / B)^-1: the posterior mean under the prior Sigma
and white noise of the total variance of a unit vector.

For catalogues of short histories, pairs of items that stand out one by one can be added: what is left of G after the
above, beyond a threshold at the size of the largest of B^2 / 2 noises, and shrunk to a share of the pair's evidence.

Eigenpairs below the edge of the noise cannot be believed one by one, but together they still say something: a share of
all of them, in proportion to their eigenvalues over the edge, can be added to W.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from privfed.compute.linear_algebra import inverse_positive, least_squares, solve_positive
from privfed.methods.private_gram.model.content import Content
from privfed.methods.private_gram.model.spiked import Spikes, edge_of


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """Settings of the weights that are estimated from a noisy Gram matrix.

    Attributes:
        content: whether what public content explains is part of them.
        smoothing: share of the content kernel in the prior of eigenvectors, below 1; needs content.
        rank: largest number of eigenpairs; 0 leaves what content explains.
        kept: share of the head, its most popular items, that has weights.
        threshold: of single pairs, in expected largest noises; None adds no pairs.
        below: weight that an eigenpair at the edge of the noise would have; those below it have less by as much as
            their eigenvalues are smaller. 0 leaves them out.
        ridge: of weights in the form of EASE from the matrix as it is, in white noises above the edge of what was
            released; None estimates Sigma.
    """

    content: bool = True
    smoothing: float = 0.0
    rank: int = 64
    kept: float = 1.0
    threshold: float | None = None
    below: float = 0.0
    ridge: float | None = None


@dataclass(frozen=True, eq=False)
class _Rest:
    """What is left to explain, its eigenpairs above the noise, and where the eigenvalues of noise alone end."""

    matrix: Float64[np.ndarray, "side side"]
    spikes: Spikes
    edge: float

    @cached_property
    def below(self) -> Float64[np.ndarray, "side side"]:
        """What is not above the edge, over the edge and without its diagonal; zeros without noise."""
        spikes = self.spikes
        if not self.edge:
            return np.zeros_like(self.matrix)
        # lambda = theta + (edge / 2)^2 / theta is what was seen of a spike.
        seen = spikes.strengths + self.edge**2 / (4 * spikes.strengths)
        below: np.ndarray = (self.matrix - (spikes.directions * seen) @ spikes.directions.T) / self.edge
        np.fill_diagonal(below, 0)
        return below


@dataclass(frozen=True, eq=False)
class NoisyGram:
    """A noisy Gram matrix and public knowledge about its items; whatever settings share is computed once.

    Attributes:
        gram: G, symmetric, over the head in descending order of popularity.
        popularity: positive shares of the items, for one trend that content must not explain.
        clients: n, vectors in the sum.
        deviation: standard deviation of the noise on packed numbers: on the diagonal; off it sqrt(2) times less.
        content: kernels over the items; None where nothing is known of them.
        diagonal: whether the sum has a diagonal.
        max_pairs: number of eigenpairs that are computed.
        spread: items that the length of a history is spread over; None for those of the matrix.
    """

    gram: Float64[np.ndarray, "side side"]
    popularity: Float64[np.ndarray, " side"]
    clients: float
    deviation: float
    content: Content | None = None
    diagonal: bool = True
    max_pairs: int = 64
    spread: int | None = None

    @property
    def noise(self) -> float:
        """Standard deviation of the noise off the diagonal."""
        return self.deviation / math.sqrt(2)

    def weights(self, settings: EstimatorSettings) -> Float64[np.ndarray, "side side"]:
        """W: row j says what each entry of a centred history adds to item j; zeros beyond the items kept."""
        side = len(self.gram)
        kept = math.ceil(settings.kept * side)
        if kept < side:
            weights = np.zeros_like(self.gram)
            weights[:kept, :kept] = self.first(kept)._weights(settings)
            return weights
        return self._weights(settings)

    def first(self, kept: int) -> "NoisyGram":
        """The evidence on the most popular of the head alone."""
        if kept not in self._parts:
            content = None if self.content is None else self.content.first(kept)
            gram, popularity = self.gram[:kept, :kept], self.popularity[:kept]
            # The white noise stays 1 / side of the whole head: histories have length 1 over all of it.
            self._parts[kept] = replace(self, gram=gram, popularity=popularity, content=content, spread=self._spread)
        return self._parts[kept]

    def reaching(self, settings: EstimatorSettings, across: Content) -> Float64[np.ndarray, "j side"]:
        """Weights of items outside the head, of which only content is known; zeros where the settings use no content.

        With C their covariance with the head, which content explains and carries on from the head's directions, they
        are C (Sigma + I / B)^-1.

        Args:
            settings: settings of the head's weights.
            across: kernels between the items outside and the head.
        """
        side = len(self.gram)
        kept = math.ceil(settings.kept * side)
        weights = np.zeros((len(across.kernels[0]), side))
        if self.content is not None and settings.content:
            inside = self if kept == side else self.first(kept)
            weights[:, :kept] = inside._reaching(settings, across.of_first(kept))
        return weights

    def _reaching(self, settings: EstimatorSettings, across: Content) -> Float64[np.ndarray, "j side"]:
        prior, shares = self._known.prior.mixed(settings.smoothing), self._strengths(settings)
        spikes = self._beyond_content.spikes.strongest(settings.rank)
        outside = spikes.carried(settings.smoothing * across.mean, prior) * shares
        # C [j, side]: the head's directions carried on to items outside, then what content explains directly.
        covariance = outside @ spikes.smoothed(prior).T
        for kernel, coefficient in zip(across.kernels, self._coefficients, strict=True):
            covariance += coefficient * kernel
        # C (Sigma + c I)^-1, transposed twice because Sigma is symmetric: a solve, and no inverse is formed.
        return solve_positive(_lifted(self._covariance(settings), self._white), covariance.T).T

    def _weights(self, settings: EstimatorSettings) -> Float64[np.ndarray, "side side"]:
        white = self._white
        if settings.ridge is not None:
            # Eigenvalues of the noise reach down to its edge, so above it the sum is positive definite.
            return _predicting_each(
                self.gram, settings.ridge * white * self.clients + edge_of(self.noise, len(self.gram))
            )
        weights = self._posterior(settings)
        if settings.threshold is not None:
            # G - n Sigma: what the covariance leaves unexplained of the sum.
            left = self.gram - self.clients * self._covariance(settings)
            weights += self._pairs(left, settings.threshold, white)
        if settings.below:
            weights += settings.below * self._seen(settings).below
        # Nothing was released about an item by itself, so its own weight would be what Sigma happens to say.
        if not self.diagonal:
            np.fill_diagonal(weights, 0)
        return weights

    def _posterior(self, settings: EstimatorSettings) -> Float64[np.ndarray, "side side"]:
        """Sigma (Sigma + c I)^-1, which is I - c (Sigma + c I)^-1."""
        white, roots = self._white, self._roots(settings)
        # With A the inverse of K + c I and Sigma = K + F F^T, it is I - c A + c A F (I + F^T A F)^-1 F^T A: settings
        # share A, and of each there are only F's few columns to solve for.
        described = self._described(settings)
        solved = self._content_inverse @ roots if described else roots / white
        inner = np.eye(roots.shape[1]) + roots.T @ solved
        posterior: np.ndarray = white * (solved @ solve_positive(inner, solved.T))
        return posterior + self._content_alone if described else posterior

    @cached_property
    def _content_inverse(self) -> Float64[np.ndarray, "side side"]:
        """(K + c I)^-1."""
        return inverse_positive(self._explained, self._white)

    @cached_property
    def _content_alone(self) -> Float64[np.ndarray, "side side"]:
        """The posterior where nothing stands out of the noise."""
        return _lifted(-self._white * self._content_inverse, 1)

    def _covariance(self, settings: EstimatorSettings) -> Float64[np.ndarray, "side side"]:
        """Sigma: what content explains, and what stands out of the noise besides."""
        roots = self._roots(settings)
        covariance: np.ndarray = roots @ roots.T
        return covariance + self._explained if self._described(settings) else covariance

    def _roots(self, settings: EstimatorSettings) -> Float64[np.ndarray, "side d"]:
        """F: directions that stand out of the noise, as long as the roots of their strengths."""
        smooth = settings.smoothing and self._described(settings)
        spikes = self._seen(settings).spikes.strongest(settings.rank)
        turned = spikes.smoothed(self._known.prior.mixed(settings.smoothing) if smooth else None)
        roots: np.ndarray = turned * np.sqrt(self._strengths(settings))
        return roots

    def _strengths(self, settings: EstimatorSettings) -> Float64[np.ndarray, " d"]:
        """Eigenvalues of the spikes above the mean of all eigenvalues, per client."""
        seen = self._seen(settings)
        # trace / side is the mean eigenvalue: variance in all directions, for which the posterior's white noise stands.
        bulk = max(float(np.trace(seen.matrix)), 0.0) / len(seen.matrix)
        strengths: np.ndarray = np.maximum(seen.spikes.strongest(settings.rank).strengths - bulk, 0) / self.clients
        return strengths

    def _described(self, settings: EstimatorSettings) -> bool:
        return settings.content and self.content is not None

    def _seen(self, settings: EstimatorSettings) -> "_Rest":
        return self._beyond_content if self._described(settings) else self._whole

    @property
    def _spread(self) -> int:
        return len(self.gram) if self.spread is None else self.spread

    @property
    def _white(self) -> float:
        """c, the white noise of the total variance of a unit vector."""
        return 1 / self._spread

    @cached_property
    def _parts(self) -> "dict[int, NoisyGram]":
        return {}

    @cached_property
    def _whole(self) -> "_Rest":
        return self._rest(self.gram.copy())

    @cached_property
    def _beyond_content(self) -> "_Rest":
        return self._rest(self.gram - self.clients * self._explained)

    def _rest(self, matrix: Float64[np.ndarray, "side side"]) -> "_Rest":
        # n K has a diagonal, and what was not released must not look like a signal against it.
        if not self.diagonal:
            np.fill_diagonal(matrix, 0)
        spikes = Spikes.from_matrix(matrix, self.noise, min(self.max_pairs, len(matrix)))
        return _Rest(matrix, spikes, edge_of(self.noise, len(matrix)))

    @cached_property
    def _known(self) -> Content:
        if self.content is None:
            raise ValueError("the evidence has no content: give it some, or leave it out of the recipe")
        return self.content

    @cached_property
    def _explained(self) -> Float64[np.ndarray, "side side"]:
        """K, what the kernels explain."""
        explained = np.zeros_like(self.gram)
        for kernel, coefficient in zip(self._known.kernels, self._coefficients, strict=True):
            explained += coefficient * kernel
        return explained

    @cached_property
    def _coefficients(self) -> list[float]:
        """Least squares of G / n off its diagonal on the kernels, a constant and popularity; kernels from 0 up."""
        kernels = self._known.kernels
        trend = np.log(self.popularity)
        # tiny: items of equal popularity have no trend, and 0 / 0 is kept out.
        trend = (trend - trend.mean()) / max(float(trend.std()), np.finfo(np.float64).tiny)
        # Normal equations of size [basis, basis]: no design matrix of side^2 rows is formed. The constant and the trend
        # take up what all pairs have in common; only coefficients of kernels are kept.
        basis = [*kernels, np.ones_like(self.gram), np.outer(trend, trend)]
        products = np.zeros((len(basis), len(basis)))
        for one in range(len(basis)):
            for other in range(one + 1):
                products[one, other] = products[other, one] = _off_diagonal(basis[one], basis[other])
        seen = np.array([_off_diagonal(one, self.gram) for one in basis]) / self.clients
        found = least_squares(products, seen)
        return [max(float(coefficient), 0.0) for coefficient in found[: len(kernels)]]

    def _pairs(
        self, left: Float64[np.ndarray, "side side"], threshold: float, white: float
    ) -> Float64[np.ndarray, "side side"]:
        """Single pairs that stand out: r / (r + n / B) for what exceeds the threshold by r."""
        # The largest of m normal noises is near sqrt(2 log m), and there are m = side^2 / 2 pairs.
        least = threshold * self.noise * math.sqrt(2 * math.log(max(len(left) ** 2 / 2, 1)))
        excess: np.ndarray = np.maximum(left - least, 0)
        np.fill_diagonal(excess, 0)
        pairs: np.ndarray = excess / (excess + self.clients * white)
        return pairs


def _off_diagonal(one: Float64[np.ndarray, "side side"], other: Float64[np.ndarray, "side side"]) -> float:
    """Inner product over everything but the diagonal."""
    # The diagonal holds the variance of single items: no evidence about pairs, and perhaps not released.
    return float(np.vdot(one, other) - one.diagonal() @ other.diagonal())


def _lifted(matrix: Float64[np.ndarray, "side side"], by: float) -> Float64[np.ndarray, "side side"]:
    """A matrix with more on its diagonal."""
    lifted = matrix.copy()
    lifted.flat[:: len(matrix) + 1] += by
    return lifted


def _predicting_each(gram: Float64[np.ndarray, "side side"], ridge: float) -> Float64[np.ndarray, "side side"]:
    """Weights that predict every entry from the others best, by ridge regression (EASE: Steck, WWW 2019)."""
    weights = inverse_positive(gram, ridge)
    # With P the precision, the best predictor of entry j has the weights -P_ji / P_jj.
    weights /= -weights.diagonal()[:, None]
    np.fill_diagonal(weights, 0)
    return weights
