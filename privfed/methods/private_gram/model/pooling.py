"""One estimate from a noisy sum over everybody and the open contributions of some others, by inverse variance.

What n people contributed, vectors of norm 1 or less, is known as a sum with noise, G; what n_d donors contributed is
known as it is, D. Both means estimate the same one, and are pooled to

    S = a G / n + (1 - a) D / n_d,    a = c (1 / n_d + b^2) / (c (1 / n_d + b^2) + c / n + N / n^2),

where 1 / n_d and 1 / n bound the expected squared errors of sampling, N is the expected squared length of the noise,
and c allows for errors of sampling lying in the few directions that matter, while noise lies in all. Without noise
S is the mean over all n + n_d people. All of it is public but b^2.

b^2 is by how much donors differ from everybody: the squared distance of both means beyond what noise and sampling
explain, which follows from the released sum and open histories, so that looking costs no privacy. It is 0 unless it
stands out, so that donors like everybody else keep the weight of the rule. Donors who stand out may still be of use:
where thinned copies of a release can judge (`choosing`), `judged` lets them.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float64

from privfed.methods.private_gram.model.choosing import ThinnedCopies, predicted_risk
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.updates import packed_size

STANDS_OUT = 3.0
"""Standard deviations of chance from which donors count as different."""
_MAX_COMPARED = 2048
"""Donors whose products with each other are formed to learn how contributions spread."""


@dataclass(frozen=True, slots=True)
class ContributionSpread:
    """How the contributions of donors spread around their mean.

    Attributes:
        variance: expected squared distance of one contribution from the mean.
        concentration: sum of the squared eigenvalues of their covariance; how surely squared errors are as expected.
    """

    variance: float
    concentration: float

    @classmethod
    def from_products(cls, products: Float64[np.ndarray, "donors donors"]) -> "ContributionSpread":
        """The spread of vectors whose inner products are given."""
        count = len(products)
        if count < 2:
            return cls(1.0, 1.0)
        means = products.mean(0)
        around = products - means - means[:, None] + means.mean()
        variance = float(np.trace(around)) / (count - 1)
        # Products of different donors alone: those of one with itself say how long it is.
        apart = float(np.square(around).sum() - np.square(around.diagonal()).sum())
        return cls(variance, apart / (count * (count - 1)))


@dataclass(frozen=True, slots=True, eq=False)
class OpenMean:
    """What donors contributed.

    Attributes:
        mean: D / n_d.
        people: n_d.
        spread: of single contributions.
    """

    mean: Float64[np.ndarray, " *shape"]
    people: int
    spread: ContributionSpread

    @classmethod
    def from_vectors(cls, vectors: sp.csr_array) -> "OpenMean":
        """The mean of sparse rows."""
        some = vectors[:_MAX_COMPARED]
        return cls(vectors.mean(0), vectors.shape[0], ContributionSpread.from_products((some @ some.T).toarray()))

    @classmethod
    def from_outer_products(
        cls, vectors: Float64[np.ndarray, "donors side"], factors: Float64[np.ndarray, " donors"], *, diagonal: bool
    ) -> "OpenMean":
        """The mean of `factors` times the outer products of `vectors`, or of what these hold off the diagonal."""
        mean = (vectors * factors[:, None]).T @ vectors / len(vectors)
        some, weights = vectors[:_MAX_COMPARED], factors[:_MAX_COMPARED]
        # <u u^T, v v^T> = (u . v)^2, of which sum_i u_i^2 v_i^2 lies on the diagonals.
        products = np.square(some @ some.T)
        if not diagonal:
            np.fill_diagonal(mean, 0)
            products -= np.square(some) @ np.square(some).T
        return cls(mean, len(vectors), ContributionSpread.from_products(products * np.outer(weights, weights)))

    def scaled(self, factor: float) -> "OpenMean":
        """The same of contributions that are `factor` times as long."""
        spread = ContributionSpread(self.spread.variance * factor**2, self.spread.concentration * factor**4)
        return OpenMean(self.mean * factor, self.people, spread)


@dataclass(frozen=True, slots=True, eq=False)
class NoisySum:
    """A released sum.

    Attributes:
        total: G.
        clients: n.
        variance: of the noise on one released number.
        size: how many numbers were released; in the geometry of `total`, noise has the squared length size x variance.
    """

    total: Float64[np.ndarray, " *shape"]
    clients: float
    variance: float
    size: int

    def difference(self, donated: OpenMean) -> tuple[float, float]:
        """By how much donors differ: b^2 as it is seen, below 0 by chance, and in its standard deviations."""
        noise, clients = self.variance / self.clients**2, max(self.clients, 1.0)
        spread, sampled = donated.spread, 1 / donated.people + 1 / clients
        apart = float(np.square(donated.mean - self.total / clients).sum())
        excess = apart - spread.variance * sampled - noise * self.size
        # Of a Gaussian vector of covariance C the squared length has the variance 2 tr C^2.
        deviation = math.sqrt(
            2 * spread.concentration * sampled**2 + 2 * self.size * noise**2 + 4 * noise * spread.variance * sampled
        )
        return excess, excess / deviation if deviation else 0.0

    def pooled(self, donated: OpenMean, caution: float, *, check: bool, weight: float | None = None) -> "Pooled":
        """S, in units of a sum.

        Args:
            donated: what donors contributed.
            caution: c.
            check: whether donors who differ get less weight.
            weight: 1 - a, where it is not to follow the rule.
        """
        excess, seen = self.difference(donated)
        bias = max(excess, 0.0) if check and seen > STANDS_OUT else 0.0
        error = caution * (1 / donated.people + bias)
        share = error / (error + caution / self.clients + self.variance * self.size / self.clients**2)
        share = share if weight is None else 1 - weight
        total = share * self.total + (1 - share) * self.clients * donated.mean
        # White noise of the same squared length as the donors' error of sampling.
        sampling = self.clients**2 / (donated.people * self.size)
        variance = share**2 * self.variance + (1 - share) ** 2 * sampling
        return Pooled(NoisySum(total, self.clients, variance, self.size), 1 - share, seen)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A pooled sum.

    Attributes:
        sum: S times n, with the variance of noise and sampling together.
        weight: of the donors, 1 - a.
        seen: by how much donors differ, in standard deviations of chance.
    """

    sum: NoisySum
    weight: float
    seen: float


def pooled_pairs(
    evidence: NoisyGram, donated: OpenMean, caution: float, *, check: bool, weight: float | None = None
) -> tuple[NoisyGram, Pooled]:
    """Evidence with what donors contribute to it, and how much that is; arguments as those of `NoisySum.pooled`."""
    size = packed_size(len(evidence.gram), diagonal=evidence.diagonal)
    released = NoisySum(evidence.gram, evidence.clients, evidence.deviation**2, size)
    found = released.pooled(donated, caution, check=check, weight=weight)
    return replace(evidence, gram=found.sum.total, deviation=math.sqrt(found.sum.variance)), found


def judged(
    copies: ThinnedCopies, donated: OpenMean, settings: EstimatorSettings, caution: float, weights: tuple[float, ...]
) -> float:
    """The weight of donors with which one copy predicts the other best, the first of equals.

    Args:
        copies: of what was released about everybody else.
        donated: what donors contributed.
        settings: of the weights between items.
        caution: c.
        weights: to compare.
    """

    def risk(weight: float) -> float:
        learning, _ = pooled_pairs(copies.learning, donated, caution, check=False, weight=weight)
        return predicted_risk(learning.weights(settings), copies.judge)

    return min(weights, key=risk)
