"""A node's own sum of what runs cost its users, and whether one more query still fits its policy.

Within a run the ledger composes. Over runs the epsilons add up and so do the deltas (basic composition, which holds
whatever the server chooses next): k runs of (epsilon, delta) each are (k epsilon, k delta), so a policy bounds both
sums. A run of releases that each have an epsilon of their own may be counted at a delta of 0 instead. Only what is
about the same thing can be added: epsilon of one user, between the same two worlds, against the same adversary.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.errors import PolicyRefused
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import RunCost
from privfed.privacy import Ledger, PrivacyPlan, SchemaSummary

_AHEAD = 64
"""Equal queries that are cleared at once, where everybody takes part in all of them."""


class Budget:
    """Whether runs and their queries fit.

    Args:
        policy: of the node.
        earlier: costs of all other runs, whether they have ended or not.
        tier: of the node's users in this run; empty where its plan has none.

    Attributes:
        earlier: as given.
    """

    def __init__(self, policy: Policy, earlier: list[RunCost], tier: str = "") -> None:
        self._policy, self.earlier, self._tier = policy, earlier, tier
        self._cleared: tuple[str, int] = ("", 0)

    def accept_run(self, plan: PrivacyPlan) -> None:
        """Return quietly where a run of this plan may begin.

        Raises:
            PolicyRefused: its epsilon cannot be added to that of earlier runs, or nothing is left for it.
        """
        if plan.mechanism.unbounded_reason is not None:
            return
        self.accept_cost(PrivacyCost(0.0, plan.delta))
        if self._policy.max_epsilon is None:
            return
        if plan.mechanism.unit != "user":
            raise PolicyRefused(
                f"the run's epsilon is of one {plan.mechanism.unit} and this node's max_epsilon is of one user, of "
                "whom it says nothing; announce a plan whose unit is the user"
            )
        others = {run.counted for run in self.earlier if run.counted} - {counted_as(plan)}
        if others:
            raise PolicyRefused(
                f"the run counts {counted_as(plan)} and earlier runs of this node counted {'; '.join(sorted(others))}: "
                "these epsilons do not add up, so max_epsilon cannot be kept; announce a plan that counts the same"
            )

    def accept(
        self, ledger: Ledger, *, cohort_id: int, round: int, step: str, index: int, schema: SchemaSummary,
        participants: Int64[np.ndarray, " members"],
    ) -> None:  # fmt: skip
        """Return quietly where this query may be recorded too.

        Args:
            ledger: of the run, without it.
            cohort_id: of the query.
            round: of the query.
            step: of the query.
            index: of the query within its cohort.
            schema: of the query.
            participants: the node's users that take part.

        Raises:
            PolicyRefused: it would exceed the policy's rounds, its epsilon or its delta.
        """
        rounds = {entry.cohort_id for entry in ledger.entries} | {cohort_id}
        total = len(rounds) + sum(run.rounds for run in self.earlier)
        if total > self._policy.max_rounds:
            raise PolicyRefused(
                f"this would be round {total} of this node, and its policy allows {self._policy.max_rounds}; it takes "
                "part in no more"
            )
        self.accept_run(ledger.plan)
        if self._policy.max_epsilon is None and self._policy.max_epsilon_per_run is None and not self._tier:
            return
        like, left = repr(schema), self._cleared[1]
        if self._cleared[0] == like and left > 0:
            self._cleared = (like, left - 1)
            return
        ahead = _AHEAD if ledger.plan.sampling.kind == "all" and schema.refreshes == 1 else 1
        while ahead > 1:
            with suppress(PolicyRefused):
                self.accept_cost(self._after(ledger, ahead, cohort_id, round, step, index, schema, participants))
                break
            ahead //= 2
        else:
            self.accept_cost(self._after(ledger, 1, cohort_id, round, step, index, schema, participants))
        self._cleared = (like, ahead - 1)

    def _after(
        self, ledger: Ledger, times: int, cohort_id: int, round: int, step: str, index: int, schema: SchemaSummary,
        participants: Int64[np.ndarray, " members"],
    ) -> "PrivacyCost":  # fmt: skip
        """PrivacyCost of the run when this query had been made so many times."""
        trial = ledger.copy()
        for more in range(times):
            trial.record(
                cohort_id=cohort_id + more, round=round + more, step=step, index=index, schema=schema,
                participants=None if ledger.plan.amplifies else participants,
            )  # fmt: skip
        cost = PrivacyCost.from_ledger(trial, self._tier)
        self._keep_promise(ledger.plan, cost)
        return cost

    def _keep_promise(self, plan: PrivacyPlan, cost: "PrivacyCost") -> None:
        """Return quietly where the node's tier costs no more than the announced plan promises it.

        Raises:
            PolicyRefused: the server announced a weight, or makes queries, that the tier's epsilon does not cover.
        """
        if plan.tiers is None or not self._tier:
            return
        promised = plan.tiers.epsilon(self._tier)
        if cost.epsilon > promised:
            raise PolicyRefused(
                f"the run promises epsilon {promised:g} to the tier {self._tier} and would cost it {cost.epsilon:.3g}; "
                "this node takes part in no more"
            )

    def accept_cost(self, cost: "PrivacyCost") -> None:
        """Return quietly where a run that costs so much fits beside all earlier ones.

        Raises:
            PolicyRefused: epsilons or deltas add up to more than the policy's.
        """
        allowed, delta, single = self._policy.max_epsilon, self._policy.max_delta, self._policy.max_epsilon_per_run
        if single is not None and cost.epsilon > single:
            raise PolicyRefused(
                f"the run would cost epsilon {cost.epsilon:.3g} and this node's policy has max_epsilon_per_run = "
                f"{single:g}; it takes part in no more"
            )
        bounds = f"max_delta = {delta:g}" if allowed is None else f"max_epsilon = {allowed:g} and max_delta = {delta:g}"
        of_all = f"its policy has {bounds} over all runs together; it takes part in no more"
        if allowed is not None and any(run.epsilon is None for run in self.earlier):
            raise PolicyRefused(f"an earlier run of this node guaranteed nothing, so no epsilon bounds all: {of_all}")
        costs = [*self._earlier_costs(), cost]
        sums = [_total(costs), _total([each.at_zero for each in costs])]
        if any(epsilon <= (allowed or math.inf) and delta <= self._policy.max_delta for epsilon, delta in sums):
            return
        what = "epsilons" if all(delta <= self._policy.max_delta for _, delta in sums) else "epsilons and deltas"
        raise PolicyRefused(f"the {what} of this node's runs would add up to more than it allows: {of_all}")

    def total(self, cost: "PrivacyCost") -> tuple[float, float]:
        """Epsilon and delta of a run that costs so much and of all earlier ones that guarantee something, added up."""
        return _total([*self._earlier_costs(), cost])

    def _earlier_costs(self) -> list["PrivacyCost"]:
        return [PrivacyCost(run.epsilon, run.delta, run.pure) for run in self.earlier if run.epsilon is not None]


@dataclass(frozen=True, slots=True)
class PrivacyCost:
    """What a run costs its worst-off user, or that of the node's tier.

    Attributes:
        epsilon: at `delta`.
        delta: of the run.
        pure: epsilon at a delta of 0; None where there is none.
    """

    epsilon: float
    delta: float
    pure: float | None = None

    @classmethod
    def from_ledger(cls, ledger: Ledger, tier: str = "") -> "PrivacyCost":
        """What everything in a ledger costs, to users of a tier where one is named."""
        claim = ledger.guarantee(seeded=False)
        pure = claim.basic_epsilon
        return cls(claim.of_tier(tier), claim.delta, None if pure is None or math.isinf(pure) else pure)

    @property
    def at_zero(self) -> "PrivacyCost":
        """The same at a delta of 0, where that exists."""
        return self if self.pure is None else PrivacyCost(self.pure, 0.0)


def _total(costs: list[PrivacyCost]) -> tuple[float, float]:
    """Epsilon and delta of several runs by basic composition."""
    return math.fsum(cost.epsilon for cost in costs), math.fsum(cost.delta for cost in costs)


def counted_as(plan: PrivacyPlan) -> str:
    """What epsilon of a plan is about; epsilons of different things do not add up."""
    return f"one {plan.mechanism.unit}, {plan.neighbours}, {plan.mechanism.trust} trust"


def run_cost(run: str, ledger: Ledger, tier: str = "") -> RunCost:
    """What a run has cost, once it is over, to users of a tier where its plan has some."""
    if not ledger.entries:
        return RunCost(run=run, epsilon=0.0, delta=0.0, rounds=0)
    cost = PrivacyCost.from_ledger(ledger, tier)
    return RunCost(
        run=run,
        epsilon=None if math.isinf(cost.epsilon) else cost.epsilon,
        delta=cost.delta,
        pure=cost.pure,
        counted=counted_as(ledger.plan),
        rounds=len({entry.cohort_id for entry in ledger.entries}),
    )
