"""What HeteFedRec discloses besides sums: the groups that clients are in."""

from collections.abc import Sequence

from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.method import Disclosure


class HeteFedRecDisclosure(Disclosure):
    """Sums, and the groups that clients are in."""

    reads = "the sums of item rows and heads, block by block"

    def side_disclosures(self, config: HeteFedRecConfig) -> Sequence[str]:
        """What groups disclose besides uploads: membership, wherever the blocks that a client sends can be seen."""
        if not _grouped(config):
            return ()
        groups = {
            "activity": "Groups are chosen by activity: whoever sees which blocks a client sends learns the bracket "
            "that its number of training items lies in.",
            "capacity": "Groups are chosen by what devices can hold: the blocks a client sends show its device's "
            "capacity.",
            "random": "Groups are drawn at random: the blocks a client sends show its group, which says nothing "
            "about it.",
        }
        return (
            groups[config.groups],
            "What only clients of some groups hold (columns of tables, heads) is summed over those of a round alone, "
            "however few they are; with held blocks, sums of fewer than three are not opened.",
        )

    def cross_user_dependence(self, config: HeteFedRecConfig) -> str | None:
        """Percentiles of activity: a user's number of items moves them, and with them who else is in which group."""
        if config.groups != "activity" or config.thresholds is not None or not _grouped(config):
            return None
        return (
            "groups by percentiles of everybody's activity move other users too; use groups = 'capacity' or 'random', "
            "or give public thresholds"
        )


def _grouped(config: HeteFedRecConfig) -> bool:
    """Whether what a client sends depends on its group."""
    return len(config.widths) > 1 and config.variant not in ("all_small", "all_large", "standalone")
