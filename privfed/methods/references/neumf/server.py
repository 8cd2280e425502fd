"""The server of NeuMF: rows of users and items, and the layers between them."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding

from privfed.data import Histories
from privfed.federation import PUBLIC, Message, Purpose, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.references.neumf.model import NeuMFConfig, logits
from privfed.methods.references.shared.collecting import POPULARITY, shares
from privfed.methods.references.shared.training import AdamServer, Draws, Parameters, with_lists
from privfed.methods.references.shared.triples import Triples, epoch_of_triples, ranking_loss
from privfed.methods.shared.table_server import initial_table

USERS = "users"


class NeuMFServer(AdamServer):
    """Server: devices get all but the users' rows, and each its own; a user without a list gets zeros."""

    def __init__(self, config: NeuMFConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, width = config, config.dim + config.mlp_dim
        users = streams.normal(Purpose.INITIALISE, 0, 1, [PUBLIC], public_info.n_users * width)[0]
        unit = streams.uniform(Purpose.INITIALISE, 0, 2, [PUBLIC], config.size)[0]
        parameters = {
            USERS: users.view(-1, width).mul_(config.initial_scale),
            "items": initial_table(streams, public_info.n_items, width, config.initial_scale),
            **config.initial(unit),
        }
        super().__init__("neumf", config, public_info, streams, parameters)

    def epoch(self, lists: Histories, draws: Draws) -> None:
        """Every interaction once."""
        for triples in epoch_of_triples(lists, self.config.negatives, self.config.batch_size, draws):
            self.descend(self.loss, triples)

    def loss(self, parameters: Parameters, triples: Triples) -> Float[Tensor, ""]:
        """Ranking loss of a batch."""
        users = embedding(triples.users, parameters[USERS]).unsqueeze(1)
        items = embedding(triples.items, parameters["items"])
        return ranking_loss(self.config.loss, logits(self.config, parameters, users, items))

    def published(self, lists: Histories) -> Message:
        """Items and layers for everybody, popularity for users of whom nothing is known, and each user's own row."""
        shared = {name: value for name, value in self.parameters.items() if name != USERS}
        own = self.parameters[USERS] * with_lists(lists).unsqueeze(1)
        return Message({**shared, POPULARITY: shares(lists)}, {"user": own})
