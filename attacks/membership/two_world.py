"""Two-world shadow: which of two replays does a row look like, the one with the label 1 or the one with 0?

IMIA guesses all labels at once and keeps what fits. But local training couples an item to the others only through the
model's shared part, so its row can be judged almost alone, as in the shadow attacks on single records (Carlini et al.,
"Membership inference attacks from first principles", S&P 2022, whose in- and out-models are the two worlds here).

A client without any positive trains nothing, and one whose labels are all 1 trains another head than the real one. So
the candidates (touched rows) are dealt at random into parts, and part k is positive in replay k while all others are
negative. Each item is positive in one replay and negative in the rest, and with five parts every replay has the share
of positives that a client with four negatives per positive has. Let P_i and N_i be the item's rows in the two worlds
(the latter averaged over the replays that touched it) and x_i the row observed. The score is the signed distance from
the plane on which both worlds are equally near,

    s_i = <x_i - (P_i + N_i) / 2, P_i - N_i> / |P_i - N_i|        (= (|x_i - N_i|^2 - |x_i - P_i|^2) / (2 |P_i - N_i|)).

Times |P_i - N_i| it is the log-likelihood ratio of the worlds under Gaussian noise of variance 1. It is not multiplied,
because a replay without the user's private half guesses that length badly. Compared on simulated uploads of a linear
head with a private part, noise 0.2 on every row: AUC 0.953 for this score and the likelihood ratio alike, 0.936 for
the difference of the two distances; dealt into ten parts 0.927, 0.912 and 0.910. Two parts, complementary halves, are
as good there, but where a perceptron is trained beside the rows its bias follows the share of positives: on FedNCF
(MovieLens-100K, round 10, touched rows) two parts gave 0.953, five 0.985.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks._scaling import divide_by_rms, floor_non_candidates
from attacks.membership.oracle import ORACLE_KNOWLEDGE, OracleAttackInfo, residual_rows, row_products
from attacks.views.knowledge import Knowledge
from attacks.views.rows import upload_support
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class TwoWorld(OracleAttackInfo):
    """Compare each row with replays in which the item was positive and negative.

    Attributes:
        parts: Replays; one in so many candidates is positive in each.
        seed: Of the deal.

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
        """Signed distances over their root mean square, so that users compare; untouched rows under all others.

        Raises:
            ViewError: If the adversary has no recipe.
        """
        oracle = knowledge.require_oracle(self.name)
        rng = np.random.default_rng([self.seed, view.round])
        observed = residual_rows(view)
        candidates = upload_support(view).rows & view.present()[:, None]
        key = np.where(candidates, rng.random(candidates.shape), np.inf)
        part = key.argsort(axis=1).argsort(axis=1) % self.parts
        positive = np.zeros_like(observed)
        negative = np.zeros_like(observed)
        times = np.zeros(candidates.shape, dtype=np.float32)
        for number in range(self.parts):
            dealt = candidates & (part == number)
            replayed = residual_rows(oracle.simulate_uploads(view.round, dealt, candidates, 0))
            positive[dealt] = replayed[dealt]
            replayed[dealt] = 0
            negative += replayed
            times += replayed.any(axis=2)
        negative /= np.maximum(times, 1)[:, :, None]
        apart = positive - negative
        length = np.sqrt(row_products(apart, apart))
        nearer = row_products(observed - (positive + negative) / 2, apart)
        distance = np.divide(nearer, length, out=np.zeros_like(nearer), where=candidates & (length > 0))
        return floor_non_candidates(divide_by_rms(distance), candidates)
