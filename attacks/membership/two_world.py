"""Two-world shadow: is a row more like a simulation in which its item is positive, or negative?

IMIA guesses all labels at once and keeps what fits. But local training couples an item to the others only through the
model's shared parameters, so its row can be judged almost alone, as in the shadow attacks on single records (Carlini et
al., "Membership inference attacks from first principles", S&P 2022, whose in- and out-models are the two worlds here).

A client without any positive trains nothing, and one whose labels are all 1 trains another head than the real one. So
the candidates (touched rows) are split at random into parts, and part k is positive in simulation k while all others
are negative. Each item is positive in one simulation and negative in the others, and with five parts every simulation
has the share of positives of a client with four negatives per positive. Let P_i and N_i be the item's rows in the two
worlds (the latter averaged over the simulations that touched it) and x_i the observed row. The score is the signed
distance from the plane of equal distance to both worlds,

    s_i = <x_i - (P_i + N_i) / 2, P_i - N_i> / |P_i - N_i|        (= (|x_i - N_i|^2 - |x_i - P_i|^2) / (2 |P_i - N_i|)).

Times |P_i - N_i| it is the log-likelihood ratio of the worlds under Gaussian noise of variance 1. It is not multiplied,
because a simulation without the user's private parameters estimates that length badly. Compared on simulated uploads of
a linear head with a private part, noise 0.2 on every row: AUC 0.953 for this score and the likelihood ratio alike,
0.936 for the difference of the two distances; split into ten parts 0.927, 0.912 and 0.910. Two complementary parts are
as good there, but if a perceptron is trained together with the rows its bias follows the share of positives: on FedNCF
(MovieLens-100K, round 10, touched rows) two parts gave 0.953, five 0.985.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks._scaling import divide_by_rms, floor_non_candidates
from attacks.membership.oracle import ORACLE_KNOWLEDGE, OracleAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.rows import residual_rows, row_products, upload_support
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class TwoWorld(OracleAttackInfo):
    """Compare each row with simulations in which its item is positive and negative.

    Attributes:
        parts: Number of simulations; each candidate is positive in one of them.
        seed: Seed of the random split.

    Raises:
        ValueError: If there are fewer than 2 parts.
    """

    parts: int = 5
    seed: int = 0

    name: ClassVar[str] = "two-world shadow"
    knowledge: ClassVar[tuple[str, ...]] = ORACLE_KNOWLEDGE
    explains: ClassVar[str] = (
        "Repeats the user's training once with an item as positive and otherwise with it as negative, and asks "
        "which of the two the observed row looks like."
    )

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise ValueError(f"TwoWorld got parts={self.parts}; pass at least 2, so that both labels are tried.")

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return f"{self.parts} local trainings per user"

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Signed distances divided by their root mean square; untouched rows lower than all others.

        Raises:
            ViewError: If the adversary has no training oracle.
        """
        oracle = knowledge.require_oracle(self.name)
        rng = np.random.default_rng([self.seed, view.round])
        observed = residual_rows(view)
        candidates = upload_support(view).rows & view.present()[:, None]
        # Ranks of random keys, candidates first: equal parts of each user's candidates.
        key = np.where(candidates, rng.random(candidates.shape), np.inf)
        part = key.argsort(axis=1).argsort(axis=1) % self.parts  # [users, items]
        positive = np.zeros_like(observed)  # [users, items, width]
        negative = np.zeros_like(observed)
        n_negative = np.zeros(candidates.shape, dtype=np.float32)
        for number in range(self.parts):
            in_part = candidates & (part == number)
            # One world number, hence equal randomness: simulations differ in their labels only.
            simulated = residual_rows(oracle.simulate_uploads(view.round, in_part, candidates, 0))
            positive[in_part] = simulated[in_part]
            simulated[in_part] = 0
            negative += simulated
            n_negative += simulated.any(axis=2)
        negative /= np.maximum(n_negative, 1)[:, :, None]
        difference = positive - negative
        length = np.sqrt(row_products(difference, difference))
        projection = row_products(observed - (positive + negative) / 2, difference)
        distance = np.divide(projection, length, out=np.zeros_like(projection), where=candidates & (length > 0))
        return floor_non_candidates(divide_by_rms(distance), candidates)
