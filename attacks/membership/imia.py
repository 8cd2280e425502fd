"""IMIA, the interaction-level membership inference attack on federated recommenders (Yuan et al., WWW 2023).

The rows that an upload touched are the user's items and its sampled negatives, and the share of the former is known
(one in five where a client draws four negatives per item). The procedure as published, for all users at once:

1. Candidates C are the touched rows; a random share of them is guessed positive, the others negative.
2. Local training is repeated on these labels, from the model that was sent and with a newcomer's private half.
3. Unconfirmed candidates are ranked by the Euclidean distance between their replayed and their observed row, and the
   lambda |C| (rounded down, and one more, as released) with the smallest distance keep the label they had.
4. The others get new labels at random, so that the number of positives stays the known one, and training is repeated,
   until that number is confirmed.

The released settings have lambda 0.9, which keeps nine tenths of what chance alone chose; 0.2 is far stronger, for five
trainings instead of two. The released code never clears gradients between the steps of a replay; here a replay is
whatever training the recipe repeats.

The result is a set and not a ranking. Items are scored by when their label was confirmed: positives above 0, the first
ones highest; negatives below, the first ones lowest; items that were still open when the last positive was confirmed
at 0, where their label is negative too but nobody vouched for it. The set is what scores above 0, it has exactly the
known number of items, and so F1 at the known share is F1 of the published attack.
"""

import math
from dataclasses import dataclass

import numpy as np

from attacks._scaling import floor_non_candidates, select_smallest
from attacks.membership.oracle import ORACLE_KNOWLEDGE, OracleAttackInfo, residual_rows, row_products
from attacks.views.knowledge import Knowledge
from attacks.views.rows import upload_support
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class Imia(OracleAttackInfo):
    """Guess labels, train on them, keep those whose rows come out right, guess the rest again.

    Attributes:
        confirm: lambda, the share of all candidates whose label is kept in each replay, in (0, 1].
        positive_share: Known share of positives among touched rows, in (0, 1).
        seed: Of the guesses.

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
        """What the attack uses besides the view."""
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
            "items whose replayed rows come out close to the observed ones."
        )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Order of confirmation, positives above 0 and negatives below; untouched rows under all others.

        Raises:
            ViewError: If the adversary has no recipe.
        """
        oracle = knowledge.require_oracle(self.name)
        rng = np.random.default_rng([self.seed, view.round])
        observed = residual_rows(view)
        candidates = upload_support(view).rows & view.present()[:, None]
        wanted = np.rint(self.positive_share * candidates.sum(axis=1)).astype(np.int64).clip(min=1)
        at_once = (self.confirm * candidates.sum(axis=1)).astype(np.int64) + 1
        positive = np.zeros_like(candidates)
        confirmed_in = np.zeros(candidates.shape, dtype=np.int64)
        step = 0
        while True:
            found = (positive & (confirmed_in > 0)).sum(axis=1)
            missing = wanted - found
            open_pairs = candidates & (confirmed_in == 0) & (missing > 0)[:, None]
            if not open_pairs.any():
                break
            step += 1
            active = open_pairs.any(axis=1, keepdims=True)
            guessed = select_smallest(rng.random(candidates.shape), open_pairs, missing)
            positive = (positive & (confirmed_in > 0)) | guessed
            replayed = residual_rows(oracle.simulate_uploads(view.round, positive & active, candidates & active, step))
            apart = observed - replayed
            distance = np.sqrt(row_products(apart, apart))
            confirmed_in[select_smallest(distance, open_pairs, at_once)] = step
        surer = np.where(confirmed_in > 0, 1 + step - confirmed_in, 0).astype(np.float64)
        order = np.where(positive, surer, -surer) / max(step, 1)
        return floor_non_candidates(order, candidates)
