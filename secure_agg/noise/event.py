"""The privacy event of one noisy sum, as a record for a ledger.

Unit: one client. Neighbouring relation: zero-out, that is one sum in which the client's vector counts and one in which
it is replaced by zero. Its noise share is in both sums, and may be among the `min_honest`: a colluding client has
nothing left to protect. Replacing one vector by another is two such steps.

View: the revealed sum (modular reduction, decoding and averaging are post-processing) together with the shares, vectors
and keys of all colluding parties. The set of participants is not hidden, so sampling does not amplify privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secure_agg.checks import check_integer
from secure_agg.errors import ConfigurationError
from secure_agg.noise.gaussian_limit import distance_from_gaussian, epsilon_near_gaussian
from secure_agg.noise.laws import Law, check_law
from secure_agg.noise.rdp import ORDERS, discrete_gaussian_sum_rdp, epsilon_from_rdp, skellam_rdp

_DELTA_SHARES = (1e-9, 1e-6, 1e-3, 0.1, 0.5)
_MAX_EPSILON = 700.0


@dataclass(frozen=True, slots=True)
class NoiseEvent:
    """One release of a sum with distributed noise.

    Attributes:
        law: "skellam" or "discrete_gaussian".
        total_variance: variance parameter of the noise on the sum of `min_honest` shares, in steps^2; 0 for no noise.
        min_honest: minimum number of honest shares in the sum; 0 guarantees nothing.
        coordinates: d, after padding.
        l2: L2 norm, in steps, that no client's rounded vector exceeds.
        l1: L1 norm that none exceeds.
        beta: parameter of the conditional rounding that `l2` follows from.
        distance: total variation distance per draw between the sampler and the law; 0 for this package's, which are
            exact given uniform bits.

    Raises:
        ConfigurationError: an unknown law, or a number out of its range.
    """

    law: Law
    total_variance: float
    min_honest: int
    coordinates: int
    l2: float
    l1: float
    beta: float
    distance: float = 0.0

    def __post_init__(self) -> None:
        check_law(self.law)
        check_integer("coordinates", self.coordinates, minimum=1)
        check_integer("min_honest", self.min_honest, minimum=0)
        for name in ("total_variance", "l2", "l1", "beta", "distance"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise ConfigurationError(f"{name} is {value!r}; give a finite number of at least 0")

    @property
    def client_variance(self) -> float:
        """Variance parameter of one client's share, in steps^2; 0 where no honest client is certain."""
        return self.total_variance / self.min_honest if self.min_honest else 0.0

    def rdp(self, orders: ArrayLike = ORDERS) -> NDArray[np.float64]:
        """Renyi divergence of the sum under the law itself, at each order.

        `distance` is not in it: a distance in total variation bounds no Renyi divergence, and enters in `epsilon`.

        Args:
            orders: [orders], each above 1.

        Returns:
            [orders]; infinite without noise or without an honest client.

        Raises:
            ConfigurationError: an order that is not above 1.
        """
        if self.client_variance == 0.0:
            return np.full_like(np.asarray(orders, np.float64), np.inf)
        if self.law == "skellam":
            return skellam_rdp(orders, self.total_variance, self.l2, self.l1)
        return discrete_gaussian_sum_rdp(
            orders, self.total_variance, self.min_honest, self.coordinates, self.l2, self.l1
        )

    def near_gaussian(self, releases: int = 1) -> tuple[float, float]:
        """The Gaussian mechanism that so many releases are near, and how near (see `gaussian_limit`).

        Returns:
            Its mu, and how far they are from it; 1 or more says nothing.
        """
        if self.law != "skellam" or self.client_variance == 0.0 or self.distance > 0.0:
            return math.inf, 1.0
        mu = math.sqrt(releases / self.total_variance) * self.l2
        return mu, math.sqrt(releases) * distance_from_gaussian(self.total_variance, self.coordinates)

    def epsilon(self, delta: float, compositions: int = 1) -> float:
        """Epsilon at delta of `compositions` such releases.

        Args:
            delta: in (0, 1).
            compositions: number of releases, 1 or more; they may depend on one another.

        Returns:
            Epsilon, infinite where nothing is guaranteed or where the distance would use up more than half of delta.

        Raises:
            ConfigurationError: delta or compositions out of range.
        """
        if not 0.0 < delta < 1.0:
            raise ConfigurationError(f"delta is {delta!r}; give a number between 0 and 1")
        releases = check_integer("compositions", compositions, minimum=1)
        rdp = releases * self.rdp()
        if self.distance == 0.0:
            by_divergence = epsilon_from_rdp(ORDERS, rdp, delta)
            return min(by_divergence, epsilon_near_gaussian(*self.near_gaussian(releases), delta))
        # With t = releases * min_honest * coordinates * distance, the noise as sampled is within t of the law in total
        # variation under both neighbouring inputs, so a mechanism that is (epsilon, delta') under the law is
        # (epsilon, delta' + (1 + e^epsilon) t) as sampled. Try several splits of delta between the two terms.
        total_distance = releases * self.min_honest * self.coordinates * self.distance
        for share in _DELTA_SHARES:
            epsilon = epsilon_from_rdp(ORDERS, rdp, delta * (1.0 - share))
            if epsilon < _MAX_EPSILON and (1.0 + math.exp(epsilon)) * total_distance <= share * delta:
                return epsilon
        return math.inf
