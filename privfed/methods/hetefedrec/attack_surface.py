"""Item rows out of HeteFedRec's uploads, sums and public tables, for attacks."""

from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.methods.attack_surface import AttackSurface, ItemBlocks
from privfed.methods.hetefedrec.client import HeteFedRecClients
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.layout import ModelLayout


class HeteFedRecSurface(AttackSurface):
    """Item rows in segments of columns, one for every width."""

    has_item_rows = True
    scores_are_logits = True

    def item_blocks(self, config: HeteFedRecConfig, schema: Schema) -> ItemBlocks | None:
        """Rows are the segments of columns side by side; None where nobody uploads."""
        return ItemBlocks(None, rows=partial(item_rows, config, schema)) if schema else None

    def published(self, config: HeteFedRecConfig, parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Public tables cut into the segments of uploads."""
        return published(config, parameters)

    def infer_sizes(
        self, clients: HeteFedRecClients, users: Int64[Tensor, " n"], uploads: Mapping[str, Tensor]
    ) -> None:
        """The widest segment that an upload fills shows the size of its sender."""
        clients.size_as_sent(users, uploads)


def item_rows(config: HeteFedRecConfig, schema: Schema, blocks: Mapping[str, Tensor]) -> Tensor:
    """One row per item out of uploads or sums, `[n, items, width]`, zeros for what is not held.

    Segments stand side by side, those of groups that stay apart too, then the item biases: a bias moves up for a
    positive and down for a negative, so that it says as much about an item as its row.

    Args:
        config: settings.
        schema: of the query.
        blocks: `[n, *shape]` of n uploads or sums.
    """
    layout = ModelLayout.from_config(config)
    names = [name for name in (*(segment.block for segment in layout.segments), *layout.biases) if name in schema]
    return torch.cat([blocks[name] for name in names], -1)


def published(config: HeteFedRecConfig, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Public parameters by the names of blocks: columns of a segment are those of the widest table that has it.

    Args:
        config: settings.
        parameters: tables, heads and biases by their own names.
    """
    layout = ModelLayout.from_config(config)
    columns = {
        s.block: parameters[f"items.{layout.models[s.holders[-1]].name}"][:, s.start : s.stop] for s in layout.segments
    }
    return dict(parameters) | columns
