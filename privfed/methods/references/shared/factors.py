"""References with a vector for every user and every item, whose inner products are the scores."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import embedding

from privfed.contracts import MethodTraits
from privfed.data import Histories
from privfed.federation import PUBLIC, Message, Purpose, Streams
from privfed.methods.method import MethodConfig, PublicInfo, ServerReads
from privfed.methods.references.shared.central import CentralTraining
from privfed.methods.references.shared.collecting import POPULARITY, shares
from privfed.methods.references.shared.revealing import RevealingClients, or_popular
from privfed.methods.references.shared.training import AdamServer, Draws, Parameters, with_lists
from privfed.methods.references.shared.triples import RankingLoss, Triples, epoch_of_triples, ranking_loss
from privfed.methods.shared.table_server import initial_table
from privfed.methods.shared.vae_inputs import OwnRows

VECTORS = "vectors"

CENTRAL = MethodTraits(release="individual", upload="rows", uploads_once=True)
"""Traits of a reference: every list leaves in the first round, and nothing later."""

WHOLE_LIST = ServerReads("every user's whole interaction list")
"""Disclosure of a reference."""


class FactorConfig(MethodConfig):
    """Settings of vectors that are trained on sampled items."""

    dim: int = Field(64, ge=1, description="width of user and item vectors")
    loss: RankingLoss = Field("bpr", description="bpr: the taken item above a drawn one; bce: taken or drawn")
    negatives: int = Field(1, ge=1, description="items drawn for every interaction in every pass")
    batch_size: int = Field(2048, ge=1, description="interactions per gradient step")
    lr: float = Field(1e-3, gt=0, description="learning rate of Adam")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty on all vectors in every step")
    regularisation: float = Field(
        1e-4, ge=0, description="weight of half the squared lengths of a batch's vectors, on average over it"
    )
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial vectors")
    epochs: int = Field(1, ge=1, description="passes over all interactions in a round")


class FactorServer(AdamServer):
    """Server: one table, items first and then users, and the scores' loss on sampled items.

    Devices get the items' vectors, and each its own user vector; a user without a list gets zeros.
    """

    def __init__(self, name: str, config: FactorConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, size = config, public_info.n_users * config.dim
        users = streams.normal(Purpose.INITIALISE, 0, 1, [PUBLIC], size)[0].view(-1, config.dim)
        items = initial_table(streams, public_info.n_items, config.dim, config.initial_scale)
        table = torch.cat([items, users.mul_(config.initial_scale)])
        super().__init__(name, config, public_info, streams, {VECTORS: table})

    def epoch(self, lists: Histories, draws: Draws) -> None:
        """Every interaction once."""
        for triples in epoch_of_triples(lists, self.config.negatives, self.config.batch_size, draws):
            self.descend(self._loss_of_parameters, triples)

    def loss(self, vectors: Float[Tensor, "nodes dim"], triples: Triples) -> Float[Tensor, ""]:
        """Ranking loss of a batch by the final vectors, and the lengths of the vectors that are learned."""
        c = self.config
        logits = self.logits(self.final(vectors), triples)
        return ranking_loss(c.loss, logits) + c.regularisation / 2 * self.lengths(vectors, triples)

    def final(self, vectors: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """The vectors whose inner products are scores; here those that are learned."""
        return vectors

    def logits(self, vectors: Float[Tensor, "nodes dim"], triples: Triples) -> Float[Tensor, "batch k"]:
        """Scores of a batch's items."""
        users = embedding(self.n_items + triples.users, vectors)
        return (users.unsqueeze(1) * embedding(triples.items, vectors)).sum(2)

    def lengths(self, vectors: Float[Tensor, "nodes dim"], triples: Triples) -> Float[Tensor, ""]:
        """Squared lengths of the vectors of a batch's users and items, added up and divided by its size."""
        nodes = torch.cat([(self.n_items + triples.users).unsqueeze(1), triples.items], 1)
        return embedding(nodes, vectors).square().sum() / len(nodes)

    def published(self, lists: Histories) -> Message:
        """Final vectors, and popularity for users of whom nothing is known."""
        items, users = torch.split(self.final(self.parameters[VECTORS]), [self.n_items, self.n_users])
        return vectors_message(items, users, lists)

    def _loss_of_parameters(self, parameters: Parameters, triples: Triples) -> Float[Tensor, ""]:
        return self.loss(parameters[VECTORS], triples)


def vectors_message(items: Float[Tensor, "items dim"], users: Float[Tensor, "users dim"], lists: Histories) -> Message:
    """All items' vectors for everybody, and each user's own; zeros for users without a list."""
    own = users * with_lists(lists).unsqueeze(1)
    return Message({"items": items, POPULARITY: shares(lists)}, {"user": own})


class FactorClients(RevealingClients):
    """The clients; a device scores by the vector that the server sends to it alone."""

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:  # noqa: ARG002
        """Inner products."""
        return or_popular(model["user"] @ model["items"].T, model[POPULARITY])


class FactorTraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    clients = FactorClients
