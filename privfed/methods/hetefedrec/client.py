"""The clients of HeteFedRec and its baselines: user vectors, local training, scores."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.groups import assign_groups
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.padding import Tile, sample_tiles
from privfed.methods.hetefedrec.prefix_heads import Parameters, PrefixHeads
from privfed.methods.hetefedrec.sampling import DistinctSamples, draw_distinct
from privfed.methods.hetefedrec.scoring import Scorer
from privfed.methods.hetefedrec.training import ReceivedModel, TileTraining, TrainedTile
from privfed.methods.hetefedrec.uploads import UploadBuilder
from privfed.updates import ClientUpdates


class HeteFedRecClients(StatefulClients):
    """Clients: one vector per user, as wide as the widest group's; a client uses its own width of it.

    Args:
        config: settings.
        data: what the hosted users know.
        streams: addressed randomness.
    """

    steps = frozenset({"train"})

    def __init__(self, config: HeteFedRecConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.data, self.layout = config, data, ModelLayout.from_config(config)
        everybody = data.everybody
        self.group = placed(assign_groups(config, everybody.activity, streams, everybody.users))
        self.model = torch.tensor(self.layout.of_group)[self.group]
        self._sends = torch.isin(self.group, torch.tensor(self.layout.sending, dtype=torch.int64))
        self._streams = streams

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.widths[-1])
            return {"user": vectors.mul_(config.initial_user_scale)}

        self.private = data.private_state(start)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local training; with `standalone` a device trains before it recommends, and nothing is sent."""
        if not self.layout.sending:
            return ClientUpdates(call.clients, call.schema, [])
        round, query_id = (0, 0) if self.config.fixed_negatives else (call.round, call.query_id)
        samples = self._samples(call.clients, call.streams, round, query_id)
        vectors = self.private.rows(call.clients)["user"]
        outbox = UploadBuilder(self.layout, call.schema, self.model[call.clients], samples, self._sends[call.clients])
        for model, tile, trained in self._trained(call.clients, samples, message, vectors, self.config.steps):
            width, real = self.layout.models[model].width, len(tile.clients)
            vectors[tile.clients, :width] = trained.user[:real]
            outbox.put(model, tile, trained)
        self.private.stage(call.clients, {"user": vectors})
        return ClientUpdates(call.clients, call.schema, outbox.parts())

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of each client's own head on its own copy of its table."""
        scorer = Scorer(self.layout, self.data, message)
        if not self.layout.sending:
            return self._alone(scorer, clients, message, candidates)
        state = self.private.rows(clients) if updates is None else self.private.staged(clients)
        return scorer.received(clients, self.model[clients], state["user"], updates, candidates)

    def size_as_sent(self, users: Int64[Tensor, " n"], uploads: Mapping[str, Tensor]) -> None:
        """Give users the size that their uploads show: that of the widest segment which is not zero.

        Args:
            users: users whose uploads these are.
            uploads: theirs, block name -> `[n, *shape]`.
        """
        for model in range(len(self.layout.models)):
            widest = self.layout.held(model)[-1].block
            self.model[users[uploads[widest].flatten(1).any(1)]] = model
        self._sends[users] = True

    def _alone(
        self, scorer: Scorer, clients: Tensor, message: Message, candidates: Tensor | None
    ) -> Float[Tensor, "clients c"]:
        """Train every device from the public start for `standalone_steps`, then score; nothing is kept."""
        samples = self._samples(clients, self._streams, 0, 0)
        vectors = self.private.rows(clients)["user"]
        scores = scorer.received(clients, self.model[clients], vectors, None, candidates)
        for model, tile, trained in self._trained(clients, samples, message, vectors, self.config.standalone_steps):
            some = None if candidates is None else candidates[tile.clients]
            scores[tile.clients] = scorer.trained(clients[tile.clients], model, tile, trained, some)
        return scores

    def _trained(
        self, clients: Tensor, samples: DistinctSamples, message: Message, vectors: Tensor, steps: int
    ) -> Iterator[tuple[int, Tile, TrainedTile]]:
        """Every tile with what local training made of it."""
        heads = [self.layout.heads(model) for model in range(len(self.layout.models))]
        stacked = [self._stacked(heads[model], model, message) for model in range(len(heads))]
        for model, tile in sample_tiles(samples, self.model[clients], self.data.n_items):
            mine, received = self.layout.models[model], self._received(model, tile, message, vectors, stacked[model])
            training = TileTraining(self.config, heads[model], tile, received, decorrelated=mine.decorrelated)
            yield model, tile, training.run(steps)

    def _received(self, model: int, tile: Tile, message: Message, vectors: Tensor, heads: Parameters) -> ReceivedModel:
        """The model that a tile's clients start from."""
        mine, flat = self.layout.models[model], tile.items.view(-1)
        user = vectors.new_zeros(len(tile.items), mine.width)
        user[: len(tile.clients)] = vectors[tile.clients, : mine.width]
        rows = message.shared[f"items.{mine.name}"].index_select(0, flat).view(*tile.items.shape, -1)
        rows = rows.mul_(tile.real.unsqueeze(2)).transpose(1, 2).contiguous()
        bias = None
        if self.config.item_bias:
            bias = message.shared[self.layout.bias_name(model)].view(-1)[tile.items] * tile.real
        return ReceivedModel(user, rows, bias, heads)

    def _stacked(self, heads: PrefixHeads, model: int, message: Message) -> Parameters:
        """The heads that a model trains, side by side, `[1, *shape]`."""
        stacked = {name: torch.zeros(shape) for name, shape in heads.shapes(1).items()}
        heads.pack_(stacked, [self.layout.head_of(message.shared, head) for head in self.layout.models[model].heads])
        return stacked

    def _samples(self, clients: Tensor, streams: Streams, round: int, query_id: int) -> DistinctSamples:
        def words(users: Sequence[int], count: int) -> np.ndarray:
            return streams.words(Purpose.SAMPLES, round, query_id, users, count)

        return draw_distinct(self.data.positives, self.data.excluded, self.config.negatives, on_host(clients), words)
