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
        refreshes: queries of a run that share one account. A device keeps account of what leaves it in these blocks:
            the squared norms of one user's uploads to all of them together stay within `share`. 1: a query by itself.
    """

    shape: tuple[int, ...]
    kind: Literal["real", "integer"] = "real"
    weight: float = 1.0
    bound: int | None = None
    divides: bool = False
    counts: bool = False
    share: float = 1.0
    refreshes: int = 1

    def __post_init__(self) -> None:
        if any(side < 1 for side in self.shape):
            raise UpdateError(f"a block has shape {self.shape}; every side must be at least 1")
        if not 1 / MAX_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise UpdateError(f"a block has weight {self.weight}; it must be between 2^-30 and 2^30")
        if not 0 < self.share <= 1:
            raise UpdateError(f"a block has a share of {self.share} of the clip norm; it must be above 0 and at most 1")
        if self.refreshes < 1:
            raise UpdateError(f"a block has {self.refreshes} refreshes; there is at least one")
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


def refreshes_of(schema: Schema) -> int:
    """Queries that share the account of this one; 1 where it stands by itself.

    Raises:
        UpdateError: its real blocks differ in that.
    """
    found = {block.refreshes for block in schema.values() if block.kind == "real"} or {1}
    if len(found) > 1:
        raise UpdateError(f"blocks of one query have {sorted(found)} refreshes; give all of them the same number")
    return found.pop()


def account_of(schema: Schema) -> str:
    """Name of the account of a query with several refreshes: its real blocks."""
    return ", ".join(name for name, block in schema.items() if block.kind == "real")


def schema_digest(schema: Schema) -> str:
    """SHA-256 over names and everything declared of them, in order: both sides of a wire compare it."""
    layout = [
        [name, list(b.shape), b.kind, b.weight, b.bound, b.divides, b.counts, b.share, *declared_refreshes(b)]
        for name, b in schema.items()
    ]
    return hashlib.sha256(json.dumps(layout).encode()).hexdigest()


def declared_refreshes(block: Block) -> list[int]:
    """Its number of refreshes, where it has several: nothing is written of a query by itself."""
    return [] if block.refreshes == 1 else [block.refreshes]


def upload_bytes(schema: Schema) -> int:
    """Bytes of one client's dense upload: float32 for real blocks, int64 for integer ones."""
    return sum(b.size * (4 if b.kind == "real" else 8) for b in schema.values())
