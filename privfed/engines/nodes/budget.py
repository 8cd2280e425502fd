"""A node's own account of what its users have spent, over all runs, and whether one more ask still fits its policy.

Epsilons of different runs add up (basic composition); within a run the ledger composes.
"""

import math

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.errors import PolicyRefused
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import Spent
from privfed.privacy import Ledger, SchemaSummary

_AHEAD = 64
"""Equal asks that are cleared at once, where everybody takes part in all of them."""


class Budget:
    """Whether asks fit.

    Args:
        policy: of the node.
        spent: earlier runs.
    """

    def __init__(self, policy: Policy, spent: list[Spent]) -> None:
        self._policy, self._spent = policy, spent
        self._cleared: tuple[str, int] = ("", 0)

    def accept(
        self, ledger: Ledger, *, draw: int, round: int, step: str, index: int, schema: SchemaSummary,
        participants: Int64[np.ndarray, " members"],
    ) -> None:  # fmt: skip
        """Return quietly where this ask may be charged too.

        Args:
            ledger: of the run, without it.
            draw: of the ask.
            round: of the ask.
            step: of the ask.
            index: of the ask within its draw.
            schema: of the ask.
            participants: the node's users that take part.

        Raises:
            PolicyRefused: it would exceed the policy's rounds or its epsilon.
        """
        rounds = {entry.draw for entry in ledger.entries} | {draw}
        total = len(rounds) + sum(run.rounds for run in self._spent)
        if total > self._policy.max_rounds:
            raise PolicyRefused(
                f"this would be round {total} of this node, and its policy allows {self._policy.max_rounds}; it takes "
                "part in no more"
            )
        if self._policy.max_epsilon is None:
            return
        like, left = repr(schema), self._cleared[1]
        if self._cleared[0] == like and left > 0:
            self._cleared = (like, left - 1)
            return
        ahead = _AHEAD if ledger.plan.sampling.kind == "all" else 1
        while ahead and self._after(ledger, ahead, draw, round, step, index, schema, participants) > (
            self._policy.max_epsilon
        ):
            ahead //= 2
        if not ahead:
            raise PolicyRefused(
                f"this ask would bring the privacy loss of this node's users above {self._policy.max_epsilon:g}, which "
                "its policy allows in all; it takes part in no more"
            )
        self._cleared = (like, ahead - 1)

    def _after(
        self, ledger: Ledger, times: int, draw: int, round: int, step: str, index: int, schema: SchemaSummary,
        participants: Int64[np.ndarray, " members"],
    ) -> float:  # fmt: skip
        """Epsilon of all runs when this ask had been made so many times."""
        trial = Ledger(ledger.plan, ledger.population, run=ledger.run)
        trial.load(ledger.state())
        for more in range(times):
            trial.charge(
                draw=draw + more, round=round + more, step=step, index=index, schema=schema,
                participants=None if ledger.plan.amplifies else participants,
            )  # fmt: skip
        return trial.guarantee(seeded=False).epsilon + self.earlier

    @property
    def earlier(self) -> float:
        """Epsilon of all earlier runs together."""
        return math.fsum(math.inf if run.epsilon is None else run.epsilon for run in self._spent)


def spent_in(run: str, ledger: Ledger) -> Spent:
    """What a run has cost, once it is over."""
    epsilon = ledger.guarantee(seeded=False).epsilon if ledger.entries else 0.0
    return Spent(
        run=run, epsilon=None if math.isinf(epsilon) else epsilon, rounds=len({entry.draw for entry in ledger.entries})
    )
