"""What donors mean to a run: whom they go to, who refuses them, and what a guarantee has to say of them."""

from privfed.data import Histories, Split
from privfed.methods import Method
from privfed.privacy import PlanError


def open_histories(parts: Split) -> Histories | None:
    """What the server has of donors; None without any."""
    return None if parts.donors is None else parts.donors.histories


def refuse_donors(method: Method, parts: Split) -> None:
    """Refuse histories that people opened for a method that learns nothing from them.

    Raises:
        PlanError: the method would waste them.
    """
    if parts.donors is not None and not method.training.learns_from_donors:
        raise PlanError(
            f"{len(parts.donors.users):,} donors open their history, and {method.name} learns nothing from it: leave "
            "split.donors out, or choose private-gram or popularity"
        )


def donors_warning(donors: int, users: int) -> str:
    """Whom a guarantee leaves out, in a sentence."""
    return (
        f"{donors:,} people opened their history to the server and have no guarantee at all, whatever epsilon is: it "
        f"is about the other {users:,}, whose devices alone are asked. That somebody is a donor is public, too."
    )
