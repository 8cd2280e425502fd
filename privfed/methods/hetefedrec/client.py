"""The clients of HeteFedRec and its baselines: user vectors, local training, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import Schema
from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.hetefedrec.compiled_training import train_model
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.groups import assign_groups
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.padding import Tile, sample_tiles
from privfed.methods.hetefedrec.prefix_heads import Parameters, PrefixHeads
from privfed.methods.hetefedrec.sampling import DistinctSamples, draw_distinct
from privfed.methods.hetefedrec.scoring import Scorer
from privfed.methods.hetefedrec.training import ReceivedModel, TileTraining
from privfed.methods.hetefedrec.uploads import UploadBuilder
from privfed.methods.shared.linear_clients import compiled_for
from privfed.updates import ClientUpdates


class Trained(NamedTuple):
    """What local training made: user vectors, and what is sent."""

    user: Float[Tensor, "n width"]
    updates: ClientUpdates


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
        sends, steps = self._sends[call.clients], self.config.steps
        trained = self._trained(self.layout, call.clients, call.schema, samples, message, sends, steps)
        self.private.stage(call.clients, {"user": trained.user})
        return trained.updates

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of each client's own head on its own copy of its table."""
        if not self.layout.sending:
            return self._alone(clients, message, candidates)
        state = self.private.rows(clients) if updates is None else self.private.staged(clients)
        scorer = Scorer(self.layout, self.data, message)
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

    def _alone(self, clients: Tensor, message: Message, candidates: Tensor | None) -> Float[Tensor, "clients c"]:
        """Train every device from the public start for `standalone_steps`, then score; nothing is kept."""
        # What it would send if it sent its own model: with it, a device scores as after any other training.
        layout = replace(self.layout, sending=tuple(range(len(self.layout.of_group))))
        samples, everybody = self._samples(clients, self._streams, 0, 0), torch.ones(len(clients), dtype=torch.bool)
        schema, steps = layout.schema(self.data.n_items), self.config.standalone_steps
        trained = self._trained(layout, clients, schema, samples, message, everybody, steps)
        scorer = Scorer(layout, self.data, message)
        return scorer.received(clients, self.model[clients], trained.user, trained.updates, candidates)

    def _trained(
        self,
        layout: ModelLayout,
        clients: Tensor,
        schema: Schema,
        samples: DistinctSamples,
        message: Message,
        sends: Tensor,
        steps: int,
    ) -> Trained:
        """Local training of all clients of a call."""
        model, user = self.model[clients], self.private.rows(clients)["user"]
        outbox = UploadBuilder(layout, schema, model, samples, sends)
        if compiled_for(user):
            for which, mine in enumerate(layout.models):
                some = ((model == which) & (samples.counts > 0)).nonzero().squeeze(1)
                if len(some):
                    vectors, places = user[some, : mine.width], outbox.places(which, some)
                    heads = train_model(layout, which, some, samples, message.shared, vectors, places, steps)
                    user[some, : mine.width] = vectors
                    outbox.put_heads(which, some, heads)
        else:
            self._train_tiles(layout, samples, model, message, user, outbox, steps)
        return Trained(user, ClientUpdates(clients, schema, outbox.parts()))

    def _train_tiles(
        self,
        layout: ModelLayout,
        samples: DistinctSamples,
        model: Tensor,
        message: Message,
        user: Tensor,
        outbox: UploadBuilder,
        steps: int,
    ) -> None:
        """The same tile by tile, off the processor; `user` moves in place."""
        heads = [layout.heads(which) for which in range(len(layout.models))]
        stacked = [self._stacked(heads[which], which, message) for which in range(len(heads))]
        for which, tile in sample_tiles(samples, model, self.data.n_items):
            mine, received = layout.models[which], self._received(which, tile, message, user, stacked[which])
            training = TileTraining(self.config, heads[which], tile, received, decorrelated=mine.decorrelated)
            trained = training.run(steps)
            user[tile.clients, : mine.width] = trained.user[: len(tile.clients)]
            outbox.put(which, tile, trained)

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
