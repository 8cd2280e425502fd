"""Putting a plan's cover over the data that clients hold: which private items may train, and which rows are sent.

Behind secret sharing a client's rows are seen even though their values are not (`privfed.privacy.cover`). Where the
target is public (DFMR's purchases), examinations are private and are covered; everywhere else the target itself is.
"""

from dataclasses import dataclass

from privfed.data import Histories
from privfed.methods import ClientData, Method, MethodConfig
from privfed.privacy import FakeItems, PlanError, PrivacyPlan, RandomisedResponse, SharedSum, draw_cover


@dataclass(frozen=True, slots=True, eq=False)
class CoveredData:
    """What clients train on and announce.

    Attributes:
        data: with the private items that answer, and fakes.
        support: rows that every user announces; None where there is no drawn cover.
    """

    data: ClientData
    support: Histories | None


def under_cover(data: ClientData, plan: PrivacyPlan, registered: Method, settings: MethodConfig) -> CoveredData:
    """The data as clients hold them under `plan`.

    Raises:
        PlanError: a cover that needs public histories where there are none, or leaves too few rows to train on.
    """
    protection = plan.protection
    if not isinstance(protection, SharedSum) or not isinstance(protection.cover, FakeItems | RandomisedResponse):
        return CoveredData(data, None)
    if registered.upload == "dense":
        raise PlanError(
            f"{registered.name} sends whole tables, so there are no rows to cover: choose cover.kind = 'every_row'"
        )
    public = data.positives if registered.public_target else None
    private = private_items(data, registered, settings)
    drawn = draw_cover(protection.cover, private, public)
    covered = data.behind_cover(drawn.kept, drawn.fakes, public_target=registered.public_target)
    sent = drawn.kept.union(drawn.fakes)
    return CoveredData(covered, sent if public is None else public.union(sent))


def private_items(data: ClientData, registered: Method, settings: MethodConfig) -> Histories:
    """Each user's items that are nobody else's business: examinations where the target is public, else the target."""
    if registered.public_target:
        return data.examined(getattr(settings, "examinations", None))
    return data.positives
