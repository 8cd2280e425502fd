"""HeteFedRec: federated recommenders whose clients have models of different sizes (Yuan et al., ICDE 2024).

Small, medium and large clients train item vectors of width 8, 16 and 32 with a head for each width. Three parts keep
unequal clients useful to each other: every nested prefix is trained as a model of its own (unified dual-task learning),
the item vectors of the wider ones are decorrelated, and the server makes the tables' item similarities agree.
"""

from collections.abc import Sequence

from privfed.methods.hetefedrec.clients import HeteFedRecClients
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.layout import item_rows, published
from privfed.methods.hetefedrec.server import HeteFedRecServer
from privfed.methods.method import Method

__all__ = ["METHOD", "HeteFedRecConfig"]


def side_disclosures(config: HeteFedRecConfig) -> Sequence[str]:
    """What groups show beside uploads: who is in one is seen wherever its blocks are seen to be sent."""
    if not _grouped(config):
        return ()
    groups = {
        "activity": "Groups are chosen by activity: whoever sees which blocks a client sends learns the bracket that "
        "its number of training items lies in.",
        "capacity": "Groups are chosen by what devices can hold: the blocks a client sends show its device's capacity.",
        "random": "Groups are drawn at random: the blocks a client sends show its group, which says nothing about it.",
    }
    return (
        groups[config.groups],
        "What only clients of some groups hold (columns of tables, heads) is summed over those of a round alone, "
        "however few they are; with held blocks, sums of fewer than three are not opened.",
    )


def cross_user_dependence(config: HeteFedRecConfig) -> str | None:
    """Percentiles of activity: a user's own number of items moves them, and with them who else is in which group."""
    if config.groups != "activity" or config.thresholds is not None or not _grouped(config):
        return None
    return (
        "groups by percentiles of everybody's activity move other users too; use groups = 'capacity' or 'random', or "
        "give public thresholds"
    )


def _grouped(config: HeteFedRecConfig) -> bool:
    """Whether what a client sends depends on its group."""
    return len(config.widths) > 1 and config.variant not in ("all_small", "all_large", "standalone")


METHOD = Method(
    name="hetefedrec",
    title="clients of different sizes, nested item vectors",
    source="HeteFedRec, Yuan et al., ICDE 2024",
    config=HeteFedRecConfig,
    release="total",
    upload="rows",
    server=HeteFedRecServer,
    clients=HeteFedRecClients,
    reads="the sums of item rows and heads, block by block",
    chunk=256,
    item_block="items.0:*",
    item_rows=item_rows,
    infer_sizes=HeteFedRecClients.size_as_sent,
    published=published,
    side_disclosures=side_disclosures,
    cross_user_dependence=cross_user_dependence,
)
