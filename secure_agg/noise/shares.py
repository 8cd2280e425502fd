"""Distributed noise: every client adds a share, sized for the honest clients that certainly remain.

The variance required on the sum is divided by `min_honest`, the smallest number of honest clients whose shares a
released sum can hold: the threshold of survivors minus those who may collude, never the nominal number of clients. A
client that colludes with the server subtracts its own share, and one that drops out adds none; the guarantee counts on
neither. When more honest clients remain, the sum carries more noise than required (`variance_ratio`) and the guarantee
still holds, because additional independent noise is post-processing.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (2102.06387); Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (2110.04995).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer, check_positive, check_probability
from secure_agg.errors import ConfigurationError
from secure_agg.noise.exact import sample_discrete_gaussian, sample_skellam
from secure_agg.noise.laws import Law, check_law
from secure_agg.noise.random_source import RandomSource
from secure_agg.noise.tables import inverse_cdf_table
from secure_agg.noise.tail_bounds import tail_bound

DEFAULT_FAILURE_PROBABILITY = 2.0**-40
"""Default probability that a bound on a sum does not hold."""


@dataclass(frozen=True, slots=True)
class DistributedNoise:
    """Integer noise on a sum, added in shares.

    Attributes:
        law: "skellam" or "discrete_gaussian".
        total_variance: variance parameter required on the sum, in steps^2 of the grid.
        min_honest: smallest number of honest clients whose shares a released sum can hold.

    Raises:
        ConfigurationError: an unknown law, a variance that is not positive and finite, or fewer than one honest client.
    """

    law: Law
    total_variance: float
    min_honest: int

    def __post_init__(self) -> None:
        check_law(self.law)
        check_positive("total_variance", self.total_variance)
        object.__setattr__(self, "min_honest", check_integer("min_honest", self.min_honest, minimum=1))

    @property
    def client_variance(self) -> Fraction:
        """Variance parameter of one client's share, exactly: total_variance / min_honest."""
        return Fraction(self.total_variance) / self.min_honest

    def variance_ratio(self, survivors: int) -> float:
        """Variance on the sum of `survivors` honest shares over the required one: 1 at `min_honest`, never below.

        Raises:
            ConfigurationError: fewer survivors than min_honest, for which no guarantee was sized.
        """
        if survivors < self.min_honest:
            raise ConfigurationError(
                f"{survivors} honest clients survive and the noise is sized for {self.min_honest} or more; "
                "do not open this sum, or size the noise for fewer"
            )
        return survivors / self.min_honest

    def sample(
        self, shape: int | tuple[int, ...], key: bytes | None = None, *, exact: bool = False
    ) -> NDArray[np.int64]:
        """Shares of noise: independent draws of the law at `client_variance`.

        Args:
            shape: shape of one share, or of the shares of several clients at once.
            key: `None` draws from the operating system; 32 bytes make the draws reproducible, for simulations.
            exact: sample by integer arithmetic and a fresh random number for every Bernoulli variable, instead of from
                tables and one keystream; thousands of times slower, and without an upper limit on the variance.

        Returns:
            Signed integers of that shape, in steps of the grid.

        Raises:
            ConfigurationError: one share's standard deviation is above 2^14 (tables only), or a key of another length.
        """
        shares = np.zeros(shape, np.int64)
        self.add_to(shares, key, exact=exact)
        return shares

    def add_to(self, values: NDArray[np.int64], key: bytes | None = None, *, exact: bool = False) -> None:
        """Add shares of noise to values, the same that `sample` draws.

        Args:
            values: contiguous; written.
            key: as in `sample`.
            exact: as in `sample`.

        Raises:
            ConfigurationError: as in `sample`, or values that are not contiguous.
        """
        if not values.flags.c_contiguous:
            raise ConfigurationError("got values that are not contiguous in memory; give a contiguous copy")
        flat, variance = values.reshape(-1), self.client_variance
        if not exact:
            inverse_cdf_table(self.law, variance).add_to(flat, key)
            return
        sampler, source = sample_skellam if self.law == "skellam" else sample_discrete_gaussian, RandomSource(key)
        flat += np.fromiter((sampler(variance, source) for _ in range(flat.size)), np.int64, flat.size)

    def tail_bound(
        self, clients: int, coordinates: int, failure_probability: float = DEFAULT_FAILURE_PROBABILITY
    ) -> int:
        """A bound on |sum of the clients' noise| that holds in all coordinates at once.

        Args:
            clients: maximum number of shares in the sum, 1 or more.
            coordinates: number of coordinates, 1 or more.
            failure_probability: probability that the bound does not hold, in (0, 1).

        Returns:
            The bound in steps.

        Raises:
            ConfigurationError: an argument out of its range.
        """
        check_integer("clients", clients, minimum=1)
        check_integer("coordinates", coordinates, minimum=1)
        check_probability("failure_probability", failure_probability)
        # A union bound over the coordinates; `tail_bound` already covers both signs.
        log_probability = math.log(failure_probability) - math.log(coordinates)
        return tail_bound(self.law, clients * float(self.client_variance), log_probability)
