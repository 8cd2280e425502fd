"""Random rotation: a public random sign per coordinate, then the Walsh-Hadamard transform.

It spreads every vector evenly over the coordinates, so that coordinates stay small and few bits of a ring suffice. It
is orthonormal: norms, and with them clipping and sensitivity, are unchanged. The signs must not be known to whoever
chooses the vectors: draw the seed afresh each round, after the model that clients train from is fixed.

Sources: Ailon and Chazelle (STOC 2006) for random signs before a Hadamard transform; 2102.06387, section 4, for its use
before secure aggregation.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer
from secure_agg.errors import ConfigurationError
from secure_agg.noise.subkeys import subkey
from secure_agg.primitives.prg import random_uints

_LOG2_RADIX = 6


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of vectors of one length under one public seed.

    Attributes:
        seed: 32 public bytes, the same for all parties of a sum.
        dimension: length of the vectors.

    Raises:
        ConfigurationError: a seed of another length or a dimension below 1.
    """

    seed: bytes
    dimension: int

    def __post_init__(self) -> None:
        if len(self.seed) != 32:
            raise ConfigurationError(f"a rotation seed of {len(self.seed)} bytes was given; give 32")
        object.__setattr__(self, "dimension", check_integer("dimension", self.dimension, minimum=1))

    @property
    def padded_dimension(self) -> int:
        """Length after rotation: the next power of two."""
        return 1 << (self.dimension - 1).bit_length()

    def forward(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Rotate: [..., dimension] to [..., padded_dimension].

        Raises:
            ConfigurationError: the last axis has another length.
        """
        if vectors.shape[-1] != self.dimension:
            raise ConfigurationError(f"got vectors of length {vectors.shape[-1]}; this rotation takes {self.dimension}")
        signed = np.zeros((*vectors.shape[:-1], self.padded_dimension))
        np.multiply(vectors, _signs(self.seed, self.dimension), out=signed[..., : self.dimension])
        return walsh_hadamard(signed)

    def inverse(self, rotated: NDArray[np.floating]) -> NDArray[np.float64]:
        """Rotate back: [..., padded_dimension] to [..., dimension].

        Raises:
            ConfigurationError: the last axis has another length.
        """
        if rotated.shape[-1] != self.padded_dimension:
            raise ConfigurationError(
                f"got vectors of length {rotated.shape[-1]}; rotated ones have {self.padded_dimension}"
            )
        # The transform is its own inverse, and so is a multiplication by signs.
        return np.asarray(walsh_hadamard(rotated)[..., : self.dimension] * _signs(self.seed, self.dimension))


def walsh_hadamard(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The orthonormal Walsh-Hadamard transform along the last axis, in natural order; its own inverse.

    Args:
        vectors: [..., 2^m].

    Returns:
        A new array of the same shape.

    Raises:
        ConfigurationError: the last axis is not a power of two long.
    """
    size = vectors.shape[-1]
    if size < 1 or size & (size - 1):
        raise ConfigurationError(f"got vectors of length {size}; the transform takes a power of two")
    # The matrix of 2^m points is a Kronecker product of small Hadamard matrices. Applying one factor of up to 64 points
    # after another takes ceil(m / 6) matrix products, which BLAS runs several times faster than m butterfly passes.
    result = vectors.astype(np.float64).reshape(-1)
    remaining, stride = size.bit_length() - 1, 1
    while remaining:
        matrix = _hadamard(min(remaining, _LOG2_RADIX))
        points = len(matrix)
        if stride == 1:  # the factor acts on the innermost axis: one large product [blocks, points] @ [points, points]
            result = (result.reshape(-1, points) @ matrix).reshape(-1)
        else:  # the factor acts on the middle axis of [blocks, points, stride]
            result = np.matmul(matrix, result.reshape(-1, points, stride)).reshape(-1)
        remaining, stride = remaining - min(remaining, _LOG2_RADIX), stride * points
    return result.reshape(vectors.shape)


@lru_cache(maxsize=_LOG2_RADIX)
def _hadamard(order: int) -> NDArray[np.float64]:
    """The orthonormal Hadamard matrix of 2^order rows, which is symmetric: (-1)^(ones in i & j) / sqrt(2^order)."""
    matrix: NDArray[np.float64] = np.ones((1, 1))
    for _ in range(order):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix * np.float64(2.0 ** (-order / 2))


@lru_cache(maxsize=4)
def _signs(seed: bytes, dimension: int) -> NDArray[np.float64]:
    """[dimension] of +1 and -1."""
    key = subkey(seed, "rotation signs", dimension)
    bits = np.unpackbits(random_uints(-(-dimension // 8), np.uint8, key), count=dimension)
    signs = 1.0 - 2.0 * bits.astype(np.float64)
    signs.flags.writeable = False
    return signs
