"""Aggregate match: does this user take part in the sum at all?

An adversary who knows a user's history can simulate the local training on it and test whether the outcome is a summand
of the released sum: their inner product is large if it is (the statistic of Andrew et al., "One-shot empirical privacy
estimation for federated learning", ICLR 2024, with a simulated update in place of a random canary; that a sum alone
does not stop such tests is the point of Ngo et al., "Secure aggregation is not private against membership inference
attacks", 2024).

Every update points along what most users like. With the candidates' mean m removed from each candidate x_u and from the
sum S, the score is the cosine

    s_u = <x_u - m, S'> / (|x_u - m| |S'|),        S' = S - m <S, m> / <m, m>,

so neither the scale of the sum nor its number of clients needs to be known. For otherwise independent summands the
scores of participants and of others are like two normals |x_u - m| / (sd of the others along that direction) centred,
which falls with the square root of the number of summands.

The unit is a user. The answers (who takes part) are drawn by the server's sampling, but this randomness is not the
neighbour relation of any claim about histories, so no epsilon follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64

from attacks.evaluation.users import UserResult, measure_users
from attacks.membership.oracle import ORACLE_KNOWLEDGE
from attacks.views.knowledge import Knowledge
from attacks.views.rows import residual_rows
from attacks.views.sums import SumView
from attacks.views.types import ViewError

PRESENCE = "in the sum vs not in it"


@dataclass(frozen=True)
class AggregateMatch:
    """Score each known user by the cosine between the simulated update and the sum."""

    name: ClassVar[str] = "aggregate match"
    observable: ClassVar[str] = "the sum of the uploads of one round, and the model that was sent in it"
    adversary: ClassVar[str] = "server"
    knowledge: ClassVar[tuple[str, ...]] = (*ORACLE_KNOWLEDGE, "the full histories of the users asked about")
    unit: ClassVar[str] = "user"
    cost: ClassVar[str] = "one local training per user and sum"
    explains: ClassVar[str] = (
        "Repeats the training of somebody whose history is known and asks whether the outcome points the way that the "
        "sum does."
    )

    def score(
        self, view: SumView, histories: Bool[np.ndarray, "users items"], knowledge: Knowledge
    ) -> Float64[np.ndarray, "users"]:
        """Cosine of each candidate update with the sum; NaN for users without a history.

        Args:
            view: One sum.
            histories: Items that each audited user would have trained on.
            knowledge: Knowledge with a training oracle.

        Raises:
            ViewError: If the adversary has no training oracle, or histories are of other users or items than the sum.
        """
        oracle = knowledge.require_oracle(self.name)
        if histories.shape != (len(view.members), view.total.n_items):
            raise ViewError(
                f"Histories have shape {histories.shape} but the sum is about {len(view.members)} audited users and "
                f"{view.total.n_items} items; pass one history for each of these users."
            )
        known = histories.any(axis=1)
        simulated = oracle.simulate_uploads(view.total.round, histories, np.ones_like(histories), 0)
        updates = residual_rows(simulated).reshape(len(histories), -1)
        total = residual_rows(view.total).reshape(-1)
        mean = updates[known].mean(axis=0)
        # Remove from the sum what every update shares, as from each update below.
        total = total - mean * (total @ mean / max(float(mean @ mean), np.finfo(np.float32).tiny))
        centred = updates - mean
        lengths = np.sqrt(np.einsum("uw,uw->u", centred, centred, dtype=np.float64) * float(total @ total))
        cosine = np.divide(centred @ total, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
        return np.where(known, cosine, np.nan)


def aggregate_match(
    sums: Iterable[SumView],
    histories: Bool[np.ndarray, "users items"],
    knowledge: Knowledge,
    *,
    resamples: int = 200,
    seed: int = 0,
) -> UserResult:
    """Infer for every sum and every audited user with a history whether the user takes part.

    Args:
        sums: Sums, one in memory at a time; may be a generator.
        histories: Items that each audited user would have trained on.
        knowledge: Knowledge with a training oracle.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: As in :meth:`AggregateMatch.score`; or if there is no sum, or everybody takes part in all sums.
    """
    attack = AggregateMatch()
    guesses = [(attack.score(view, histories, knowledge), view.members) for view in sums]
    if not guesses:
        raise ViewError("There is no sum to attack; pass at least one SumView.")
    scores, members = (np.concatenate(part) for part in zip(*guesses, strict=True))
    users = np.tile(np.arange(len(histories)), len(guesses))
    known = ~np.isnan(scores)
    return measure_users(
        attack, scores[known], members[known], PRESENCE, users=users[known], resamples=resamples, seed=seed
    )
