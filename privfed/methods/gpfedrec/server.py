"""GPFedRec's server: global table, user graph, one personal target table per pseudonym."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import Block, Schema
from privfed.federation import SERVER, Cohort, Federation, Individual, Message, Purpose, Streams
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.given_graphs import HISTORIES, RANDOM, densest, likeness, random_graph
from privfed.methods.gpfedrec.graph import (
    Metric,
    cosines,
    neighbourhoods,
    scores,
    sketched_cosines,
    thinned,
    widened,
)
from privfed.methods.gpfedrec.means import neighbour_means
from privfed.methods.method import PublicInfo
from privfed.methods.shared.table_server import initial_table

_SEED_WORDS = 4


def history_schema(n_items: int) -> Schema:
    """What a client shows of its history, where the graph is one of histories: a one for every training item."""
    return {"history": Block((n_items, 1))}


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
        cohort = federation.sample_cohort(t)
        if self.config.reads_histories and not len(self.participants):
            # Before training: the uploads of a query are gone with the next one.
            self._read_histories(federation, cohort)
        release = federation.collect("train", cohort, self.public(), self.schema)
        if len(release.pseudonyms) <= self.config.min_neighbours:
            return
        c = self.config
        if c.graph is None:
            self.items = self.items + release.mean("items")
            self.targets = self.items.expand(len(self.targets), -1, -1)
            return
        self._bring_graph_up_to_date(release, t)
        plain_mean = self.items + release.mean("items") if c.start == "everybody" else None
        if self.targets.stride(0) == 0:
            self.targets = self.targets.clone()
        mean = neighbour_means(
            self.near,
            release.uploads["items"].flatten(1),
            self.items.flatten(),
            out=self.targets.flatten(1),
            rows=release.pseudonyms,
        ).view_as(self.items)
        self.items = mean if plain_mean is None else plain_mean

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

    def _bring_graph_up_to_date(self, release: Individual, t: int) -> None:
        others = not self.participants.equal(release.pseudonyms)
        match self.config.graph:
            case "similarity" | "distance" as metric if others or t % self.config.refresh_every == 0:
                self._rebuild_graph(release, metric, t)
            case str() as kind if others and kind in RANDOM:
                self._draw_graph(kind, release.pseudonyms)
            case str() as kind if others and kind in HISTORIES:
                raise ValueError(
                    f"the graph {kind!r} joins those whose histories were read in the first round, and "
                    f"round {t + 1} has others: let everybody take part in every round"
                )

    def _draw_graph(self, kind: str, participants: Tensor) -> None:
        """A random graph; the same one in all rounds with these participants."""
        c, draw = self.config, np.random.default_rng(self._seed)
        near = random_graph(kind, len(participants), c.density, draw)
        rank = placed(draw.random(near.shape, dtype=np.float32))
        self.near, self.participants = widened(near, rank, c.min_neighbours), participants

    def _read_histories(self, federation: Federation, cohort: Cohort) -> None:
        """The graph of histories, which everybody shows once."""
        c = self.config
        release = federation.collect("history", cohort, Message({}), history_schema(len(self.items)))
        score = likeness(str(c.graph), release.uploads["history"].flatten(1))
        near = widened(densest(score, c.density), score, c.min_neighbours)
        self.near, self.participants = near, release.pseudonyms

    def _rebuild_graph(self, release: Individual, metric: Metric, t: int) -> None:
        c, updates, base = self.config, release.uploads["items"].flatten(1), self.items.flatten()
        draw = np.random.default_rng([*self._seed, t])
        if c.sketch is None:
            cosine = cosines(updates, base, c.precision)
        else:
            cosine = sketched_cosines(updates, base, c.sketch, draw)
        near = neighbourhoods(cosine, metric, c.gamma, c.min_neighbours)
        if c.max_neighbours is not None:
            if c.thinning == "nearest":
                rank = scores(cosine, metric)
            else:
                rank = placed(draw.random(near.shape, dtype=np.float32))
            near = thinned(near, c.max_neighbours, rank)
        self.near, self.participants = near, release.pseudonyms
