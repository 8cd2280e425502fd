"""IMIA, the interaction-level membership inference attack on federated recommenders (Yuan et al., WWW 2023).

The rows that an upload touched are the user's items and its sampled negatives, and the share of the former is known
(one in five where a client draws four negatives per item). The procedure as published, for all users at once:

1. Candidates C are the touched rows; a random share of them is guessed positive, the others negative.
2. Local training is simulated on these labels, from the model that was sent and with a newcomer's private parameters.
3. Unconfirmed candidates are ranked by the Euclidean distance between their simulated and their observed row, and the
   lambda |C| (rounded down, plus one, as released) with the smallest distance keep their label.
4. The others get new labels at random, so that the number of positives stays the known one, and training is simulated
   again, until that number is confirmed.

The released settings have lambda 0.9, which keeps nine tenths of the random guesses; 0.2 is far stronger, for five
trainings instead of two. The released code never clears gradients between the steps of a simulated training; here the
training oracle decides what one training is.

The published result is a set and not a ranking. Here items are scored by when their label was confirmed: positives
above 0, the first ones highest; negatives below 0, the first ones lowest; items still unconfirmed when the last
positive was confirmed at 0, where the label is negative too but was never confirmed. The published set is the items
that score above 0, it has exactly the known number of items, and so F1 at the known share is F1 of the published
attack.
"""

import math
from dataclasses import dataclass

import numpy as np

from attacks._scaling import floor_non_candidates, select_smallest
from attacks.membership.oracle import ORACLE_KNOWLEDGE, OracleAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.rows import residual_rows, row_products, upload_support
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class Imia(OracleAttackInfo):
    """Guess labels, simulate training on them, keep labels whose rows fit the observation, guess the others again.

    Attributes:
        confirm: lambda, the share of all candidates whose label is confirmed after each simulation, in (0, 1].
        positive_share: Known share of positives among touched rows, in (0, 1).
        seed: Seed of the random guesses.

    Raises:
        ValueError: If a share is outside its range.
    """

    confirm: float = 0.9
    positive_share: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.confirm <= 1 and 0 < self.positive_share < 1):
            raise ValueError(
                f"Imia got confirm={self.confirm} and positive_share={self.positive_share}; pass shares above 0, the "
                "second below 1."
            )

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return f"IMIA, lambda {self.confirm:g}"

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Prior knowledge that the attack uses."""
        return (*ORACLE_KNOWLEDGE, "the share of positives among touched rows")

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return f"{math.ceil(1 / self.confirm)} local trainings per user"

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
        return (
            "Guesses which touched items are real, repeats the user's training on the guess, and keeps the labels of "
            "items whose simulated rows come out close to the observed ones."
        )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Order of confirmation, positives above 0 and negatives below; untouched rows lower than all others.

        Raises:
            ViewError: If the adversary has no training oracle.
        """
        oracle = knowledge.require_oracle(self.name)
        rng = np.random.default_rng([self.seed, view.round])
        observed = residual_rows(view)
        candidates = upload_support(view).rows & view.present()[:, None]
        # Per user: number of positives among the candidates, and number of labels confirmed after each simulation.
        n_positive = np.rint(self.positive_share * candidates.sum(axis=1)).astype(np.int64).clip(min=1)
        n_confirm = (self.confirm * candidates.sum(axis=1)).astype(np.int64) + 1
        positive = np.zeros_like(candidates)
        confirmed_in = np.zeros(candidates.shape, dtype=np.int64)  # simulation that confirmed a label; 0 if none did
        step = 0
        while True:
            missing = n_positive - (positive & (confirmed_in > 0)).sum(axis=1)
            # A user is finished, and all its labels stay, once as many positives as there are have been confirmed.
            unconfirmed = candidates & (confirmed_in == 0) & (missing > 0)[:, None]
            if not unconfirmed.any():
                break
            step += 1
            active = unconfirmed.any(axis=1, keepdims=True)
            # The smallest of independent uniform keys are a uniform random choice without replacement.
            guessed = select_smallest(rng.random(candidates.shape), unconfirmed, missing)
            positive = (positive & (confirmed_in > 0)) | guessed
            simulated = residual_rows(oracle.simulate_uploads(view.round, positive & active, candidates & active, step))
            difference = observed - simulated  # [users, items, width]
            distance = np.sqrt(row_products(difference, difference))
            confirmed_in[select_smallest(distance, unconfirmed, n_confirm)] = step
        confidence = np.where(confirmed_in > 0, 1 + step - confirmed_in, 0).astype(np.float64)
        order = np.where(positive, confidence, -confidence) / max(step, 1)
        return floor_non_candidates(order, candidates)
