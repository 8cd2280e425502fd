"""FedMF: federated matrix factorisation with private user vectors (Chai et al., IEEE Intelligent Systems 2021).

The implicit-feedback form used as a baseline by GPFedRec (KDD 2024): sigma(u . v) with binary cross-entropy and
sampled negatives; u never leaves the device, item updates are averaged. The original's homomorphic encryption is a
way to sum, not part of the model.
"""

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from privfed.federation import Call, Message, PrivateHalves, PrivateState, Purpose, Streams
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
from privfed.models.heads import LinearHead
from privfed.models.samples import NegativeSampler, touched_rows
from privfed.updates import ClientUpdates, Rows


class FedMFConfig(MethodConfig):
    """Settings; learning rates were chosen by validation HR@10 on ML-100K (docs/reproduction.md)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    lr: float = Field(0.1, gt=0, description="base learning rate")
    user_lr_factor: float = Field(20.0, gt=0, description="user learning rate = lr x this")
    item_lr_factor: float = Field(10.0, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")


class FedMFClients(PrivateHalves):
    """Private halves: one vector per user, drawn by the user's own key."""

    def __init__(self, config: FedMFConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = LinearHead(config.dim, bias=False)
        vectors = streams.normal(Purpose.INITIALISE, 0, 0, range(data.n_users), config.dim)
        self.private = PrivateState({"w": vectors.mul_(config.initial_scale)})

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch of joint SGD on the user vector and the touched item rows."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        start = message.rows("items", rows.owner, rows.ids)
        table = start.clone()

        def step(p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            dq = self.head.item_gradient(p, q, y, weight)
            self.head.step_head_(p, q, y, weight, c.lr * c.user_lr_factor)
            return dq

        vectors = local_epoch(
            samples,
            rows,
            table,
            self.private.of(call.clients),
            step,
            batch_size=c.batch_size,
            lr_items=c.lr * c.item_lr_factor * self.n_items,
        )
        self.private.stage(call.clients, vectors)
        update = Rows("items", rows.owner, rows.ids, table.sub_(start))
        return ClientUpdates(call.clients, call.schema, [update])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """U . v with the client's own copy of the item vectors."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        vectors = self.private.of(clients) if updates is None else self.private.staged(clients)
        return self.head.logits(vectors, local_tables(message, updates, candidates))


METHOD = Method(
    name="fedmf",
    title="matrix factorisation, private user vectors",
    source="FedMF, Chai et al., IEEE Intelligent Systems 2021",
    config=FedMFConfig,
    release="total",
    upload="rows",
    server=TableServer.of_config,
    clients=FedMFClients,
    reads="the sum of item-vector updates",
)
