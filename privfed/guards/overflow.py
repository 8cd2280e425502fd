"""Whether sums have room in a plan's ring, which is known before anything is trained."""

from privfed.contracts import Schema
from privfed.guards.ring_code import RingCode
from privfed.guards.share_code import ShareCode
from privfed.privacy.plan import PrivacyPlan


def refuse_overflow(plan: PrivacyPlan, schema: Schema, population: int) -> None:
    """Refuse a query whose sums do not fit the ring; nothing is refused where uploads travel as numbers.

    Raises:
        HeadroomError: a sum does not fit, in one sentence.
        PlanError: an integer block without a bound, or a real one without a clip norm.
    """
    max_clients = plan.sampling.max_cohort(population)
    if plan.mechanism.secret_sharing is not None:
        ShareCode(plan.mechanism.secret_sharing, schema, max_clients)
    if plan.mechanism.masking is not None:
        RingCode(plan.mechanism, schema, max_clients)
