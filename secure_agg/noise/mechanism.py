"""The distributed mechanism: encoding of clipped vectors with a share of noise, and decoding of the noisy sum.

    clip (by the caller)  ->  divide by the grid  ->  rotate (optional)  ->  round conditionally  ->  add a share of
    noise

The result is signed integers, ready for `Ring.from_integers`; the centred sum is mapped back by the inverse rotation
and the grid. A ring is wide enough if it passes
`check_overflow_bound(ring, clients=n, bound=m.coordinate_bound(), noise_bound=m.noise_bound(n))`.

Sources: Kairouz, Liu and Steinke (2102.06387), client and server procedure; Agarwal, Kairouz and Liu (2110.04995).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer, check_positive, check_probability
from secure_agg.errors import ConfigurationError
from secure_agg.noise.event import NoiseEvent
from secure_agg.noise.kernels import squared_norms
from secure_agg.noise.laws import Law
from secure_agg.noise.rotation import Rotation
from secure_agg.noise.rounding import (
    DEFAULT_BETA,
    NORM_SLACK,
    conditional_round,
    joint_rounded_norm_bound,
    l1_bound,
    rounded_norm_bound,
)
from secure_agg.noise.shares import DEFAULT_FAILURE_PROBABILITY, DistributedNoise
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
        noise: shares of noise, in steps.
        beta: parameter of the conditional rounding.
        rotation_seed: 32 public bytes for a random rotation, `None` for none.

    Raises:
        ConfigurationError: a dimension, clip, grid, beta or seed that cannot work.
    """

    dimension: int
    clip: float
    grid: float
    noise: DistributedNoise
    beta: float = DEFAULT_BETA
    rotation_seed: bytes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", check_integer("dimension", self.dimension, minimum=1))
        check_positive("clip", self.clip)
        check_positive("grid", self.grid)
        rounded_norm_bound(self.radius, self.coordinates, self.beta)

    @classmethod
    def from_noise_multiplier(
        cls,
        noise_multiplier: float,
        *,
        min_honest: int,
        dimension: int,
        clip: float,
        grid: float,
        law: Law = "skellam",
        beta: float = DEFAULT_BETA,
        rotation_seed: bytes | None = None,
    ) -> "DistributedMechanism":
        """The mechanism with noise of standard deviation noise_multiplier * clip on the sum, in the vectors' units."""
        z, exact_clip = check_positive("noise_multiplier", noise_multiplier), check_positive("clip", clip)
        deviation = z * exact_clip / check_positive("grid", grid)
        noise = DistributedNoise(law, float(deviation * deviation), min_honest)
        return cls(dimension, clip, grid, noise, beta, rotation_seed)

    @property
    def rotation(self) -> Rotation | None:
        """The rotation, if there is one."""
        return None if self.rotation_seed is None else Rotation(self.rotation_seed, self.dimension)

    @property
    def coordinates(self) -> int:
        """Length of an encoded vector: the dimension, padded to a power of two under rotation."""
        return self.dimension if self.rotation is None else self.rotation.padded_dimension

    @property
    def radius(self) -> float:
        """The clip in steps."""
        return self.clip / self.grid

    def encode(
        self, vectors: NDArray[np.floating], key: bytes | None = None, *, exact: bool = False
    ) -> NDArray[np.int64]:
        """Round a batch and add noise to it, each row as a client of its own.

        A norm above the clip by a millionth or less, as float32 clipping leaves it, is scaled back onto the clip.

        Args:
            vectors: [clients, dimension], each of L2 norm at most `clip`.
            key: `None` draws from the operating system; 32 bytes make the result reproducible, for simulations.
            exact: sample the noise exactly.

        Returns:
            [clients, coordinates], signed steps.

        Raises:
            ConfigurationError: another shape, or a norm above the clip or not finite.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ConfigurationError(f"got an array of shape {vectors.shape}; give [clients, {self.dimension}]")
        # Blocks of whole clients bound the working memory. Each has keys of its own, addressed by its first row.
        rows = max(1, _BLOCK // self.coordinates)
        blocks = [
            self._encode_block(vectors[start : start + rows], start, key, exact=exact)
            for start in range(0, len(vectors) or 1, rows)
        ]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

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
        """The privacy event of one sum, for a ledger."""
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

    def account_event(self, sums: int) -> NoiseEvent:
        """The privacy event of several sums together, to which one client's vectors keep a joint norm of `clip`.

        Every sum has noise of its own, and each vector is rounded within the bound of its own norm. Later vectors may
        depend on sums that were opened before.
        """
        count = check_integer("sums", sums, minimum=1)
        l2 = joint_rounded_norm_bound(self.radius, self.coordinates, count, self.beta)
        return replace(
            self.event(), coordinates=count * self.coordinates, l2=l2, l1=l1_bound(l2, count * self.coordinates)
        )

    def coordinate_bound(self, failure_probability: float = DEFAULT_FAILURE_PROBABILITY) -> int:
        """A bound B in steps: rounded vectors of n clients sum to at most n B in magnitude, in every coordinate.

        It is certain without rotation. With rotation it fails with the given probability over the seed, provided that
        the vectors were chosen without knowledge of it.

        Args:
            failure_probability: probability in (0, 1).

        Raises:
            ConfigurationError: a probability out of its range.
        """
        check_probability("failure_probability", failure_probability)
        max_norm = rounded_norm_bound(self.radius, self.coordinates, self.beta)
        max_radius = self.radius * (1.0 + NORM_SLACK)
        certain = min(math.ceil(max_radius), math.floor(max_norm))  # no coordinate exceeds the norm
        if self.rotation_seed is None:
            return certain
        # Each coordinate of the rotated sum is a sum of `dimension` numbers with random signs, of L2 norm at most
        # n * radius / sqrt(coordinates): Hoeffding, with a union bound over the coordinates. Rounding adds less than
        # one step per client.
        spread = math.sqrt(2.0 * math.log(2.0 * self.coordinates / failure_probability) / self.coordinates)
        return min(certain, math.ceil(max_radius * spread) + 1)

    def noise_bound(self, clients: int, failure_probability: float = DEFAULT_FAILURE_PROBABILITY) -> int:
        """A bound, in steps, on the noise of `clients` clients in every coordinate (`DistributedNoise.tail_bound`)."""
        return self.noise.tail_bound(clients, self.coordinates, failure_probability)

    def _encode_block(
        self, vectors: NDArray[np.floating], first: int, key: bytes | None, *, exact: bool
    ) -> NDArray[np.int64]:
        """`encode` of the vectors from row `first` on."""
        rounding_key, noise_key = (key and subkey(key, purpose, first) for purpose in ("encoding", "noise"))
        encoded = conditional_round(self._scaled_and_rotated(vectors), self.radius, self.beta, rounding_key)
        self.noise.add_to(encoded, noise_key, exact=exact)
        return encoded

    def _scaled_and_rotated(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """[clients, dimension] to [clients, coordinates], in steps; vectors above the clip are refused."""
        doubles = vectors.astype(np.float64, copy=False)
        norms = np.sqrt(squared_norms(doubles))
        if not (norms <= self.clip * (1.0 + _CLIP_SLACK)).all():
            raise ConfigurationError(
                f"a vector of norm {norms.max():.9g} was given and the clip is {self.clip:.9g}; clip every vector first"
            )
        # radius / clip converts to steps; a norm just above the clip, within the slack, is scaled back onto it.
        scale = self.radius / np.maximum(norms, self.clip)
        steps = doubles * scale[:, None]
        return steps if self.rotation is None else self.rotation.forward(steps)
