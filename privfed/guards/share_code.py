"""From the values of a block to ring elements and back, block by block: the code of secret-shared sums.

Integer blocks travel exactly, real ones in fixed point. That no sum overflows is proven when the code is built,
for the number of clients that a round can have.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privfed.contracts import Block, Schema
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.clipping import CLIP_SLACK
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from secure_agg.encoding import FixedPoint, IntegerEncoding, Ring, RingElements


class ShareCode:
    """The code of every block of one schema.

    Args:
        sharing: whose ring and clip norm.
        schema: blocks of the query.
        max_clients: clients that a round can have.

    Raises:
        RingOverflowError: a sum does not fit the ring; the sentence says how many bits it needs.
        PlanError: an integer block without a bound, or a real one without a clip norm.
    """

    def __init__(self, sharing: SecretSharing, schema: Schema, max_clients: int) -> None:
        self.ring = Ring(sharing.bits)
        self._codes = {name: self._code(sharing, name, block, max_clients) for name, block in schema.items()}

    def encode(self, name: str, values: NDArray[Any]) -> RingElements:
        """Ring elements of values of block `name`, in the same shape.

        Raises:
            ConfigurationError: a value over the block's bound.
        """
        return self._codes[name].encode(values)

    def decode(self, name: str, ring_elements: RingElements) -> NDArray[Any]:
        """Sums of block `name` in the same shape, int64 or float64."""
        return self._codes[name].decode(ring_elements)

    def accepts(self, name: str, largest: int) -> None:
        """Refuse a whole number over the block's bound, as `encode` would.

        Raises:
            ConfigurationError: it is.
        """
        self._codes[name].encode(np.array([largest]))

    def _code(self, sharing: SecretSharing, name: str, block: Block, max_clients: int) -> IntegerEncoding | FixedPoint:
        if block.kind == "integer":
            return integer_code(self.ring, name, block, max_clients)
        if sharing.clip_norm is None:
            raise PlanError(
                f"block {name!r} holds real numbers, whose overflow bound in the ring follows from a clip: give the "
                f"plan a clip_norm, as in shared-sum:clip_norm=1"
            )
        bound = sharing.clip_norm * (1 + CLIP_SLACK) / block.weight
        return FixedPoint.for_sum(self.ring, bound=bound, clients=max_clients)


def integer_code(ring: Ring, name: str, block: Block, max_clients: int) -> IntegerEncoding:
    """The code of an integer block for rounds of at most `max_clients` clients.

    Raises:
        PlanError: the block declares no bound.
        RingOverflowError: the sum does not fit the ring.
    """
    if block.bound is None:
        raise PlanError(
            f"integer block {name!r} declares no bound, and a secure sum cannot prove that it fits the ring: "
            f"declare Block(..., bound=largest absolute value)"
        )
    return IntegerEncoding(ring, block.bound, max_clients)
