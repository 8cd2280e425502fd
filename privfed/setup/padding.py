"""Padding the data that clients hold as a plan says: which private items may train, and which rows are sent.

Behind secret sharing a client's rows are seen even though their values are not (`privfed.privacy.padding`). Where the
target is public (DFMR's purchases), examinations are private and are padded; everywhere else the target itself is.
"""

from dataclasses import dataclass

import numpy as np

from privfed.data import Histories
from privfed.methods import ClientData, Method, MethodConfig
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.padded_histories import PaddedHistories, sample_padding


@dataclass(frozen=True, slots=True, eq=False)
class PaddedData:
    """What clients train on and announce.

    Attributes:
        data: with the private items that answer, and fake items.
        support: rows that every user announces; None where clients send every row, or name rows as they go.
    """

    data: ClientData
    support: Histories | None


def padded_data(data: ClientData, plan: PrivacyPlan, registered: Method, settings: MethodConfig) -> PaddedData:
    """The data as clients hold them under `plan`.

    Raises:
        PlanError: padding that needs public histories where there are none, or that leaves somebody too few rows to
            train on.
    """
    sharing = plan.mechanism.secret_sharing
    if sharing is None or sharing.padding.every_row:
        return PaddedData(data, None)
    public = data.positives if registered.traits.public_target else None
    private = private_items(data, registered, settings)
    if sharing.padding.sampler is None:
        return PaddedData(data, None if public is None else public.union(private))
    sampled = sample_padding(sharing.padding.sampler, private, public)
    if public is None:
        negatives = registered.training.negatives(settings)
        _refuse_too_few(sampled, 0 if negatives is None else negatives.per_positive)
    padded = data.with_padding(sampled.kept, sampled.fake_items, public_target=registered.traits.public_target)
    sent = sampled.kept.union(sampled.fake_items)
    return PaddedData(padded, sent if public is None else public.union(sent))


def _refuse_too_few(sampled: PaddedHistories, negatives: int) -> None:
    """Negatives come from the fake items alone: any other row would stand out.

    Raises:
        PlanError: a user who trains has fewer fake items than one positive takes negatives.
    """
    short = np.flatnonzero((sampled.kept.counts > 0) & (sampled.fake_items.counts < negatives))
    if len(short):
        raise PlanError(
            f"behind this padding negatives come from the rows that hold nothing, and user {short[0]} has "
            f"{sampled.fake_items.counts[short[0]]} of them where {negatives} negatives are sampled for every "
            f"item: take more padding (a larger rho, a smaller epsilon) or fewer negatives"
        )


def private_items(data: ClientData, registered: Method, settings: MethodConfig) -> Histories:
    """Each user's items that are nobody else's business: examinations where the target is public, else the target."""
    if registered.traits.public_target:
        examined = registered.training.examined(settings, data)
        return data.examined(()) if examined is None else examined
    return data.positives
