"""GPFedRec's server: global table, user graph, one personal target table per pseudonym."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import Block, Schema
from privfed.federation import SERVER, Federation, Individual, Message, Purpose, Streams
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.graph import cosines, neighbourhoods, scores, sketched_cosines, thinned
from privfed.methods.gpfedrec.means import neighbour_means
from privfed.methods.method import PublicInfo
from privfed.methods.shared.table_server import initial_table

_SEED_WORDS = 4


class GPFedRecServer:
    """One query for every upload; then graph, personal targets r_i, and their mean as the global table.

    A cohort of at most `min_neighbours` clients changes nothing: no mean over it could hide anybody in enough others.
    A client that was absent from a round keeps its last target; one that never took part has the initial table.
    The light variant reuses the graph for `refresh_every` rounds while the same clients take part. Uploads stay what
    they are, differences from the global table: nothing of their size is made but the targets.
    """

    def __init__(self, config: GPFedRecConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config = config
        self.items = initial_table(streams, public_info.n_items, config.dim, config.initial_scale)
        self.targets = self.items.expand(public_info.n_users, -1, -1)
        self.near = torch.zeros(0, 0, dtype=torch.bool)
        self.participants = torch.zeros(0, dtype=torch.int64)
        self._seed = streams.words(Purpose.INITIALISE, 0, 0, [SERVER], _SEED_WORDS)[0].tolist()
        self.schema: Schema = {"items": Block(tuple(self.items.shape))}

    def round(self, federation: Federation, t: int) -> None:
        """Collect every client's table, rebuild the graph, send each its neighbours' mean."""
        release = federation.collect("train", federation.sample_cohort(t), self.public(), self.schema)
        if len(release.pseudonyms) <= self.config.min_neighbours:
            return
        if self.config.graph is None:
            self.items = self.items + release.mean("items")
            self.targets = self.items.expand(len(self.targets), -1, -1)
            return
        stale = t % self.config.refresh_every == 0 or not self.participants.equal(release.pseudonyms)
        if stale:
            self._rebuild_graph(release, t)
        if self.targets.stride(0) == 0:
            self.targets = self.targets.clone()
        self.items = neighbour_means(
            self.near,
            release.uploads["items"].flatten(1),
            self.items.flatten(),
            out=self.targets.flatten(1),
            rows=release.pseudonyms,
        ).view_as(self.items)

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

    def _rebuild_graph(self, release: Individual, t: int) -> None:
        c, updates, base = self.config, release.uploads["items"].flatten(1), self.items.flatten()
        if c.graph is None:
            return
        draw = np.random.default_rng([*self._seed, t])
        if c.sketch is None:
            cosine = cosines(updates, base, c.precision)
        else:
            cosine = sketched_cosines(updates, base, c.sketch, draw)
        near = neighbourhoods(cosine, c.graph, c.gamma, c.min_neighbours)
        if c.max_neighbours is not None:
            if c.thinning == "nearest":
                rank = scores(cosine, c.graph)
            else:
                rank = placed(draw.random(near.shape, dtype=np.float32))
            near = thinned(near, c.max_neighbours, rank)
        self.near, self.participants = near, release.pseudonyms
