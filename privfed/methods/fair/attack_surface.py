"""Item rows out of FAIR's uploads and sums, for attacks."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from privfed.contracts import Schema, UpdateError
from privfed.methods.attack_surface import AttackSurface, ItemBlocks
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.server import TierSchema
from privfed.methods.fair.spaces import from_block
from privfed.methods.fair.subspaces import Subspace
from privfed.methods.fair.tiers import scheme_of


class FairSurface(AttackSurface):
    """Item rows of all tables side by side, recovered from the tiers' subspaces where each has a sum of its own."""

    has_item_rows = True

    def item_blocks(self, config: FairConfig, schema: Schema) -> ItemBlocks | None:
        """Rows are recovered from all tables' blocks."""
        return ItemBlocks(None, rows=partial(item_rows, config, schema)) if schema else None


def item_rows(config: FairConfig, schema: Schema, blocks: Mapping[str, Tensor]) -> Tensor:
    """Item rows of uploads or sums: rows of all tables side by side `[n, items, tables * dim]`.

    Args:
        config: settings.
        schema: of the server.
        blocks: `[n, *shape]`; with a sum for each tier, they are recovered and added up.

    Raises:
        UpdateError: the schema is a copy without the number of items.
    """
    names = config.model.tables
    if config.placement == "server":
        return torch.cat([blocks[f"items.{name}"] for name in names], -1)
    if not isinstance(schema, TierSchema):
        raise UpdateError(
            "rows of items were asked for with a copy of the schema, which does not say how many items there are: give "
            "the schema that the server declares"
        )
    _, deepest = scheme_of(config, schema.n_items)
    tables = []
    for name in names:
        levels = [level for level in range(deepest + 1) if f"tier.{level}.{name}" in schema]
        whole = Subspace(schema.n_items, config.dim, 0, deepest, config.seeds[name], config.subspace)
        recovered = [from_block(blocks[f"tier.{level}.{name}"], replace(whole, level=level)) for level in levels]
        tables.append(torch.stack(recovered).sum(0))
    return torch.cat(tables, -1)
