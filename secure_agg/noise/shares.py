"""Noise that no one adds alone: the share of each client, sized for the honest clients that are sure to remain.

The noise wanted on the sum is divided by `min_honest`, the smallest number of honest clients whose shares a released
sum can hold: the threshold of survivors minus those who may collude, never the nominal number of clients. Whoever
colludes with the server subtracts its own share, and whoever drops out adds none; the guarantee counts on neither. When
more honest clients remain, the sum carries more noise than was asked for (`excess`) and the guarantee still holds,
because independent noise on top is post-processing.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (2102.06387); Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (2110.04995).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError
from secure_agg.noise.checks import positive, whole
from secure_agg.noise.coins import Coins
from secure_agg.noise.exact import exact_discrete_gaussian, exact_skellam
from secure_agg.noise.laws import Law, accept_law
from secure_agg.noise.tables import inverse_table
from secure_agg.noise.tails import reach

FAILURE = 2.0**-40
"""Default chance that a bound on a sum does not hold."""


@dataclass(frozen=True, slots=True)
class DistributedNoise:
    """Integer noise for a sum, in shares.

    Attributes:
        law: "skellam" or "discrete_gaussian".
        total_variance: variance parameter wanted on the sum, in steps^2 of the grid.
        min_honest: smallest number of honest clients whose shares a released sum can hold.

    Raises:
        ConfigurationError: an unknown law, a variance that is not positive and finite, or fewer than one honest client.
    """

    law: Law
    total_variance: float
    min_honest: int

    def __post_init__(self) -> None:
        accept_law(self.law)
        positive("total_variance", self.total_variance)
        object.__setattr__(self, "min_honest", whole("min_honest", self.min_honest, least=1))

    @property
    def client_variance(self) -> Fraction:
        """Variance parameter of one client's share, exactly: total_variance / min_honest."""
        return Fraction(self.total_variance) / self.min_honest

    def excess(self, survivors: int) -> float:
        """Variance on the sum of `survivors` honest shares over the variance asked for: 1 at min_honest, never below.

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
            shape: of one share, or of the shares of several clients at once.
            key: `None` draws from the operating system; 32 bytes make it a simulation.
            exact: draw by whole-number arithmetic and a fresh random number for every coin, instead of from tables and
                one cipher stream; thousands of times slower, and without an upper limit to the variance.

        Returns:
            Signed integers of that shape, in steps of the grid.

        Raises:
            ConfigurationError: one share's standard deviation is above 2^14 (tables only), or a key of another length.
        """
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(dimensions)
        if not exact:
            return inverse_table(self.law, self.client_variance).draw(count, key).reshape(dimensions)
        draw = exact_skellam if self.law == "skellam" else exact_discrete_gaussian
        coins, variance = Coins(key), self.client_variance
        return np.fromiter((draw(variance, coins) for _ in range(count)), np.int64, count).reshape(dimensions)

    def tail(self, clients: int, coordinates: int, failure: float = FAILURE) -> int:
        """A bound on |sum of the clients' noise| that holds in all coordinates at once.

        Chernoff's bound for the sum, over both signs and all coordinates.

        Args:
            clients: the most whose shares are added, 1 or more.
            coordinates: how many, 1 or more.
            failure: chance that it does not hold, in (0, 1).

        Returns:
            The bound in steps.

        Raises:
            ConfigurationError: an argument out of its range.
        """
        shares = whole("clients", clients, least=1)
        places = whole("coordinates", coordinates, least=1)
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"failure is {failure!r}; give a chance between 0 and 1, such as 2^-40")
        return reach(self.law, shares * float(self.client_variance), math.log(failure) - math.log(places))
