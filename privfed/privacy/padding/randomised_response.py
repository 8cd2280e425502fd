"""`RandomisedResponse`: every item of the catalogue answers by itself.

A true item answers with probability q, any other with p (Warner 1965; Erlingsson, Pihur and Korolova 2014). Adding or
removing one item costs max(ln(q / p), ln((1 - p) / (1 - q))), changing one into another ln(q (1 - p) / (p (1 - q))):
two answers change. True items that do not answer take no part in training at all.
"""

import math
from typing import Literal, Self

import numpy as np
from jaxtyping import Bool, Float64, UInt32
from pydantic import Field, model_validator

from privfed.privacy.errors import PlanError
from privfed.privacy.padding.base import IN_SUMS, WORD_RANGE, SampledPadding, Seed, SupportClaim
from privfed.privacy.wording import number


class RandomisedResponse(SampledPadding):
    """Every item answers by itself, once and for all."""

    kind: Literal["randomised_response"] = "randomised_response"
    epsilon: float = Field(gt=0, le=50, description="the privacy loss of adding or removing one private item")
    keep: float = Field(
        default=0.5, gt=0, lt=1, description="q: the probability that a private item answers, and so may train"
    )
    seed: Seed = 0

    @model_validator(mode="after")
    def _answers_differ(self) -> Self:
        if not self.thresholds[1] < self.thresholds[0]:
            raise PlanError(
                f"epsilon = {self.epsilon:g} with keep = {self.keep:g} leaves less than a step of a 32-bit "
                f"word between the answers of true and of other items: choose keep nearer to 0.5 or a larger epsilon"
            )
        return self

    @property
    def others(self) -> float:
        """p: the probability that any other item answers, the smallest that epsilon allows."""
        return max(self.keep * math.exp(-self.epsilon), 1 - math.exp(self.epsilon) * (1 - self.keep))

    @property
    def thresholds(self) -> tuple[int, int]:
        """(q, p) in steps of 2^-32, rounded towards the safe side: q down, p up."""
        return math.floor(self.keep * WORD_RANGE), math.ceil(self.others * WORD_RANGE)

    @property
    def realised(self) -> tuple[float, float]:
        """Epsilon of adding or removing one item, and of swapping one, at the probabilities that really run."""
        q, p = (t / WORD_RANGE for t in self.thresholds)
        up, down = math.log(q / p), math.log((1 - p) / (1 - q))
        return max(up, down), up + down

    @property
    def label(self) -> str:
        return f"randomised response (eps = {number(self.epsilon)} an item, q = {number(self.keep)})"

    @property
    def claim(self) -> SupportClaim:
        one, swap = self.realised
        return SupportClaim(
            padding=self.label,
            epsilon=one,
            epsilon_swap=swap,
            sentence=(
                f"Which rows a client sends is sampled once by randomised response: adding or removing ONE ITEM "
                f"changes the odds by at most e^{one:.4g}, replacing one by another by e^{swap:.4g}, and k items "
                "cost k times that. This is about one history under one setting, whose answers the device keeps: a row "
                "that appears when the history has grown shows that it has, and answers under two settings come from "
                "the same random words and say more together. It covers the rows alone; released sums are another "
                f"channel. {IN_SUMS}"
            ),
        )

    @property
    def answer_rates(self) -> tuple[float, float | None]:
        kept, others = self.thresholds
        return kept / WORD_RANGE, others / WORD_RANGE

    def sample(
        self,
        private: Bool[np.ndarray, "users items"],
        known: Bool[np.ndarray, "users items"],
        uints: UInt32[np.ndarray, "users items"],
        popularity: Float64[np.ndarray, " items"] | None,
    ) -> tuple[Bool[np.ndarray, "users items"], Bool[np.ndarray, "users items"]]:
        del popularity
        # Whole words are compared with whole thresholds, so the probabilities are those of `realised` to the bit.
        q, p = self.thresholds
        return private & (uints < np.uint64(q)), ~private & ~known & (uints < np.uint64(p))
