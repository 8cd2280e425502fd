"""What may leave a device: named blocks with a shape and a kind.

The server declares a schema with every query; only declared blocks can leave, which is why predictions and
personal state cannot.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MAX_WEIGHT = 2**30
"""Squares of weights, of which norms are made, stay exact numbers in every type that tensors have."""


class UpdateError(ValueError):
    """A client update does not fit the schema that the server declared."""


@dataclass(frozen=True, slots=True)
class Block:
    """One declared piece of an upload.

    Attributes:
        shape: shape of one client's values.
        kind: `real` values are clipped, noised and encoded; `integer` values travel exactly.
        weight: isometry factor of one coordinate in the server's basis; norm, noise and encoding act on
            weight x value (FAIR's tiers need it, everything else has 1).
        bound: largest absolute value of an integer block, for the head-room proof of a ring.
        divides: a weight per client (its number of examples, say) whose sum is what means divide by, instead of
            a number of clients. It depends on data, so plans that guarantee anything refuse it.
        counts: an integer block that counts clients: who touched a row, who is in a tier. Such counts are released
            exactly and means divide by them, so plans that guarantee anything refuse it too.
        share: of the squared clip norm. A query whose real blocks have shares that add up to s < 1 is clipped to
            sqrt(s) clip norms while the noise stays as it is, so it costs s of what a whole query costs: queries of
            a run whose shares add up to 1 cost one release together.
    """

    shape: tuple[int, ...]
    kind: Literal["real", "integer"] = "real"
    weight: float = 1.0
    bound: int | None = None
    divides: bool = False
    counts: bool = False
    share: float = 1.0

    def __post_init__(self) -> None:
        if any(side < 1 for side in self.shape):
            raise UpdateError(f"a block has shape {self.shape}; every side must be at least 1")
        if not 1 / MAX_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise UpdateError(f"a block has weight {self.weight}; it must be between 2^-30 and 2^30")
        if not 0 < self.share <= 1:
            raise UpdateError(f"a block has a share of {self.share} of the clip norm; it must be above 0 and at most 1")
        if self.counts and self.kind != "integer":
            raise UpdateError(
                f"a block that counts clients was declared as {self.kind}; counts travel exactly, so declare it as "
                f"integer"
            )

    @property
    def size(self) -> int:
        """Coordinates of one client."""
        return math.prod(self.shape)


Schema = Mapping[str, Block]


def share_of(schema: Schema) -> float:
    """The part of the squared clip norm that a query of these blocks may use, at most 1; see `Block.share`."""
    return min(1.0, math.fsum(block.share for block in schema.values() if block.kind == "real") or 1.0)


def schema_digest(schema: Schema) -> str:
    """SHA-256 over names and everything declared of them, in order: both sides of a wire compare it."""
    layout = [
        [name, list(b.shape), b.kind, b.weight, b.bound, b.divides, b.counts, b.share] for name, b in schema.items()
    ]
    return hashlib.sha256(json.dumps(layout).encode()).hexdigest()


def upload_bytes(schema: Schema) -> int:
    """Bytes of one client's dense upload: float32 for real blocks, int64 for integer ones."""
    return sum(b.size * (4 if b.kind == "real" else 8) for b in schema.values())
