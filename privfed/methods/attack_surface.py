"""`AttackSurface`: what uploads, sums and models of a method show about single items.

A method declares it, so that every attack that applies is run on it and no attack guesses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float32, Int8, Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.data import Histories
from privfed.federation import Message


class BlockError(ValueError):
    """A method names a block that its server does not declare."""


@dataclass(frozen=True, slots=True)
class ItemBlocks:
    """Names of the blocks of an upload that say something about single items, each `[items, ...]`.

    Attributes:
        output: rows on the way out: the item table, or the last layer's weights `[items, width]`; None where they are
            spread over several blocks and `rows` makes them.
        input: rows on the way in: the first layer's weights `[items, width]`; None where there are none.
        bias: the last layer's bias `[items]`; None where there is none.
        rows: blocks `[n, *shape]` -> rows on the way out `[n, items, width]`; None where one block has them. Blocks
            that an adversary does not hold come as zeros.
    """

    output: str | None
    input: str | None = None
    bias: str | None = None
    rows: Callable[[Mapping[str, Tensor]], Tensor] | None = None

    def read(self, blocks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What n uploads or sums say about single items: `uploads` and, where there are such blocks, `inputs`, `bias`.

        Args:
            blocks: `[n, *shape]` each.
        """
        roles = {"inputs": self.input, "bias": self.bias, "uploads": self.output}
        rows = {role: blocks[name] for role, name in roles.items() if name is not None}
        return rows if self.rows is None else rows | {"uploads": self.rows(blocks)}


@dataclass(frozen=True, slots=True, eq=False)
class RebuiltCodes:
    """Guesses of private binary codes, made from public data alone.

    Attributes:
        private: name of the clients' private tensor that holds the true codes `[users, d]`.
        guesses: codes of -1 and +1 by where the guess started.
        affinity: how well every item fits one of the guesses.
    """

    private: str
    guesses: Mapping[str, Int8[np.ndarray, "n d"]]
    affinity: Float32[np.ndarray, "n items"]


class AttackSurface(Protocol):
    """Views of a method's uploads and models that show single items.

    Attributes:
        has_item_rows: whether uploads of the training step say something about single items.
        scores_are_logits: whether a score is the logit of "this item was taken", as cross-entropy on sampled negatives
            makes it, so that its sigmoid is a confidence; elsewhere only the order of scores means something.
        proximal_direction: (message addressed to clients, positions) -> the direction that the server itself put into
            each client's training, known to it; None where there is none.
        infer_sizes: (clients, users, uploads `[n, *shape]` of theirs) -> puts clients that repeat these users' training
            into the groups that the uploads show; None where all devices train alike, or it is public which trains how.
    """

    has_item_rows: bool
    scores_are_logits: bool = False
    proximal_direction: Callable[[Message, Tensor], Tensor] | None = None
    infer_sizes: Callable[[Any, Tensor, Mapping[str, Tensor]], None] | None = None

    def item_blocks(self, config: Any, schema: Schema) -> ItemBlocks | None:
        """The blocks of the server's `schema` that play each role; None where nothing says something about items.

        Raises:
            BlockError: a declared block is not among those of the schema.
        """

    def published(self, config: Any, parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:  # noqa: ARG002
        """Public parameters by the names of the blocks that change them."""
        return parameters

    def rebuilt_codes(
        self,
        config: Any,  # noqa: ARG002 (and below: most methods have no codes)
        message: Message,  # noqa: ARG002
        public: Histories,  # noqa: ARG002
        users: Int64[np.ndarray, " n"],  # noqa: ARG002
    ) -> RebuiltCodes | None:
        """Private codes of `users` as anybody can rebuild them from the last message and public histories."""
        return None


class NoItemRows(AttackSurface):
    """The surface of a method none of whose uploads has a row per item, or whose clients upload nothing at all."""

    has_item_rows = False

    def item_blocks(self, config: Any, schema: Schema) -> None:
        """No blocks."""


@dataclass(frozen=True)
class NamedBlocks(AttackSurface):
    """The surface of a method whose blocks have one row per item each.

    A `*` in a name stands for anything and means the last block of the server's schema that fits: `decoder.*.weight` is
    the last layer, however deep the decoder.

    Attributes:
        output: the item table, or the weights on the way out of the model; rows on the way in too where they are one.
        input: the block with one row per item on the way into the model: the first layer of an autoencoder.
        bias: the block with one number per item: the last layer's bias.
        scores_are_logits: see `AttackSurface`.
    """

    output: str
    input: str | None = None
    bias: str | None = None
    scores_are_logits: bool = False
    has_item_rows = True

    def item_blocks(self, config: Any, schema: Schema) -> ItemBlocks | None:  # noqa: ARG002 (names do not depend on it)
        """The named blocks; None where nothing is uploaded."""
        if not schema:
            return None
        return ItemBlocks(
            last_fitting(self.output, schema),
            None if self.input is None else last_fitting(self.input, schema),
            None if self.bias is None else last_fitting(self.bias, schema),
        )


def last_fitting(pattern: str, schema: Schema) -> str:
    """The last block of a schema whose name fits `pattern`.

    Raises:
        BlockError: there is none.
    """
    fitting = [name for name in schema if fnmatchcase(name, pattern)]
    if not fitting:
        raise BlockError(
            f"the attack surface names the block {pattern!r}, but the server declares {', '.join(schema)}; name one of "
            f"these, or use * for a part that varies"
        )
    return fitting[-1]
