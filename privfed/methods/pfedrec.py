"""PFedRec: a shared item table, a private score function (Zhang et al., IJCAI 2023).

Each client alternates two steps per batch: its private linear head, then its copy of the item table. The server
averages the item tables. The released code also uploads the head's bias, which nobody uses; we do not.
"""

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from privfed.federation import PUBLIC, Call, Message, PrivateHalves, PrivateState, Purpose, Streams
from privfed.methods.local_training import (
    ClientData,
    Parameters,
    draw_samples,
    local_epoch,
    local_tables,
    whole_catalogue,
)
from privfed.methods.method import Method, MethodConfig
from privfed.methods.table_server import TableServer
from privfed.models.heads import LinearHead, kaiming_uniform
from privfed.models.samples import NegativeSampler, touched_rows
from privfed.updates import ClientUpdates, Rows


class PFedRecConfig(MethodConfig):
    """Settings; defaults are those of the released code for ML-100K."""

    dim: int = Field(32, ge=1, description="width of an item vector")
    lr: float = Field(0.1, gt=0, description="learning rate of the private head")
    item_lr_factor: float = Field(80.0, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(1.0, gt=0, description="standard deviation of the initial item table")


class PFedRecClients(PrivateHalves):
    """Private halves: one linear head per user."""

    def __init__(self, config: PFedRecConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = LinearHead(config.dim)
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], config.dim + 1)[0]
        self.private = PrivateState(
            {
                "w": kaiming_uniform((config.dim,), config.dim, unit[:-1]).repeat(data.n_users, 1),
                "b": kaiming_uniform((1,), config.dim, unit[-1:]).repeat(data.n_users),
            }
        )

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch: head step, fresh forward, item step."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        start = message.rows("items", rows.owner, rows.ids)
        table = start.clone()

        def step(p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            self.head.step_head_(p, q, y, weight, c.lr)
            return self.head.item_gradient(p, q, y, weight)

        heads = local_epoch(
            samples,
            rows,
            table,
            self.private.of(call.clients),
            step,
            batch_size=c.batch_size,
            lr_items=c.lr * c.item_lr_factor * self.n_items,
        )
        self.private.stage(call.clients, heads)
        return ClientUpdates(call.clients, call.schema, [Rows("items", rows.owner, rows.ids, table.sub_(start))])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the private head on the client's own copy of the table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        heads = self.private.of(clients) if updates is None else self.private.staged(clients)
        return self.head.logits(heads, local_tables(message, updates, candidates))


METHOD = Method(
    name="pfedrec",
    title="shared item table, private linear score function",
    source="PFedRec, Zhang et al., IJCAI 2023",
    config=PFedRecConfig,
    release="total",
    upload="rows",
    server=TableServer.of_config,
    clients=PFedRecClients,
    reads="the sum of item-table updates",
)
