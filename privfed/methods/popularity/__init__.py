"""Popularity: rank items by how many users have them. The row every table must beat.

Each client sends the set of its training items once; the server needs their sum only. Exact counts carry no
guarantee (epsilon = inf): differentially private popularity is another method.
"""

from collections.abc import Mapping
from typing import Final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from privfed.compute.devices import on_host, placed
from privfed.contracts import Block, DefaultClip, MethodTraits, Schema
from privfed.federation import Call, Federation, Message, PrivateState, StatefulClients, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, MethodConfig, PublicInfo, ServerReads, Training
from privfed.updates import ClientUpdates, Rows

COUNT: Final = "count"
COUNTS: Final = "counts"
"""Names of the step that clients answer, and of what they send and the server publishes."""


class PopularityConfig(MethodConfig):
    """No settings."""


class PopularityServer:
    """Server: one count per item, from one query in the first round."""

    def __init__(self, config: PopularityConfig, public_info: PublicInfo, streams: Streams) -> None:  # noqa: ARG002
        self.counts, self.queried = torch.zeros(public_info.n_items, 1), torch.tensor(False)  # noqa: FBT003 (a tensor's value)
        opened = public_info.donors
        self._opened = None if opened is None else placed(opened.popularity()).float().unsqueeze(1)
        self.schema: Schema = {COUNTS: Block((public_info.n_items, 1), bound=1)}

    def round(self, federation: Federation, t: int) -> None:
        """Count in the first round; later rounds have no query."""
        if not self.queried:
            release = federation.aggregate(COUNT, federation.sample_cohort(t), self.public(), self.schema)
            counts = release.sums[COUNTS]
            self.counts = counts if self._opened is None else counts + self._opened
            self.queried = torch.tensor(True)  # noqa: FBT003 (a tensor's value)

    def public(self) -> Message:
        """The counts."""
        return Message({COUNTS: self.counts})

    def state(self) -> dict[str, Tensor]:
        """The counts, and whether the query has run."""
        return {"counts": self.counts, "queried": self.queried}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.counts, self.queried = state["counts"], state["queried"]


class PopularityClients(StatefulClients):
    """Clients: the users' training items, and no parameters."""

    steps = frozenset({COUNT})

    def __init__(self, config: PopularityConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.positives = data.positives
        self.private = PrivateState({})

    def count(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """A one for every training item."""
        mine = self.positives.subset(on_host(call.clients))
        order = placed(mine.owners * mine.n_items + mine.items).sort().values
        owner, ids = order // mine.n_items, order % mine.n_items
        return ClientUpdates(call.clients, call.schema, [Rows(COUNTS, owner, ids, torch.ones(len(ids), 1))])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Counts as a share of the largest, the same for everybody: small enough that a sigmoid keeps them apart."""
        counts = message.shared[COUNTS][:, 0]
        shares = counts / counts.max().clamp(min=1)
        return shares.expand(len(clients), -1) if candidates is None else shares[candidates]


class CountsModel(nn.Module):
    """The same list for every history."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        counts = tensors[COUNTS][:, 0]
        self.shares = nn.Buffer(counts / counts.max().clamp(min=1))

    def forward(self, histories: Float[Tensor, "n items"]) -> Float[Tensor, "n items"]:
        """Counts as a share of the largest."""
        return self.shares + 0 * histories


class PopularityTraining(Training):
    """Items are counted once; there is nothing to train."""

    server = PopularityServer
    clients = PopularityClients
    step = None
    learns_from_donors = True


METHOD = Method(
    name="popularity",
    title="most popular items for everybody",
    display_name="Popularity",
    source="counting",
    config=PopularityConfig,
    traits=MethodTraits(release="total", upload=COUNTS, uploads_once=True),
    training=PopularityTraining(),
    attack_surface=NamedBlocks(COUNTS),
    disclosure=ServerReads("how many users have each item"),
    history_model=CountsModel,
    clip_norms=(
        DefaultClip("upload", 8.0, 1.0, "the median norm on MovieLens-100K, by rule and not by quality"),
        DefaultClip("upload_l1", 60.0, 1.0, "the median L1 norm on MovieLens-100K, by rule and not by quality"),
    ),
)
