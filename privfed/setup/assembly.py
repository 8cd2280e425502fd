"""`Assembly`: keys, padding, inclusion bits and both parties of a configured run."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import DeviceError, all_moved, on_host, placed
from privfed.compute.processes import ALONE, Processes
from privfed.contracts import Schema, Tap
from privfed.data import Histories, Interactions, Split, split
from privfed.federation import (
    MEMORY,
    Call,
    Clients,
    Message,
    Ranges,
    Server,
    ShardFolder,
    Storage,
    Streams,
    begin_query,
    perform,
)
from privfed.federation.hosted_clients import HostedClients
from privfed.methods import ClientData, ItemBlocks, Method, MethodConfig, PublicInfo
from privfed.privacy.refusals import refuse_unprotected_blocks
from privfed.setup.config import ExperimentConfig
from privfed.setup.donors import open_histories, refuse_donors
from privfed.setup.inclusion import InclusionBits
from privfed.setup.padding import padded_data
from privfed.setup.refusals import refuse_method, refuse_shared
from privfed.setup.shuffled import shuffled_histories
from privfed.setup.sizing import size
from privfed.updates import ClientUpdates


@dataclass(slots=True, eq=False)
class Assembly:
    """A configured run over loaded data, with both parties built and nothing executed yet.

    Attributes:
        config: everything that decides the result; what its plan leaves open is chosen first.
        parts: train, validation and test, before any inclusion bit: what is evaluated, and what an adversary may
            know of popularity. Of the control `shuffled`, the shuffled ones.
        registered: the method.
        choices: what was chosen for a plan with a target, a sentence each.
        streams: keys of all parties; from the seed, unless `keys` gives others (a process of a deployment has its own).
        processes: processes that share the clients; this one hosts a range of them.
        hosted: numbers of the users whose clients are here, ascending; None where it is everybody.
        client_state: folder whose files keep the private state of clients, which disk then bounds and not memory; None
            keeps it in memory. It decides nothing of the result.
        given: the parts as they were given.
        inclusion: inclusion bits of training items of audited users; None where there are none.
        trained: `parts` without dropped items: what clients hold.
        public_info: all that the server was built from.
        server, clients: both parties.
        support: rows that every user announced under the plan's padding; None where none is sampled.
        storage: where private state is kept.

    Raises:
        ValueError: the configuration or data cannot be used, in one sentence.
    """

    config: ExperimentConfig
    parts: Split
    keys: InitVar[Streams | None] = None
    processes: Processes = ALONE
    hosted: Int64[np.ndarray, " hosted"] | None = None
    client_state: Path | None = None
    registered: Method = field(init=False)
    choices: tuple[str, ...] = field(init=False)
    streams: Streams = field(init=False)
    given: Split = field(init=False)
    inclusion: InclusionBits | None = field(init=False)
    trained: Split = field(init=False)
    public_info: PublicInfo = field(init=False)
    server: Server = field(init=False)
    clients: Clients = field(init=False)
    support: Histories | None = field(init=False)
    storage: Storage = field(init=False)

    def __post_init__(self, keys: Streams | None) -> None:
        with self.config.computing():
            self._set_up(keys)

    def _set_up(self, keys: Streams | None) -> None:
        self.registered = self.config.registered()
        settings = self.config.settings()
        refuse_method(self.registered, settings, self.config)
        refuse_donors(self.registered, self.parts)
        refuse_shared(self.processes, self.config.fidelity, self.tapped_places())
        self.given = self.parts
        if self.config.control == "shuffled":
            self.parts = shuffled_histories(self.parts, self.config.seed)
        self.inclusion = self._inclusion_bits()
        self.trained = self.parts if self.inclusion is None else self.inclusion.applied_to(self.parts)
        sized = size(self.config, self.trained)
        self.config, self.choices = sized.config, sized.choices
        self.streams = keys or self.config.streams()
        data = ClientData.from_split(self.trained, self.config.protocol.negatives)
        public = data.positives if self.registered.traits.public_target else None
        padded = padded_data(data, self.config.privacy, self.registered, settings)
        self.support = padded.support
        sums = self.config.privacy.noisy_sums(data.n_users)
        self.public_info = PublicInfo(
            data.n_users, data.n_items, public, sums, self.parts.item_info, open_histories(self.parts)
        )
        self.server = self.registered.training.server(settings, self.public_info, self.streams)
        for query in self.registered.training.program(self.server):
            refuse_unprotected_blocks(self.config.privacy, query.schema)
        if self.hosted is None and self.processes.size > 1:
            self.hosted = self.processes.hosted(self.n_users)
        if self.hosted is not None and self.config.device != "cpu":
            raise DeviceError(
                f"device = {self.config.device!r} needs all users in one process, and this one hosts a part of them: "
                f"set device = 'cpu', or start one process"
            )
        self.storage = self._stored()
        self.clients = self._hosted_clients(settings, replace(padded.data, storage=self.storage))

    def _stored(self) -> Storage:
        """Memory, or a folder; every process has one of its own."""
        if self.client_state is None:
            return MEMORY
        if self.config.device != "cpu":
            raise DeviceError(
                f"client state in {self.client_state} is read by the processor, and device is {self.config.device!r}: "
                f"keep it in memory, or set device = 'cpu'"
            )
        rank, size = self.processes.rank, self.processes.size
        folder = self.client_state if size == 1 else self.client_state / f"{rank + 1:05d}-of-{size:05d}"
        return ShardFolder(folder, self.config.digest())

    def _hosted_clients(self, settings: MethodConfig, data: ClientData) -> Clients:
        """Clients of the users who are hosted here."""
        make = self.registered.training.clients
        if self.hosted is None:
            return make(settings, data, self.streams)
        return HostedClients(make(settings, data.hosting(self.hosted), self.streams.numbered(self.hosted)), self.hosted)

    @classmethod
    def on(cls, config: ExperimentConfig, interactions: Interactions) -> Self:
        """Split the interactions as configured."""
        return cls(config, split(interactions, config.split))

    @property
    def n_users(self) -> int:
        """Size of the population."""
        return self.parts.train.n_users

    @property
    def item_blocks(self) -> ItemBlocks | None:
        """What uploads of the training step say about single items; None where they say nothing."""
        return self.registered.attack_surface.item_blocks(self.config.settings(), self.server.schema)

    def audited(self) -> Tensor:
        """Audited users: a seeded sample of the users with training items, ascending."""
        active = np.flatnonzero(self.parts.train.counts)
        count = min(self.config.taps.users, len(active))
        chosen = np.random.default_rng(self.config.seed).choice(active, count, replace=False)
        return placed(np.sort(chosen))

    def _inclusion_bits(self) -> InclusionBits | None:
        """Inclusion bits of the audited users' training items, where these are private: a public item is no secret."""
        share = self.config.taps.inclusion
        if not share or self.registered.traits.public_target:
            return None
        return InclusionBits.sample(self.parts, on_host(self.audited()), share, self.config.seed)

    def tapped_places(self) -> frozenset[Tap]:
        """Places to tap: the configured ones, as far as there is something for an attack to read.

        Behind a plan that hides single uploads, what is on the wire for the server is their sum.
        """
        places: frozenset[Tap] = frozenset(self.config.taps.places)
        if not self.registered.attack_surface.has_item_rows:
            return places - {"raw", "wire"}
        hidden = self.config.privacy.mechanism.release == "total"
        seen: frozenset[Tap] = places - {"wire"} if hidden else places
        if self.config.taps.training_oracles and self.registered.training.step is not None and seen & {"raw", "wire"}:
            places |= {"message"}
        return places | {"sum"} if hidden and "wire" in places else places

    def continue_from(self, server: Mapping[str, Tensor], clients: Mapping[str, Ranges]) -> None:
        """Take over public and private tensors that were saved."""
        with self.config.computing():
            self.server.load(all_moved(server))
            self.clients.load(clients)

    def rehearse(self, users: Tensor, t: int, schema: Schema) -> tuple[Message, ClientUpdates | None]:
        """Let `users` download and train alone, as a device does before it recommends; nothing is sent.

        The staged private state must be discarded afterwards.
        """
        message = self.server.public().addressed_to(users)
        if self.registered.training.step is None:
            return message, None
        noisy_steps = self.config.privacy.mechanism.noisy_steps
        call = Call(t, -1, self.registered.training.step, 0, users, self.streams, schema, noisy_steps=noisy_steps)
        begin_query(self.clients, call.step, message)
        return message, perform(self.clients, call, message)
