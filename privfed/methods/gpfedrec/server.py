"""GPFedRec's public half: global table, user graph, one personal target table per pseudonym."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.federation import Federation, Individual, Message, Streams
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.graph import cosines, neighbour_means, neighbourhoods
from privfed.methods.method import Facts
from privfed.methods.table_server import initial_table
from privfed.updates import Block, Schema


class GPFedRecServer:
    """One ask for every upload; then graph, personal targets r_i, and their mean as the global table.

    A cohort of at most `min_neighbours` clients changes nothing: no mean over it could hide anybody in enough others.
    A client that was absent from a round keeps its last target; one that never took part has the initial table.
    The light variant reuses the graph for `refresh_every` rounds while the same clients take part.
    """

    def __init__(self, config: GPFedRecConfig, facts: Facts, streams: Streams) -> None:
        self.config = config
        self.items = initial_table(streams, facts.n_items, config.dim, config.initial_scale)
        self.targets = self.items.expand(facts.n_users, -1, -1)
        self.near = torch.zeros(0, 0, dtype=torch.bool)
        self.participants = torch.zeros(0, dtype=torch.int64)
        self.schema: Schema = {"items": Block(tuple(self.items.shape))}

    def round(self, federation: Federation, t: int) -> None:
        """Collect every client's table, rebuild the graph, send each its neighbours' mean."""
        release = federation.ask_each("train", federation.draw(t), self.public(), self.schema)
        if len(release.pseudonyms) <= self.config.min_neighbours:
            return
        if self.config.graph is None:
            self.items = self.items + release.mean("items")
            self.targets = self.items.expand(len(self.targets), -1, -1)
            return
        tables = release.uploads["items"].add_(self.items).flatten(1)
        stale = t % self.config.refresh_every == 0 or not self.participants.equal(release.pseudonyms)
        if stale:
            self._rebuild_graph(tables, release)
        means = self._personal_means(tables, release)
        self.items = means.mean(0).view_as(self.items)

    def public(self) -> Message:
        """The global table for all, and a personal target for each pseudonym."""
        return Message({"items": self.items}, {"targets": self.targets})

    def state(self) -> dict[str, Tensor]:
        """Global table, targets and graph."""
        return {
            "items": self.items,
            "targets": self.targets.contiguous(),
            "near": self.near,
            "participants": self.participants,
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items, self.targets = state["items"], state["targets"]
        self.near, self.participants = state["near"], state["participants"]

    def _rebuild_graph(self, tables: Float[Tensor, "n size"], release: Individual) -> None:
        c = self.config
        if c.graph is not None:
            self.near = neighbourhoods(cosines(tables), c.graph, c.gamma, c.min_neighbours)
            self.participants = release.pseudonyms

    def _personal_means(self, tables: Float[Tensor, "n size"], release: Individual) -> Float[Tensor, "n size"]:
        if self.targets.stride(0) == 0:
            self.targets = self.targets.clone()
        flat = self.targets.flatten(1)
        if len(release.pseudonyms) == len(flat):
            return neighbour_means(self.near, tables, out=flat)
        means = neighbour_means(self.near, tables, out=torch.empty_like(tables))
        flat.index_copy_(0, release.pseudonyms, means)
        return means
