"""HeteFedRec: federated recommenders whose clients have models of different sizes (Yuan et al., ICDE 2024).

Small, medium and large clients train item vectors of width 8, 16 and 32 with a head for each width. Three parts keep
unequal clients useful to each other: every nested prefix is trained as a model of its own (unified dual-task learning),
the item vectors of the wider ones are decorrelated, and the server makes the tables' item similarities agree.
"""

from collections.abc import Sequence

from privfed.methods.hetefedrec.clients import HeteFedRecClients
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.layout import item_rows
from privfed.methods.hetefedrec.server import HeteFedRecServer
from privfed.methods.method import Method

__all__ = ["METHOD", "HeteFedRecConfig"]


def discloses(config: HeteFedRecConfig) -> Sequence[str]:
    """What groups show beside uploads: who is in one is seen wherever its blocks are seen to be sent."""
    if len(config.widths) == 1 or config.variant in ("all_small", "all_large", "standalone"):
        return ()
    if config.groups == "activity":
        return (
            "Groups are chosen by activity: whoever sees which blocks a client sends learns the bracket that its "
            "number of training items lies in.",
        )
    if config.groups == "capacity":
        return ("Groups are chosen by what devices can hold: the blocks a client sends show its device's capacity.",)
    return ("Groups are drawn at random: the blocks a client sends show its group, which says nothing about it.",)


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
    discloses=discloses,
)
