"""Aggregate match: was this person in the sum at all?

An adversary who knows somebody's history can repeat the local training on it and asks whether the outcome is a summand
of the sum that was opened: their inner product is large if it is (the statistic of Andrew et al., "One-shot empirical
privacy estimation for federated learning", ICLR 2024, with a replayed update in place of a random canary; that a sum
alone does not stop such tests is the point of Ngo et al., "Secure aggregation is not private against membership
inference attacks", 2024).

Every update points along what everybody likes. With the candidates' mean m taken out of each candidate x_u and of the
sum S, the score is the cosine

    s_u = <x_u - m, S'> / (|x_u - m| |S'|),        S' = S - m <S, m> / <m, m>,

so neither the scale of the sum nor the number of clients in it needs to be known. For summands that are otherwise
independent it separates like two normals |x_u - m| / (sd of the others along that direction) apart, which falls with
the square root of their number.

The unit is a user. The answers (who took part) are drawn by the server's sampling, but that coin is not the neighbour
relation of any claim about histories, so no epsilon follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64

from attacks.evaluation.users import UserResult, measure_users
from attacks.membership.oracle import ORACLE_KNOWLEDGE, residual_rows
from attacks.views.knowledge import Knowledge
from attacks.views.sums import SumView
from attacks.views.types import ViewError

PRESENCE = "in the sum vs not in it"


@dataclass(frozen=True)
class AggregateMatch:
    """Score each known user by how well the replayed update fits the sum."""

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
        self, seen: SumView, histories: Bool[np.ndarray, "users items"], knowledge: Knowledge
    ) -> Float64[np.ndarray, "users"]:
        """Cosine of each candidate update with the sum; NaN for users without a history.

        Args:
            seen: One sum.
            histories: What each audited user would have trained on.
            knowledge: With the recipe.

        Raises:
            ViewError: If the adversary has no recipe, or histories are of other users or items than the sum.
        """
        oracle = knowledge.require_oracle(self.name)
        if histories.shape != (len(seen.members), seen.total.n_items):
            raise ViewError(
                f"Histories have shape {histories.shape} but the sum is about {len(seen.members)} audited users and "
                f"{seen.total.n_items} items; pass one history for each of these users."
            )
        known = histories.any(axis=1)
        simulate_uploads = oracle.simulate_uploads(seen.total.round, histories, np.ones_like(histories), 0)
        updates = residual_rows(simulate_uploads).reshape(len(histories), -1)
        total = residual_rows(seen.total).reshape(-1)
        mean = updates[known].mean(axis=0)
        total = total - mean * (total @ mean / max(float(mean @ mean), np.finfo(np.float32).tiny))
        apart = updates - mean
        length = np.sqrt(np.einsum("uw,uw->u", apart, apart, dtype=np.float64) * float(total @ total))
        cosine = np.divide(apart @ total, length, out=np.zeros(len(length)), where=length > 0)
        return np.where(known, cosine, np.nan)


def aggregate_match(
    sums: Iterable[SumView],
    histories: Bool[np.ndarray, "users items"],
    knowledge: Knowledge,
    *,
    resamples: int = 200,
    seed: int = 0,
) -> UserResult:
    """Ask of every sum and every audited user with a history whether the user is in it.

    Args:
        sums: One in memory at a time; may be a generator.
        histories: What each audited user would have trained on.
        knowledge: With the recipe.
        resamples: Bootstrap resamples of users.
        seed: Of the bootstrap.

    Raises:
        ViewError: As :meth:`AggregateMatch.score`; or if there is no sum, or everybody is in all sums.
    """
    attack = AggregateMatch()
    looks = [(attack.score(seen, histories, knowledge), seen.members) for seen in sums]
    if not looks:
        raise ViewError("There is no sum to attack; pass at least one SumView.")
    scores, members = (np.concatenate(part) for part in zip(*looks, strict=True))
    users = np.tile(np.arange(len(histories)), len(looks))
    known = ~np.isnan(scores)
    return measure_users(
        attack, scores[known], members[known], PRESENCE, users=users[known], resamples=resamples, seed=seed
    )
