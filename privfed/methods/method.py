"""What a method registers: a name, its settings and traits, and how it trains, can be attacked, and discloses.

Most of it is declared by three small classes, which every method writes for itself:

* `Training` builds the server and the clients and declares which steps a round calls on a client;
* `AttackSurface` (`privfed.methods.attack_surface`) says what uploads and models show about single items;
* `Disclosure` says in sentences what the server learns by design.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from privfed.compute.devices import HOST, here
from privfed.contracts import DefaultClip, MethodTraits, NoisySums, Schema
from privfed.data import Histories
from privfed.evaluation import Task
from privfed.federation import Clients, Message, Server, Streams
from privfed.methods.attack_surface import AttackSurface
from privfed.methods.client_data import ClientData
from privfed.methods.preset import Preset
from privfed.updates import Chunk


class MethodConfig(BaseModel):
    """Base of every method's settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class PublicInfo:
    """Everything a server may know of a population.

    Attributes:
        n_users: number of pseudonyms.
        n_items: size of the catalogue.
        public: training items of every user, where the problem declares them public (`MethodTraits.public_target`);
            None everywhere else.
        sums: what the plan announces about released sums: number of clients, length of uploads, noise.
        item_info: public descriptions of the items (`title`, `genres`, ... as far as the source has them), one row per
            item; None where there are none.
    """

    n_users: int
    n_items: int
    public: Histories | None = None
    sums: NoisySums | None = None
    item_info: pd.DataFrame | None = None
    donors: Histories | None = None


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """One query of a round before it is made.

    Attributes:
        schema: blocks that a client may upload.
        down_bytes: what one client downloads with it.
        message: what it was sent with, where a server has since changed what it publishes; None: that.
    """

    schema: Schema
    down_bytes: int
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class NegativeSampling:
    """Items without an interaction that local training draws as negatives.

    Attributes:
        per_positive: distinct negatives that one draw takes for every training item.
        draws: fresh draws in one call: 1 where all epochs of a call share their samples.
    """

    per_positive: int
    draws: int = 1

    @property
    def rows_per_positive(self) -> int:
        """Rows that one training item touches in a call, its own among them, as far as the catalogue has that many."""
        return 1 + self.per_positive * self.draws

    @property
    def positive_share(self) -> float:
        """Share of training items among the rows that a call touches, which everybody who knows the settings knows."""
        return 1 / self.rows_per_positive


class Training(Protocol):
    """Training of a method.

    Attributes:
        server: (config, public_info, streams) -> the server; it never gets data.
        clients: (config, data, streams) -> the clients of the users in `data`; their `steps` are all they answer.
        step: the local training step, which a device may also run alone before it recommends; None where there is
            nothing to train, or where a device brings itself up to date before it recommends.
        chunk: clients that are best trained together on the processor, by the blocks they upload where it depends on
            sizes; None leaves it to the engine.
        host_work: what the processor computes wherever tensors live, as compiled loops and sparse solvers do; None
            where nothing heavy is, so that the method runs on an accelerator as a whole.
        bit_parity: whether a client's numbers are the same bits whatever clients it is trained with; False where matrix
            products over all clients of a call round by how many there are.
        learns_from_donors: whether the server makes use of histories that people opened.
        popularity_order: name of what the server publishes by which all items can be ordered by popularity, the larger
            the more popular; None where it publishes nothing of the kind.
        post_processing: names of settings that decide only what the server makes of what was released to it, so that
            other values cost no privacy: no query, message of a query or device depends on them. Only methods that
            upload once have any.
    """

    server: Callable[[Any, PublicInfo, Streams], Server]
    clients: Callable[[Any, ClientData, Streams], Clients]
    step: str | None = "train"
    chunk: Chunk | None = None
    host_work: str | None = None
    bit_parity: bool = True
    learns_from_donors: bool = False
    popularity_order: str | None = None
    post_processing: frozenset[str] = frozenset()

    def program(self, server: Any) -> Sequence[PlannedQuery]:
        """All queries of a round, one after the other; by default the server's own schema, once."""
        return [PlannedQuery(server.schema, server.public().bytes_per_client())]

    def extra_queries(self, config: Any) -> int:  # noqa: ARG002 (most methods have none, whatever their settings)
        """Queries of the first round besides those of `program`."""
        return 0

    def task(self, config: Any) -> Task:  # noqa: ARG002 (most methods rank, whatever their settings)
        """Meaning of scores, and so the measure of a run: a ranking of items, or predicted ratings."""
        return "ranking"

    def negatives(self, config: Any) -> NegativeSampling | None:  # noqa: ARG002 (some methods draw none)
        """Negatives that local training draws; None where it draws none."""
        return None

    def examined(self, config: Any, data: ClientData) -> Histories | None:  # noqa: ARG002 (most methods look at none)
        """Examinations (views, carts, ...) that clients learn from; None where the method does not look at any."""
        return None

    def rows_sent(self, config: Any, data: ClientData) -> float:
        """Rows of the item table that a client's upload names, on average over all clients."""
        sampling = self.negatives(config)
        per_positive = 1 if sampling is None else sampling.rows_per_positive
        return float((data.positives.counts * per_positive).clip(max=data.n_items).mean())

    def warm_start(
        self,
        config: Any,  # noqa: ARG002 (and below: most methods have no such start)
        state: Mapping[str, Tensor],  # noqa: ARG002
        message: Message,  # noqa: ARG002
    ) -> Mapping[str, Tensor] | None:
        """Public parameters of the server's `state` that start from what a finished `private-gram` run publishes.

        None where the method has no such start.

        Raises:
            NoStartError: the message or the settings do not fit.
        """
        return None

    def rounds(self, config: Any) -> int | None:  # noqa: ARG002 (most methods train until it is enough)
        """Rounds of a run where nobody says; None where the method does not mind, or is done after its one upload."""
        return None

    def preferred_chunk(self) -> Chunk | None:
        """Clients that are best trained together on the device in use; None leaves it to the engine."""
        return self.chunk if here() == HOST or self.host_work is not None else None


class Disclosure(Protocol):
    """Disclosures of a method by design, whatever the privacy plan.

    Attributes:
        reads: one noun phrase on what the server learns.
    """

    reads: str

    def side_disclosures(self, config: Any) -> Sequence[str]:  # noqa: ARG002 (most methods show nothing else)
        """Sentences about what the method shows besides uploads: a group chosen by activity, the capacity of a device.

        They stand among a run's statements.
        """
        return ()

    def cross_user_dependence(self, config: Any) -> str | None:  # noqa: ARG002 (most users train on their own data)
        """How one user's data decides over what other users upload, as in a ranking of everybody's activity.

        None where it does not. Where it does, a user's influence on a sum is not what the user uploads, so plans that
        guarantee anything refuse it.
        """
        return None


@dataclass(frozen=True, slots=True)
class ServerReads(Disclosure):
    """The disclosure of a method that shows nothing besides what its server reads."""

    reads: str


@dataclass(frozen=True, slots=True)
class Method:
    """One registered method.

    Attributes:
        name: name on the command line.
        title: one line for people.
        display_name: name in reports and tables.
        source: paper and venue.
        config: its settings.
        traits: what a privacy plan must know of it.
        training: how it trains.
        attack_surface: what uploads and models show about single items.
        disclosure: what the server learns by design.
        presets: settings under a name, chosen by `name:preset`, such as those of the paper.
        clip_norms: clip norms for plans that name none, at most one for each thing that a clip bounds.
        history_model: public tensors -> a module that turns histories `[n, items]` of 0 and 1 into scores
            `[n, items]`, as a device does that keeps nothing but its history; None where scores need more than that,
            or nobody has written the module yet.
        refreshed: name of the method that publishes the same at every refresh of a year; empty where there is none.
    """

    name: str
    title: str
    display_name: str
    source: str
    config: type[MethodConfig]
    traits: MethodTraits
    training: Training
    attack_surface: AttackSurface
    disclosure: Disclosure
    presets: Mapping[str, Preset] = field(default_factory=dict)
    clip_norms: Sequence[DefaultClip] = ()
    history_model: Callable[[Mapping[str, Tensor]], nn.Module] | None = None
    refreshed: str = ""

    def own_rounds(self, config: Any) -> int | None:
        """Rounds of a run where nobody says, one where clients upload once and nothing is trained on what they sent."""
        return self.training.rounds(config) or (1 if self.traits.uploads_once else None)
