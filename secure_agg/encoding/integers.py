"""Exact encoding of bounded integers, for protocols whose values are integers already."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer
from secure_agg.encoding.overflow import check_overflow_bound
from secure_agg.encoding.ring import Ring, value_range
from secure_agg.errors import ConfigurationError
from secure_agg.primitives.prg import RingElements


@dataclass(frozen=True, slots=True)
class IntegerEncoding:
    """Bounded integers as ring elements, without error.

    Attributes:
        ring: ring of the elements.
        bound: maximum magnitude of one value.
        clients: maximum number of vectors in a sum.

    Raises:
        RingOverflowError: clients * bound is not below 2^(bits-1).
        ConfigurationError: bound or clients is not an integer of at least 1.
    """

    ring: Ring
    bound: int
    clients: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", check_integer("bound", self.bound, minimum=1))
        object.__setattr__(self, "clients", check_integer("clients", self.clients, minimum=1))
        check_overflow_bound(self.ring, clients=self.clients, bound=self.bound)

    def encode(self, values: NDArray[np.integer[Any]]) -> RingElements:
        """Encode one client's values, keeping their shape.

        Args:
            values: any shape, signed or unsigned, of magnitude at most `bound`.

        Raises:
            ConfigurationError: a dtype that is not an integer dtype (floats are refused even where they are integral),
                or a value over the bound.
        """
        lowest, highest = value_range(values)
        magnitude = max(-lowest, highest)
        if magnitude > self.bound:
            raise ConfigurationError(
                f"a value of magnitude {magnitude} was given and the encoding holds up to {self.bound}; "
                "clip the values or build the encoding with a larger bound"
            )
        # The ring holds the bound (checked when this was built), so it need not look for the largest value again.
        return self.ring.reduce_(values.astype(self.ring.dtype))

    def decode(self, elements: RingElements) -> NDArray[np.int64]:
        """Decode a sum exactly, keeping its shape; shares memory as `Ring.centred` does.

        Raises:
            ConfigurationError: the elements belong to another ring.
        """
        return self.ring.centred(elements)
