"""Putting a plan's cover over the data that clients hold: which private items may train, and which rows are sent.

Behind secret sharing a client's rows are seen even though their values are not (`privfed.privacy.padding`). Where the
target is public (DFMR's purchases), examinations are private and are covered; everywhere else the target itself is.
"""

from dataclasses import dataclass

import numpy as np

from privfed.data import Histories
from privfed.methods import ClientData, Method, MethodConfig
from privfed.privacy import FullSupport, NoPadding, PlanError, PrivacyPlan, SharedSum
from privfed.setup.padded_histories import PaddedHistories, sample_padding


@dataclass(frozen=True, slots=True, eq=False)
class PaddedData:
    """What clients train on and announce.

    Attributes:
        data: with the private items that answer, and fakes.
        support: rows that every user announces; None where clients send every row, or name rows as they go.
    """

    data: ClientData
    support: Histories | None


def padded_data(data: ClientData, plan: PrivacyPlan, registered: Method, settings: MethodConfig) -> PaddedData:
    """The data as clients hold them under `plan`.

    Raises:
        PlanError: a cover that needs public histories where there are none, that finds no rows to cover, or that leaves
            somebody too few rows to train on.
    """
    mechanism = plan.mechanism
    if not isinstance(mechanism, SharedSum) or isinstance(mechanism.padding, FullSupport):
        return PaddedData(data, None)
    public = data.positives if registered.traits.public_target else None
    private = private_items(data, registered, settings)
    if isinstance(mechanism.padding, NoPadding):
        return PaddedData(data, None if public is None else public.union(private))
    if registered.traits.upload == "dense":
        raise PlanError(
            f"{registered.name} sends whole tables, so there are no rows to cover: choose padding.kind = 'full_support'"
        )
    drawn = sample_padding(mechanism.padding, private, public)
    if public is None:
        sampling = registered.training.negatives(settings)
        _refuse_too_few(drawn, 0 if sampling is None else sampling.per_positive)
    padded = data.with_padding(drawn.kept, drawn.fake_items, public_target=registered.traits.public_target)
    sent = drawn.kept.union(drawn.fake_items)
    return PaddedData(padded, sent if public is None else public.union(sent))


def _refuse_too_few(drawn: PaddedHistories, negatives: int) -> None:
    """Negatives come from the fakes alone: any other row would stand out.

    Raises:
        PlanError: a user who trains has fewer fakes than one positive takes negatives.
    """
    short = np.flatnonzero((drawn.kept.counts > 0) & (drawn.fake_items.counts < negatives))
    if len(short):
        raise PlanError(
            f"behind this cover negatives come from the rows that hold nothing, and user {short[0]} has "
            f"{drawn.fake_items.counts[short[0]]} of them where {negatives} negatives are drawn for every item: take "
            f"more padding (a larger rho, a smaller epsilon) or fewer negatives"
        )


def private_items(data: ClientData, registered: Method, settings: MethodConfig) -> Histories:
    """Each user's items that are nobody else's business: examinations where the target is public, else the target."""
    if registered.traits.public_target:
        examined = registered.training.examined(settings, data)
        return data.examined(()) if examined is None else examined
    return data.positives
