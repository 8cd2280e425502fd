"""The claimed epsilon for the unit that a measurement tests: one upload, one person, or one interaction.

A measured epsilon means something only beside a claim about the same two worlds at the same delta. The claim of a run
is about everything that the worst-off user sends in all its rounds; a test of one upload stands beside the claim of
one upload, without the amplification that sampling may add over a run.
"""

import math
from collections.abc import Sequence
from typing import Literal

from attacks.empirical import EpsilonEstimate, LowerBound, MeasuredEpsilon
from privfed.audit.report.ceilings import interaction_level
from privfed.audit.report.records import EmpiricalRow, GuaranteeRow, Tap
from privfed.contracts import Schema
from privfed.privacy import PrivacyPlan, SchemaSummary
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Empty, Exact, Unbounded, reason_of
from privfed.privacy.guarantee import guarantee_for
from privfed.privacy.plan import event_for


def query_epsilon(plan: PrivacyPlan, queries: Sequence[Schema], population: int, weight: float = 1.0) -> float:
    """Epsilon, at the plan's delta, of one upload to each of these queries or of the sums it is in.

    Participation is known to the adversary, so sampling amplifies nothing.

    Args:
        plan: the privacy plan.
        queries: blocks of every query, one after the other.
        population: number of users, for whose sums a ring must have room.
        weight: of the tier of the uploads.

    Raises:
        AccountingError: accountants disagree.
    """
    mechanisms = [event_for(plan, SchemaSummary.from_schema(query), population, weight) for query in queries]
    spending = [mechanism for mechanism in mechanisms if not isinstance(mechanism, Empty)]
    reasons = [reason_of(mechanism) for mechanism in spending if isinstance(mechanism, Exact | Unbounded)]
    bounded = [Releases(mechanism, 1) for mechanism in spending if not isinstance(mechanism, Exact | Unbounded)]
    if not spending:
        composition = Composition()
    elif reasons:
        composition = Composition(reasons=tuple(dict.fromkeys(reasons)), uploads=len(spending), rounds=1)
    else:
        composition = Composition(tuple(bounded), uploads=len(spending), rounds=1)
    return guarantee_for(plan, composition, population).epsilon


def run_claim(guarantee: GuaranteeRow, unit: Literal["interaction", "user"]) -> tuple[float, float]:
    """(epsilon, delta) that a run claims for one interaction of a person, or for everything one person sends.

    The worlds of a person are those in which its uploads are in the sums or not. Claims for adding or removing a user
    and for zeroing a user's uploads are about these very worlds; a claim for replacing an upload by any other covers
    them, because zero is an upload. A claim for single interactions says nothing finite about a person.

    Args:
        guarantee: of the run.
        unit: what a measurement tested.
    """
    if unit == "interaction":
        return interaction_level(guarantee)
    return (math.inf if guarantee.unit == "interaction" else guarantee.epsilon), guarantee.delta


def empirical_row(
    claimed: float,
    measured: MeasuredEpsilon,
    confidence: float,
    audited: str,
    tap: Tap,
    unit: Literal["interaction", "user", "upload"],
    neighbours: str,
) -> EmpiricalRow:
    """The row of a measured epsilon beside the claim for the same unit, worlds and delta; only a bound can deny it.

    Args:
        claimed: what is accounted.
        measured: a bound or an estimate.
        confidence: of it, everything that was tried considered.
        audited: what was tested, in words.
        tap: where the statistic was read.
        unit: whose contribution differs between the worlds.
        neighbours: which two worlds were compared.
    """
    estimate = measured if isinstance(measured, EpsilonEstimate) else None
    return EmpiricalRow(
        estimator=measured.estimator,
        kind=measured.kind,
        audited=audited,
        tap=tap,
        value=measured.epsilon,
        lo=estimate.lo if estimate else None,
        hi=estimate.hi if estimate else None,
        confidence=confidence,
        delta=measured.delta,
        unit=unit,
        neighbours=neighbours,
        trials=measured.trials,
        accounted=claimed,
        placebo=estimate.placebo if estimate else None,
        assumes=" ".join(filter(None, [measured.assumes, measured.note])),
        consistent=not (isinstance(measured, LowerBound) and measured.rejects(claimed)),
    )
