"""mu of Gaussian differential privacy and rho of zero-concentrated, where all noise is Gaussian and nothing is sampled.

A release with a standard deviation of z times the distance of neighbours is (1/z)-GDP (Dong, Roth and Su 2022) and
1/(2 z^2)-zCDP (Bun and Steinke 2016), and both are exact. Squares of mu add up, and so does rho, which is mu^2 / 2.
Sampled Gaussian, Laplace and integer noise have curves of another shape: no mu describes them, so there is none here.
"""

import math
from dataclasses import dataclass
from typing import Self

from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Gaussian, SharedAccount


@dataclass(frozen=True, slots=True)
class GaussianDp:
    """A composition of Gaussian releases as one number.

    Attributes:
        mu: distance of the two unit Gaussians that a run's worst-off user makes the difference between.
    """

    mu: float

    @property
    def rho(self) -> float:
        """Of zero-concentrated differential privacy."""
        return self.mu**2 / 2

    @classmethod
    def from_composition(cls, composition: Composition) -> Self | None:
        """What a composition is; None where it is not of Gaussian releases alone."""
        squares = [squared_mu(releases) for releases in composition.releases]
        if composition.reasons or any(square is None for square in squares):
            return None
        return cls(math.sqrt(math.fsum(square for square in squares if square is not None)))


def squared_mu(releases: Releases) -> float | None:
    """mu^2 of equal releases together; None where their noise is not Gaussian, or sampling amplifies it."""
    event = releases.event.whole if isinstance(releases.event, SharedAccount) else releases.event
    if not isinstance(event, Gaussian) or releases.rate is not None:
        return None
    return releases.count / event.noise_multiplier**2
