"""The clients of FAIR: user rows that stay on the device, and local training in the device's own subspace."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.message import COUNTS, PLACES, SAMPLES
from privfed.methods.fair.neumf import Parameters, scores, scores_of_catalogue
from privfed.methods.fair.parts import Group, Products, Slots, TablePart
from privfed.methods.fair.spaces import Factors, InTier, from_block
from privfed.methods.fair.tiers import Tiers
from privfed.methods.fair.training import DeviceTraining, ReceivedTables, TrainingOutcome
from privfed.updates import ClientUpdates, Dense, Part


@dataclass(frozen=True, slots=True, eq=False)
class TierClients:
    """Clients of a call that train at one level and are summed in one tier.

    Attributes:
        positions: of the clients in the call.
        level: at which they train.
        tier: in whose basis they send; their own level unless they are lifted.
        hash: of the hash function of their devices.
    """

    positions: Int64[Tensor, " n"]
    level: int
    tier: int
    hash: int


class FairClients(StatefulClients):
    """Clients: a row in every table for each user, drawn by the user's own key."""

    steps = frozenset({"tiers", "train"})

    def __init__(self, config: FairConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.model, self.n_items = config, config.model, data.n_items
        everybody = data.everybody
        tiers = Tiers.from_config(config, len(everybody.activity), data.n_items, everybody.activity)
        self.tiering = tiers.hosting(placed(everybody.users))
        self.training = DeviceTraining(config, data)
        names = self.model.tables

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            rows = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim * len(names))
            rows = rows.mul_(config.initial_scale).to(torch.get_default_dtype())
            rows = rows.view(len(users), len(names), config.dim)
            return {f"user.{name}": rows[:, t].clone() for t, name in enumerate(names)}

        self.private = data.private_state(start)
        self._received: dict[tuple[int, int], ReceivedTables] | None = None

    def receive(self, step: str, message: Message) -> None:
        """What devices of one level download is reduced once for all chunks of a query."""
        del step, message
        self._received = {}

    def commit(self) -> None:
        """The release was confirmed: staged state becomes current."""
        super().commit()
        self._received = None

    def discard(self) -> None:
        """The round was aborted: forget staged state."""
        super().discard()
        self._received = None

    def tiers(self, call: Call, message: Message) -> ClientUpdates:
        """Which tier each device is of, as a row with a single 1."""
        del message
        everyone = torch.arange(len(call.clients))
        tiers = self._one_hot(self.tiering.levels_of(call.clients))
        return ClientUpdates(call.clients, call.schema, [Dense(COUNTS, everyone, tiers)])

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local epochs of Adam on each device's own version of the tables, on all layers and on the user's rows."""
        users, names = call.clients, self.model.tables
        private = self.private.rows(users)
        rows = torch.stack([private[f"user.{name}"] for name in names], 1)
        # Of the rows' precision, whatever a server sends: the kernel mixes no two.
        layers = torch.cat([message.shared[name].flatten() for name in self.model.shapes()]).to(rows.dtype)
        new_layers, levels = layers.repeat(len(users), 1), torch.full((len(users),), -1)
        groups: dict[str, list[Group]] = {}
        for place in self._places(users, message):
            received = self._download(place, message)
            who = on_host(users[place.positions])
            # A round trains once; as query 0 its samples are the same with and without a query for tiers before it.
            words = call.streams.words(Purpose.SAMPLES, call.round, 0, who.tolist(), self.training.words_needed(who))
            outcome = self.training.train(who, received, layers, rows[place.positions], words)
            levels[place.positions] = place.level
            new_layers[place.positions], rows[place.positions] = outcome.layers, outcome.users
            for t, name in enumerate(names):
                groups.setdefault(self._block(name, place), []).append(self._group(place, name, t, received, outcome))
        self.private.stage(users, {f"user.{name}": rows[:, t].clone() for t, name in enumerate(names)})
        senders = (levels >= 0).nonzero().squeeze(1)
        changed = self._split(new_layers[senders] - layers)
        parts: list[Part] = [
            *(TablePart(block, found) for block, found in groups.items()),
            *(Dense(name, senders, change) for name, change in changed.items()),
        ]
        if self.config.weights == "samples":
            for part in parts:
                part.scale_(self._samples(users).double())
        tiers = self._one_hot(levels)[senders]
        if COUNTS in call.schema:
            parts.append(Dense(COUNTS, senders, tiers))
        if SAMPLES in call.schema:
            parts.append(Dense(SAMPLES, senders, tiers * self._samples(users)[senders].unsqueeze(1)))
        return ClientUpdates(users, call.schema, parts)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Scores, or predicted ratings, by the client's own model right after training, or by what it received.

        What it received is the server's tables, which a device can stream row by row while it recommends, or with
        `scoring` = `device` no more than its tier keeps of them.
        """
        tables = {name: message.shared[f"items.{name}"] for name in self.model.tables}
        width = self.n_items if candidates is None else candidates.shape[1]
        out = tables["mlp"].new_empty(len(clients), width)
        trained = torch.zeros(len(clients), dtype=torch.bool)
        if updates is not None:
            for place in self._places(clients, message):
                trained[place.positions] = True
                self._score_trained(place, clients, message, updates, candidates, out)
        own = self.private.rows(clients) | {name: message.shared[name] for name in self.model.shapes()}
        for level in self.tiering.levels:
            mine = ((self.tiering.levels_of(clients) == level) & ~trained).nonzero().squeeze(1)
            if not len(mine):
                continue
            if self.config.scoring == "server":
                out[mine] = self._scores(own, mine, tables, candidates)
                continue
            for hash, some in self.tiering.by_hash(level, clients[mine]):
                spaces = self.tiering.spaces_at(level, hash)
                held = {name: space.project(tables[name]) for name, space in spaces.items()}
                out[mine[some]] = self._scores(own, mine[some], held, candidates)
        return out

    def _score_trained(
        self,
        place: TierClients,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates,
        candidates: Int64[Tensor, "clients c"] | None,
        out: Float[Tensor, "clients c"],
    ) -> None:
        """Fill in scores of clients that have just trained: one whole table at a time."""
        spaces = self.tiering.spaces_at(place.level, place.hash)
        start = {name: space.project(message.shared[f"items.{name}"]) for name, space in spaces.items()}
        samples = self._samples(clients).double() if self.config.weights == "samples" else torch.ones(len(clients))
        staged = self.private.staged(clients)
        changes = {name: updates.stacked(name) for name in self.model.shapes()}
        parts = {part.block: part for part in updates.parts}
        slots = torch.full((len(clients),), -1)
        for position in place.positions.tolist():
            share = 1 / max(float(samples[position]), 1.0)
            slots[position] = 0
            tables = {}
            for name, table in start.items():
                block = self._block(name, place)
                change = table.new_empty(1, *updates.schema[block].shape)
                parts[block].write(slots, change)
                if self.config.placement == "tier":
                    change = from_block(change, self.tiering.subspaces[place.tier][name])
                tables[name] = table + change[0] * share
            slots[position] = -1
            mine = torch.tensor([position])
            layers = {name: message.shared[name] + change[mine] * share for name, change in changes.items()}
            own = {name: rows[mine] for name, rows in staged.items()} | layers
            only = None if candidates is None else candidates[mine]
            out[mine] = self._scores(own, torch.zeros(1, dtype=torch.int64), tables, only)

    def _scores(
        self,
        own: Parameters,
        which: Int64[Tensor, " n"],
        tables: Mapping[str, Float[Tensor, "items dim"]],
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "n c"]:
        """Scores of some clients by tables that they share."""
        p = own | {f"user.{name}": own[f"user.{name}"][which] for name in self.model.tables}
        if candidates is None:
            return scores_of_catalogue(self.model, p, tables) + self.config.rating_offset
        items = {name: table[candidates[which]] for name, table in tables.items()}
        return scores(self.model, p, items) + self.config.rating_offset

    def _block(self, name: str, place: TierClients) -> str:
        return f"items.{name}" if self.config.placement == "server" else f"tier.{place.tier}.{name}"

    def _split(self, flat: Float[Tensor, "n numbers"]) -> dict[str, Tensor]:
        """Layers of every client from their flat form."""
        shapes = self.model.shapes()
        pieces = torch.split(flat, [torch.Size(shape).numel() for shape in shapes.values()], 1)
        return {
            name: piece.reshape(len(flat), *shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
        }

    def _samples(self, users: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
        """The weight of every client where weights are samples."""
        return placed(self.training.counts)[users].clamp(max=self.n_items)

    def _one_hot(self, levels: Int64[Tensor, " n"]) -> Int64[Tensor, "n tiers"]:
        return (levels.unsqueeze(1) == torch.tensor(self.tiering.levels)).long()

    def _group(
        self, place: TierClients, name: str, t: int, received: ReceivedTables, outcome: TrainingOutcome
    ) -> Group:
        """One table's changes by the clients of a place."""
        change, space = outcome.tables[name], self.tiering.spaces_at(place.level, place.hash)[name]
        if self.config.placement == "tier":
            of = self.tiering.subspaces
            basis = InTier(of[place.level][name], of[place.tier][name])
            return Slots(place.positions, change.counts, change.slots, change.values, basis)
        entries = Slots(place.positions, change.counts, change.slots, change.values, space)
        if not isinstance(space, Factors):
            return entries
        stored = received.stored
        start = placed(stored.values[stored.offset[t] : stored.offset[t + 1]]).view(space.shape)
        factors = outcome.factors[:, t]
        return Products(entries, start, factors, factors - received.factors[t])

    def _places(self, users: Int64[Tensor, " clients"], message: Message) -> list[TierClients]:
        """Groups of the called clients by where they train; clients that sit out are in none."""
        levels, found = self.tiering.levels_of(users), list[TierClients]()
        for index, own in enumerate(self.tiering.levels):
            level = tier = own
            if PLACES in message.shared:
                level, tier = message.shared[PLACES][index].tolist()
            positions = (levels == own).nonzero().squeeze(1)
            if len(positions) and level >= 0 and own in self.tiering.training:
                found += [
                    TierClients(positions[some], level, tier, hash)
                    for hash, some in self.tiering.by_hash(level, users[positions])
                ]
        return found

    def _download(self, place: TierClients, message: Message) -> ReceivedTables:
        """The tables of such a device; reduced once for all of them where a query has begun."""
        found, key = {} if self._received is None else self._received, (place.level, place.hash)
        if key not in found:
            tables = {name: message.shared[f"items.{name}"] for name in self.model.tables}
            found[key] = self.training.receive(self.tiering.spaces_at(*key), tables)
        return found[key]
