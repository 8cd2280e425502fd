"""FAIR: federated averaging in random subspaces, and what it is compared with.

Devices of unequal memory train one NeuMF. Each keeps its item tables in a hashed subspace as large as it can hold;
the subspaces nest, so what devices of all sizes learnt adds up to one table (FAIR: Federated Averaging in Random
Subspaces). User rows are private and stay on the device; the released code averages whole user tables over clients,
which shows them to the server, and that is not offered.

    fair        devices of a scheme such as 1x-4x, or of budgets in bytes
    hom         everybody at the smallest capacity
    full_trn    only devices that hold everything train
    fedhm       low-rank tables (Yao et al., 2021)
    heterofl    first columns of the tables (Diao et al., ICLR 2021)
    fedavg      everybody holds everything (McMahan et al., AISTATS 2017)

A smaller table is no protection: an upload in a subspace still tells which items were touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privfed.methods.fair.clients import FairClients
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.memory import DeviceMemory, device_memory
from privfed.methods.fair.server import FairServer, TierSchema
from privfed.methods.fair.spaces import from_block
from privfed.methods.fair.tiers import scheme_of
from privfed.methods.fair.training import NothingToDrawError, RatingsError
from privfed.methods.method import Method
from privfed.models.subspaces import Capacities, Scheme, Subspace
from privfed.updates import Schema, UpdateError


def item_rows(config: FairConfig, schema: Schema, blocks: Mapping[str, Tensor]) -> Tensor:
    """What uploads or sums say about items: rows of all tables side by side `[n, items, tables * dim]`.

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


def discloses(config: FairConfig) -> Sequence[str]:
    """What FAIR shows beside uploads, whatever the plan: a device's download is of the size of its tier."""
    said = (
        "A device's smaller table is no protection: a single upload in a subspace still tells which items it touched.",
    )
    budgets = set(config.budgets or ())
    several = len(budgets) > 1 if budgets else len(set(Scheme.parse(config.scheme).levels)) > 1
    if config.variant in {"hom", "fedavg"} or not several:
        return said
    capacities = Capacities(np.arange(2), config.assigned).discloses
    return (*said, *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in capacities))


METHOD = Method(
    name="fair",
    title="one model for devices of unequal memory, in nested hashed subspaces",
    source="FAIR: Federated Averaging in Random Subspaces",
    config=FairConfig,
    release="total",
    upload="dense",
    server=FairServer,
    clients=FairClients,
    reads="sums of item-table and layer updates, over the cohort or over each tier of devices",
    program=FairServer.program,
    chunk=16,
    item_block=None,
    item_rows=item_rows,
    discloses=discloses,
)

__all__ = [
    "METHOD",
    "DeviceMemory",
    "FairClients",
    "FairConfig",
    "FairServer",
    "NothingToDrawError",
    "RatingsError",
    "device_memory",
    "discloses",
    "item_rows",
]
