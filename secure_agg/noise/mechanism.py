"""The way of one client's vector into a noisy sum, and of the sum back.

    clip (the caller's)  ->  divide by the grid  ->  rotate, if asked  ->  round conditionally  ->  add a share of noise

The result is signed integers, ready for `Ring.lift`; the sum of the residues, centred, goes back through rotation and
grid. Head-room of a ring: `require_headroom(ring, clients=n, bound=m.coordinate_bound(), tail=m.noise_tail(n))`.

Sources: Kairouz, Liu and Steinke (2102.06387), client and server procedure; Agarwal, Kairouz and Liu (2110.04995).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError
from secure_agg.noise.checks import positive, whole
from secure_agg.noise.event import NoiseEvent
from secure_agg.noise.laws import Law
from secure_agg.noise.rotation import Rotation
from secure_agg.noise.rounding import BETA, NORM_SLACK, conditional_round, l1_bound, rounded_norm_bound
from secure_agg.noise.shares import FAILURE, DistributedNoise
from secure_agg.noise.subkeys import subkey

_CLIP_SLACK = 1e-6
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class DistributedMechanism:
    """Clipped vectors in, a differentially private sum out.

    Attributes:
        dimension: length of a vector.
        clip: L2 norm, in the vectors' units, that every vector is clipped to beforehand.
        grid: width of a step in the vectors' units.
        noise: the shares of noise, in steps.
        beta: of the conditional rounding.
        rotation_seed: 32 public bytes for a random rotation, `None` for none.

    Raises:
        ConfigurationError: a dimension, clip, grid, beta or seed that cannot work.
    """

    dimension: int
    clip: float
    grid: float
    noise: DistributedNoise
    beta: float = BETA
    rotation_seed: bytes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", whole("dimension", self.dimension, least=1))
        positive("clip", self.clip)
        positive("grid", self.grid)
        rounded_norm_bound(self.radius, self.coordinates, self.beta)

    @classmethod
    def of_multiplier(
        cls,
        noise_multiplier: float,
        *,
        min_honest: int,
        dimension: int,
        clip: float,
        grid: float,
        law: Law = "skellam",
        beta: float = BETA,
        rotation_seed: bytes | None = None,
    ) -> "DistributedMechanism":
        """The mechanism with noise of standard deviation noise_multiplier * clip on the sum, in the vectors' units."""
        deviation = positive("noise_multiplier", noise_multiplier) * positive("clip", clip) / positive("grid", grid)
        noise = DistributedNoise(law, float(deviation * deviation), min_honest)
        return cls(dimension, clip, grid, noise, beta, rotation_seed)

    @property
    def rotation(self) -> Rotation | None:
        """The rotation, if there is one."""
        return None if self.rotation_seed is None else Rotation(self.rotation_seed, self.dimension)

    @property
    def coordinates(self) -> int:
        """Length of an encoded vector: the dimension, padded to a power of two under rotation."""
        return self.dimension if self.rotation is None else self.rotation.padded

    @property
    def radius(self) -> float:
        """The clip in steps."""
        return self.clip / self.grid

    def encode(
        self, vectors: NDArray[np.floating], key: bytes | None = None, *, exact: bool = False
    ) -> NDArray[np.int64]:
        """Round and noise a batch, each row as a client of its own.

        A norm above the clip by a millionth or less, as float32 clipping leaves it, is scaled back onto the clip.

        Args:
            vectors: [clients, dimension], each of L2 norm at most `clip`.
            key: `None` draws from the operating system; 32 bytes make it a simulation.
            exact: sample the noise exactly.

        Returns:
            [clients, coordinates], signed steps.

        Raises:
            ConfigurationError: another shape, or a norm above the clip or not finite.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ConfigurationError(f"got an array of shape {vectors.shape}; give [clients, {self.dimension}]")
        encoded = np.empty((len(vectors), self.coordinates), np.int64)
        rows = max(1, _BLOCK // self.coordinates)
        for start in range(0, len(vectors), rows):
            block = slice(start, start + rows)
            for_rounding, for_noise = (key and subkey(key, purpose, start) for purpose in ("encoding", "noise"))
            steps = self._steps(vectors[block])
            noise = self.noise.sample(steps.shape, for_noise, exact=exact)
            np.add(conditional_round(steps, self.radius, self.beta, for_rounding), noise, out=encoded[block])
        return encoded

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """The noisy sum in the vectors' units: [..., coordinates] signed steps to [..., dimension].

        Raises:
            ConfigurationError: the last axis is not `coordinates` long.
        """
        if total.shape[-1] != self.coordinates:
            raise ConfigurationError(f"got sums of length {total.shape[-1]}; this mechanism's have {self.coordinates}")
        steps = total.astype(np.float64)
        rotation = self.rotation
        return (steps if rotation is None else rotation.inverse(steps)) * self.grid

    def event(self) -> NoiseEvent:
        """The record of one sum, for a ledger."""
        l2 = rounded_norm_bound(self.radius, self.coordinates, self.beta)
        return NoiseEvent(
            law=self.noise.law,
            total_variance=self.noise.total_variance,
            min_honest=self.noise.min_honest,
            coordinates=self.coordinates,
            l2=l2,
            l1=l1_bound(l2, self.coordinates),
            beta=self.beta,
        )

    def coordinate_bound(self, failure: float = FAILURE) -> int:
        """A bound B in steps: rounded vectors of n clients add up to at most n B in magnitude, in every coordinate.

        Without rotation no coordinate exceeds the norm, for certain. With rotation each coordinate of the sum is a sum
        of `dimension` numbers with random signs, of L2 norm at most n * radius / sqrt(coordinates); by Hoeffding the
        bound fails in any coordinate with chance `failure` over the seed, provided the vectors were chosen without
        knowing it. Rounding adds less than one step per client.

        Args:
            failure: chance in (0, 1).

        Raises:
            ConfigurationError: failure out of its range.
        """
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"failure is {failure!r}; give a chance between 0 and 1, such as 2^-40")
        longest = rounded_norm_bound(self.radius, self.coordinates, self.beta)
        reached = self.radius * (1.0 + NORM_SLACK)
        certain = min(math.ceil(reached), math.floor(longest))
        if self.rotation_seed is None:
            return certain
        spread = math.sqrt(2.0 * math.log(2.0 * self.coordinates / failure) / self.coordinates)
        return min(certain, math.ceil(reached * spread) + 1)

    def noise_tail(self, clients: int, failure: float = FAILURE) -> int:
        """A bound, in steps, on the noise of so many clients in every coordinate of the sum (`DistributedNoise`)."""
        return self.noise.tail(clients, self.coordinates, failure)

    def _steps(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Checked, in steps, rotated."""
        norms = np.sqrt(np.einsum("cd,cd->c", vectors, vectors, dtype=np.float64))
        if not (norms <= self.clip * (1.0 + _CLIP_SLACK)).all():
            raise ConfigurationError(
                f"a vector of norm {norms.max():.9g} was given and the clip is {self.clip:.9g}; clip every vector first"
            )
        scale = self.radius / np.maximum(norms, self.clip)
        steps = np.multiply(vectors, scale[:, None], dtype=np.float64)
        return steps if self.rotation is None else self.rotation.forward(steps)
