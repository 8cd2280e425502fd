"""What FAIR discloses besides sums: sizes of downloads, and how few devices a sum may be of."""

from collections.abc import Sequence

from privfed.methods.fair.config import MIN_MEMBERS, FairConfig
from privfed.methods.fair.subspaces import disclosed
from privfed.methods.method import Disclosure


class FairDisclosure(Disclosure):
    """Sums, sizes of downloads, and how few devices a sum may be of."""

    reads = "sums of item-table and layer updates, over the cohort or over each tier of devices"

    def side_disclosures(self, config: FairConfig) -> Sequence[str]:
        """What FAIR discloses besides uploads under any plan: sizes of downloads, and sums that few devices are in."""
        said = [
            "A device's smaller table is no protection: a single upload in a subspace still tells which items it "
            "touched.",
        ]
        if not config.unequal:
            return said
        capacity = disclosed(config.assigned)
        said.append(f"{capacity[0].upper()}{capacity[1:]}.")
        if config.variant == "full_trn":
            said.append(
                "Only devices that hold everything train, so a round's sum is the sum of those among its clients, "
                "however few: of one it is that device's update."
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
                "Columns that small devices do not have are summed over the others only, however few they are in a "
                "round; min_tier sets how few."
            )
        else:
            near = "nearly " if config.variant == "fedhm" else ""
            said.append(
                f"In one sum for all tiers, larger devices are hidden by each other only: a small device's update lies "
                f"{near}in a subspace that the server can project away, and what is left of the sum is that of the "
                f"larger devices, however few they are in a round; min_tier sets how few."
            )
        if config.weights == "samples":
            said.append("The interactions of each tier's clients of a round are added up and shown exactly.")
        elif config.counts_tiers_first or config.shares == "realised":
            said.append("How many clients of a round are in each tier is shown exactly.")
        return said

    def cross_user_dependence(self, config: FairConfig) -> str | None:
        """Tiers by rank of activity: whoever becomes more active pushes others into the next tier."""
        if config.assigned != "activity" or not config.unequal:
            return None
        return "tiers by rank of everybody's activity move other users too; use assigned = 'random'"


def _of_tiers(config: FairConfig) -> str:
    if config.min_clients < MIN_MEMBERS:
        return (
            f"There is a sum for each tier, of as few as {config.min_clients} devices (min_tier): of one it is that "
            f"device's update, which is then protected no more than a single upload is by the plan's clip and noise."
        )
    return f"There is a sum for each tier, of {config.min_clients} devices or more (min_tier)."
