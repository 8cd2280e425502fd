"""`Guarantee`: what may be claimed about a run, with everything needed to judge the claim.

An epsilon alone says nothing. It needs a delta, the unit it protects, which two worlds it compares, whom one
has to trust, how many rounds it covers and who computed it. This record carries all of it, and the sentences
that a reader must not miss.
"""

import math
from collections.abc import Callable
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from privfed.privacy.accounting import UNBOUNDED, account
from privfed.privacy.composition import Composition
from privfed.privacy.epsilon import Epsilon
from privfed.privacy.errors import AccountingError
from privfed.privacy.mechanisms.base import Neighbours
from privfed.privacy.padding.base import SupportClaim
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.sampling import Trust
from privfed.privacy.statements import assumptions_for, statements_for, tier_sentence
from privfed.privacy.tiers import BudgetTiers


class TierClaim(BaseModel):
    """What is guaranteed to people who chose the same budget.

    Attributes:
        name: of the tier.
        epsilon: privacy loss of its worst-off user, at the delta of the guarantee.
        chosen: the epsilon that they chose, for the whole run.
        weight: what their clipped uploads are multiplied by.
        share: of all users, as announced.
        sentence: the same for a reader.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    epsilon: Epsilon
    chosen: float
    weight: float
    share: float
    sentence: str


class Guarantee(BaseModel):
    """A differential privacy claim.

    Attributes:
        epsilon: privacy loss of the worst-off user (or of one interaction of that user, by `unit`); inf where nothing
            is guaranteed.
        reason_if_inf: why epsilon is infinite; None where it is finite.
        delta: probability with which the epsilon statement may fail.
        unit: whose contribution is protected; "user" is everything one user uploads, "interaction" one item in one
            user's training history.
        neighbours: which two worlds are compared.
        trust: whom the mechanism asks to trust; "local" is nobody but the own device, "none" is a
            mechanism that promises nothing. A faulty local plan stays "local", with epsilon = inf.
        per: what epsilon adds up over; "run" is all rounds so far.
        rounds_counted: rounds that the worst-off user took part in.
        accountant: how epsilon was computed.
        accountant_version: package and version of the accountant.
        cross_check: epsilon by the accountants that checked it.
        basic_epsilon: plain sum over releases (delta = 0), where that exists.
        assumptions: what has to be true for epsilon to be true.
        statements: what a reader must be told next to epsilon.
        support: where uploads name rows, what these rows say about single items: a bound of its own, which epsilon
            does not contain; None where no rows are seen by themselves.
        tiers: where people choose budgets, the claim for each, most careful first; `epsilon` is that of the last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    epsilon: Epsilon
    reason_if_inf: str | None
    delta: float
    unit: str
    neighbours: Neighbours
    trust: Trust
    per: str
    rounds_counted: int
    accountant: str
    accountant_version: str
    cross_check: dict[str, Epsilon]
    basic_epsilon: Epsilon | None
    assumptions: list[str]
    statements: list[str]
    support: SupportClaim | None = None
    tiers: list[TierClaim] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        return {key: value for key, value in fields.items() if key != "tiers" or value}

    def of_tier(self, name: str) -> float:
        """Epsilon of a tier; of the worst-off user of all where it is empty, or no tier of the plan."""
        return next((tier.epsilon for tier in self.tiers if tier.name == name), self.epsilon)

    @model_validator(mode="after")
    def _infinity_has_a_reason(self) -> Self:
        if math.isnan(self.epsilon) or math.isinf(self.epsilon) != (self.reason_if_inf is not None):
            raise AccountingError(
                f"epsilon = {self.epsilon} with reason_if_inf = {self.reason_if_inf!r}: an infinite epsilon "
                "has a reason and a finite one has none"
            )
        return self


def guarantee_for(
    plan: PrivacyPlan,
    composition: Composition,
    population: int,
    *,
    seeded: bool = True,
    of_weight: Callable[[float], Composition] | None = None,
) -> Guarantee:
    """The claim that `composition` supports under `plan`.

    A plan that bounds nothing has epsilon = inf even before its first release, so that a missing record can
    never make it look private.

    Args:
        plan: the run's privacy plan.
        composition: what was (or will be) released about the worst-off user.
        population: number of users.
        seeded: whether the noise follows from a seed that someone holds.
        of_weight: the composition of somebody whose uploads count so much; None says nothing of tiers.

    Raises:
        AccountingError: no accountant covers the composition, or two disagree.
    """
    own = plan.mechanism.unbounded_reason
    if own is not None and not composition.reasons:
        composition = Composition(reasons=(own,), uploads=composition.uploads, rounds=composition.rounds)
    result = UNBOUNDED if composition.reasons else account(composition.event(), plan.delta)
    claims = [] if plan.tiers is None or of_weight is None else _tier_claims(plan, plan.tiers, of_weight)
    return Guarantee(
        epsilon=result.epsilon,
        reason_if_inf="; ".join(composition.reasons) if math.isinf(result.epsilon) else None,
        delta=plan.delta,
        unit=plan.mechanism.unit,
        neighbours=plan.neighbours,
        trust=plan.mechanism.trust,
        per="run",
        rounds_counted=composition.rounds,
        accountant=result.accountant,
        accountant_version=result.accountant_version,
        cross_check=dict(result.cross_check),
        basic_epsilon=result.basic_epsilon,
        assumptions=assumptions_for(plan, result),
        statements=statements_for(
            plan, result, composition, population, seeded=seeded, of_tiers=[claim.sentence for claim in claims]
        ),
        support=plan.mechanism.support_claim,
        tiers=claims,
    )


def _tier_claims(plan: PrivacyPlan, tiers: BudgetTiers, of_weight: Callable[[float], Composition]) -> list[TierClaim]:
    claims = []
    for (name, tier), weight in zip(tiers.levels, tiers.weights.tolist(), strict=True):
        epsilon = account(of_weight(weight).event(), plan.delta).epsilon
        claims.append(
            TierClaim(
                name=name,
                epsilon=epsilon,
                chosen=tier.epsilon,
                weight=weight,
                share=tier.share,
                sentence=tier_sentence(name, epsilon, tier.epsilon, weight, tier.share),
            )
        )
    return claims
