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

import torch
from torch import Tensor

from privfed.contracts import Schema, UpdateError
from privfed.methods.fair.clients import FairClients
from privfed.methods.fair.config import FEWEST, FairConfig
from privfed.methods.fair.memory import DeviceMemory, device_memory
from privfed.methods.fair.server import FairServer, TierSchema
from privfed.methods.fair.spaces import from_block
from privfed.methods.fair.subspaces import Subspace, disclosed
from privfed.methods.fair.tiers import scheme_of
from privfed.methods.fair.training import NothingToDrawError, RatingsError
from privfed.methods.method import Method


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


def side_disclosures(config: FairConfig) -> Sequence[str]:
    """What FAIR shows beside uploads, whatever the plan: sizes of downloads, and sums that few devices are in."""
    said = [
        "A device's smaller table is no protection: a single upload in a subspace still tells which items it touched.",
    ]
    if not config.unequal:
        return said
    capacity = disclosed(config.assigned)
    said.append(f"{capacity[0].upper()}{capacity[1:]}.")
    if config.variant == "full_trn":
        said.append(
            "Only devices that hold everything train, so a round's sum is the sum of those among its clients, however "
            "few: of one it is that device's update."
        )
    elif config.placement == "tier":
        said.append(_of_tiers(config))
    elif config.counts_tiers_first:
        said.append(
            f"In one sum for all tiers a device is hidden among those of its own tier or a larger one: "
            f"{config.min_clients} or more in a round (min_tier)."
        )
    elif config.variant == "heterofl":
        said.append(
            "Columns that small devices do not have are summed over the others only, however few they are in a round; "
            "min_tier sets how few."
        )
    else:
        near = "nearly " if config.variant == "fedhm" else ""
        said.append(
            f"In one sum for all tiers, larger devices are hidden by each other only: a small device's update lies "
            f"{near}in a subspace that the server can project away, and what is left of the sum is that of the larger "
            f"devices, however few they are in a round; min_tier sets how few."
        )
    if config.weights == "samples":
        said.append("The interactions of each tier's clients of a round are added up and shown exactly.")
    elif config.counts_tiers_first or config.shares == "realised":
        said.append("How many clients of a round are in each tier is shown exactly.")
    return said


def _of_tiers(config: FairConfig) -> str:
    if config.min_clients < FEWEST:
        return (
            f"There is a sum for each tier, of as few as {config.min_clients} devices (min_tier): of one it is that "
            f"device's update, which is then protected no more than a single upload is by the plan's clip and noise."
        )
    return f"There is a sum for each tier, of {config.min_clients} devices or more (min_tier)."


def cross_user_dependence(config: FairConfig) -> str | None:
    """Tiers by rank of activity: whoever becomes more active pushes others into the next tier."""
    if config.assigned != "activity" or not config.unequal:
        return None
    return "tiers by rank of everybody's activity move other users too; use assigned = 'random'"


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
    host_work="local training",
    item_block=None,
    item_rows=item_rows,
    side_disclosures=side_disclosures,
    cross_user_dependence=cross_user_dependence,
    task=lambda config: config.task,
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
