"""The matched filter on released sums: an adversary who knows every upload but for what inclusion bits decided.

Differential privacy promises to hold against somebody who knows everybody else's data, and the rest of a person's own.
Where a method's queries use shares of one clip norm, what such an adversary does is known: take from the sums what all
known histories would have sent, and ask of each interaction that inclusion bits decided how much better the sums fit
with it than without. With d the change that the interaction makes to a person's uploads, and R what is left of the
sums, that is <R, d> - |d|^2 / 2 in the coordinates in which noise is the same everywhere: the logarithm of the
likelihood ratio, were the noise Gaussian and nothing else open.

Uploads are those of the method's own clients, on histories that are guessed, clipped as in the run; nothing is trained.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from attacks import Knowledge, ScoreView
from attacks.evaluation import AttackObservation as AttackOutput
from attacks.evaluation import AttackScores
from attacks.membership import observe_scores
from attacks.views import Scores
from privfed.contracts import Schema, share_of
from privfed.data import Histories
from privfed.engines.transcript import Observation
from privfed.experiment import Experiment
from privfed.federation import Call, Clients, begin_query, perform
from privfed.guards import ClientGuard
from privfed.methods import ClientData, PlannedQuery
from privfed.setup.inclusion import InclusionBits
from privfed.updates import ClientUpdates

_NUMBERS_AT_ONCE = 2**25
"""Numbers of dense uploads in memory."""


@dataclass(frozen=True)
class MatchedFilter:
    """What it says of itself in a report."""

    name: ClassVar[str] = "matched filter"
    observable: ClassVar[str] = "the released sums"
    adversary: ClassVar[str] = "whoever knows every history but for what inclusion bits decided"
    knowledge: ClassVar[tuple[str, ...]] = ("everybody's histories but for what inclusion bits decided",)
    unit: ClassVar[str] = "interaction"
    cost: ClassVar[str] = "one upload per interaction"
    explains: ClassVar[str] = (
        "Takes from the sums what all known histories sent, and tests for each interaction whether the rest fits "
        "better with it or without."
    )


def filtered(experiment: Experiment, observations: Sequence[Observation], knowledge: Knowledge) -> AttackOutput | None:
    """What popularity and the filter say of the inclusion bits; None where there are none, or sums that it cannot read.

    Args:
        experiment: after its run.
        observations: of tap `sum`.
        knowledge: of the audited users' items; the filter needs no more of it than popularity.
    """
    queries = experiment.registered.training.program(experiment.server)
    sums = {name: values for seen in observations for name, values in seen.tensors.items()}
    shared = len(queries) > 1 and all(share_of(query.schema) < 1 for query in queries)
    # A method may cut a planned block by what it was shown before; what is left of the plan cannot be read then.
    whole = all(
        name in sums and sums[name].shape == block.shape for query in queries for name, block in query.schema.items()
    )
    # Uploads follow from what was asked with; a server that has changed that since, and does not keep it, tells nobody.
    told = all(query.message is not None for query in queries)
    readable = shared and experiment.registered.training.step is None and whole and told
    if not readable or experiment.inclusion is None or not len(experiment.inclusion):
        return None
    scores = _Filter(experiment, queries).scores(experiment.inclusion, sums)
    everybody = np.ones(len(scores), dtype=bool)
    popularity = observe_scores(ScoreView(0, scores.astype(np.float32)), knowledge).by_attack[0]
    return AttackOutput((popularity, AttackScores(MatchedFilter(), scores, everybody, 1, 0.0)), None)


@dataclass(frozen=True, slots=True, eq=False)
class _Filter:
    """Uploads on guessed histories.

    Attributes:
        experiment: whose method, settings and public tensors are used.
        queries: of a round; each is made by a step of the name of its first block.
    """

    experiment: Experiment
    queries: Sequence[PlannedQuery]

    def scores(self, inclusion: InclusionBits, sums: Mapping[str, Tensor]) -> Scores:
        """Of every interaction that inclusion bits decided; 0 elsewhere."""
        known = (
            InclusionBits(inclusion.users, np.zeros_like(inclusion.kept), inclusion.decided)
            .applied_to(self.experiment.parts)
            .train
        )
        audited, (who, items) = known.subset(inclusion.users), np.nonzero(inclusion.decided)
        guessed, scores = _with_one_more(audited, who, items), np.zeros(inclusion.kept.shape)
        for index in range(len(self.queries)):
            left = self._left(index, known, sums)
            without = torch.cat([uploads for _, uploads in self._uploads(index, audited)])
            for indices, uploads in self._uploads(index, guessed):
                change = (uploads - without[who[indices]]).double()
                scores[who[indices], items[indices]] += (change @ left - change.square().sum(1) / 2).numpy()
        return scores

    def _left(self, index: int, known: Histories, sums: Mapping[str, Tensor]) -> Float64[Tensor, " size"]:
        """Released sums of a query less what known histories would have sent, each in units of its noise."""
        schema, clients = self.queries[index].schema, self._clients(known)
        sent = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in schema.items()}
        for users in torch.split(torch.arange(known.n_users), self._at_once(schema)):
            self._sent(clients, index, users).add_to(sent)
        return torch.cat([(sums[name].double() - sent[name]).flatten() * schema[name].weight for name in schema])

    def _uploads(
        self, index: int, histories: Histories
    ) -> Iterator[tuple[Int64[np.ndarray, " n"], Float[Tensor, "n size"]]]:
        """Dense weighted uploads on histories, some at a time, with their numbers."""
        schema, clients = self.queries[index].schema, self._clients(histories)
        for users in torch.split(torch.arange(histories.n_users), self._at_once(schema)):
            sent = self._sent(clients, index, users).materialise(torch.arange(len(users)))
            yield users.numpy(), torch.cat([sent[name].flatten(1) * schema[name].weight for name in schema], 1)

    def _sent(self, clients: Clients, index: int, users: Int64[Tensor, " users"]) -> ClientUpdates:
        """What these users would have sent, clipped."""
        e, query = self.experiment, self.queries[index]
        call = Call(0, 0, next(iter(query.schema)), index, users, e.streams, query.schema)
        message = query.message
        if message is None:
            raise ValueError(f"the message of query {index} is not known: filter where every planned query has its own")
        begin_query(clients, call.step, message)
        sent = perform(clients, call, message)
        ClientGuard(e.config.privacy, e.streams).clip_(sent)
        return sent

    def _clients(self, histories: Histories) -> Clients:
        e = self.experiment
        return e.registered.training.clients(e.config.settings(), ClientData(histories, histories), e.streams)

    def _at_once(self, schema: Schema) -> int:
        return max(_NUMBERS_AT_ONCE // sum(block.size for block in schema.values()), 1)


def _with_one_more(
    histories: Histories, who: Int64[np.ndarray, " pairs"], items: Int64[np.ndarray, " pairs"]
) -> Histories:
    """One history for every pair: that of the person, and the item."""
    counts = histories.counts[who]
    first = np.repeat(histories.indptr[who] - (np.cumsum(counts) - counts), counts)
    items_before = histories.items[first + np.arange(counts.sum())]
    owners = np.concatenate([np.repeat(np.arange(len(who)), counts), np.arange(len(who))])
    return Histories.from_pairs(owners, np.concatenate([items_before, items]), len(who), histories.n_items)
