"""Who takes part in a round, and what that may claim.

A sampling rule is part of the privacy plan because it decides two numbers of the accounting: how many uploads
one user can make in a run, and whether "this user might not have been in the round at all" counts as
protection (amplification by sampling). Amplification needs BOTH a secret, independent inclusion per user
(`Poisson`) AND an adversary who cannot see who answered (central trust). Under local trust the server
receives each answer, so it knows the participants whatever the rule is, and each upload counts in full.
"""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy
from pydantic import BaseModel, ConfigDict, Field

from privfed.privacy.errors import PlanError

Trust = Literal["none", "local", "distributed", "central"]


class _Rule(BaseModel):
    """What every sampling rule can answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    plain_claim: ClassVar[str]

    @property
    def label(self) -> str:
        """Short name used in tables."""
        return " ".join(str(value) for value in self.model_dump().values())

    @abstractmethod
    def expected(self, population: int) -> float:
        """Mean number of participants of one round."""

    def max_cohort(self, population: int) -> int:
        """Largest possible number of participants of one round."""
        return population

    def worst(self, rounds: int, population: int) -> int:
        """Participations that no user can exceed in `rounds` rounds; a proof, not an estimate."""
        self.check(population)
        return rounds

    def likely_worst(self, rounds: int, population: int, confidence: float = 0.99) -> int:
        """Participations that, with probability `confidence`, no user exceeds in `rounds` rounds.

        The union bound over users on the tail of Binomial(rounds, expected / population), and never above
        `worst`. For planning only: what a run claims is counted in its ledger.
        """
        proven = self.worst(rounds, population)
        rate = self.expected(population) / population
        if rate >= 1.0:
            return proven
        counts = np.arange(rounds + 1)
        exceeded = population * scipy.special.bdtrc(counts, rounds, rate)
        return min(proven, int(counts[exceeded <= 1.0 - confidence][0]))

    def check(self, population: int) -> None:
        """Raises PlanError when the rule does not fit the population."""
        if population < 1:
            raise PlanError(f"population = {population} is not allowed: a federation needs at least one user")

    @property
    def secret(self) -> bool:
        """Whether membership is secret and independent, which a trusted aggregator can keep to itself."""
        return False

    def amplifies(self, trust: Trust) -> bool:
        """Whether epsilon may be computed with amplification by sampling under this trust."""
        return self.secret and trust == "central"

    def claim(self, trust: Trust) -> str:
        """What this rule may claim under `trust`, in words for the reader of a report."""
        if self.amplifies(trust):
            return (
                "Each user joins a round by its own random bit and only the trusted aggregator sees who joined, so "
                "amplification by sampling is claimed; it is lost the moment participants become visible."
            )
        return self.plain_claim


class All(_Rule):
    """Every user in every round."""

    kind: Literal["all"] = "all"

    plain_claim: ClassVar[str] = "Every user takes part in every round, so every round counts in full for everybody."

    def expected(self, population: int) -> float:
        """The population."""
        return float(population)


class Poisson(_Rule):
    """Every user joins each round in secret, independently and with the same probability."""

    kind: Literal["poisson"] = "poisson"
    rate: float = Field(gt=0, le=1, description="the probability with which each user joins a round")

    plain_claim: ClassVar[str] = (
        "Each user joins a round by its own random bit, but the adversary sees who answers, so no amplification by "
        "sampling is claimed: every upload counts in full for the user who made it."
    )

    @property
    def secret(self) -> bool:
        """True unless the rate is 1, where nobody can be absent."""
        return self.rate < 1.0

    def expected(self, population: int) -> float:
        """Rate times population."""
        return self.rate * population


class Fixed(_Rule):
    """Exactly `size` users per round, sampled afresh, known to the server."""

    kind: Literal["fixed"] = "fixed"
    size: int = Field(ge=1, description="the number of users sampled for each round")

    plain_claim: ClassVar[str] = (
        "The server picks the users of each round and knows them, so no amplification by sampling is "
        "claimed: epsilon is that of the user who took part most often."
    )

    def expected(self, population: int) -> float:
        """Always `size`."""
        return float(self.max_cohort(population))

    def max_cohort(self, population: int) -> int:
        """Always `size`."""
        return min(self.size, population)

    def check(self, population: int) -> None:
        """Raises PlanError when `size` exceeds the population."""
        super().check(population)
        _fits(self.size, population)


class Epoch(_Rule):
    """Every user once per epoch in a fresh random order, `size` users per round."""

    kind: Literal["epoch"] = "epoch"
    size: int = Field(ge=1, description="the users of one round; the last round of an epoch may have fewer")

    plain_claim: ClassVar[str] = (
        "Every user takes part once per epoch, in an order that the server knows, so no amplification is "
        "claimed: one epoch costs each user exactly one round."
    )

    def expected(self, population: int) -> float:
        """Mean over the rounds of an epoch."""
        return population / self.rounds_per_epoch(population)

    def max_cohort(self, population: int) -> int:
        """`size`, which all rounds of an epoch but perhaps the last have."""
        return min(self.size, population)

    def rounds_per_epoch(self, population: int) -> int:
        """Rounds in which everybody has taken part once."""
        return math.ceil(population / self.size)

    def worst(self, rounds: int, population: int) -> int:
        """One per epoch that has begun."""
        self.check(population)
        return math.ceil(rounds / self.rounds_per_epoch(population))

    def check(self, population: int) -> None:
        """Raises PlanError when `size` exceeds the population."""
        super().check(population)
        _fits(self.size, population)


Sampling = Annotated[All | Poisson | Fixed | Epoch, Field(discriminator="kind")]


def _fits(size: int, population: int) -> None:
    if size > population:
        raise PlanError(
            f"sampling.size = {size} is larger than the population of {population}: use at most "
            f"{population}, or sampling 'all'"
        )
