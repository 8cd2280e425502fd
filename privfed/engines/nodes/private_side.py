"""The client side at a node: its users' clients, and their private state between two queries."""

import logging
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.engines.cohorts import members
from privfed.engines.device_training import trained
from privfed.engines.final_queries import EvaluatingClients
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement, queries_per_cohort
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.files import read_file
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.queries import Query, addressed
from privfed.engines.nodes.record import QueryAddress, load_tensors, save_call, save_tensors
from privfed.federation import Call, Clients, Message, Purpose, begin_query, perform
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates, clients_at_once

_log = logging.getLogger("privfed.nodes")


class PrivateSide:
    """Runs the clients of a node's users, and stages their private state until a release is confirmed.

    Args:
        state: of the node.
        data: of the node.
        max_upload_bytes: of one user.
        clients: take the place of the method's clients, in audits; None runs those of the method.
    """

    def __init__(self, state: NodeState, data: NodeData, max_upload_bytes: int, clients: Clients | None = None) -> None:
        self._state, self._data, self._max_upload_bytes, self._clients = state, data, max_upload_bytes, clients

    def assembled(self, announced: Announcement, salt: str) -> Assembly:
        """The announced experiment over the node's own users.

        Raises:
            NodeRefused: it is announced with more queries of one cohort than its method makes; of clients that took the
                method's place nobody knows how many there are.
        """
        assembly = announced.assemble(self._data, self._state.root(), salt, self._state.entropy)
        if self._clients is not None:
            assembly.clients = self._clients
            return assembly
        if announced.queries > (planned := queries_per_cohort(assembly)):
            raise NodeRefused(
                f"the run is announced with {announced.queries} queries of one cohort and its method makes {planned}"
            )
        if announced.config.evaluation.private:
            assembly.clients = EvaluatingClients(assembly)
        return assembly

    @property
    def assembly(self) -> Assembly:
        """The announced run; in memory until a process ends."""
        memory = self._state.memory
        if memory.assembly is None:
            memory.assembly = self.assembled(self._state.run, self._state.record.salt)
            memory.start, memory.loaded = memory.assembly.clients.state(), False
        return memory.assembly

    @property
    def users(self) -> Int64[np.ndarray, " hosted"]:
        """Numbers in the run of the node's users who take part in it: all but donors."""
        hosted = self.assembly.hosted
        return np.empty(0, np.int64) if hosted is None else hosted

    def load(self, query: Query | None) -> Assembly:
        """The run with the private state that `query` starts from; None takes the state of now."""
        assembly, record, memory = self.assembly, self._state.record, self._state.memory
        if memory.loaded:
            return assembly
        repeats = query is not None and query.cohort_id == record.cohort_id and query.query_id > 0
        assembly.clients.discard()
        file = record.base if repeats else record.current
        assembly.clients.load(load_tensors(self._state.path, file, memory.start))
        for call in record.calls if repeats else ():
            self._repeat(call)
        memory.loaded = True
        return assembly

    def read_only(self) -> Assembly:
        """The run with the private state of now, for whoever changes nothing of it."""
        memory = self._state.memory
        loaded = memory.loaded
        assembly = self.load(None)
        self._state.memory.loaded = loaded
        return assembly

    def members(self, query: Query) -> Int64[np.ndarray, " members"]:
        """The node's users who take part in a query.

        Raises:
            NodeRefused: the query names others than the plan's sampling rule lets it name.
        """
        sampling, hosted = self._state.plan.sampling, self.users
        if sampling.kind == "poisson":
            if query.members is not None:
                raise NodeRefused("who takes part is each user's own secret random bit, and the server names members")
            streams = self.assembly.streams
            inclusion = streams.uniform(Purpose.MEMBERSHIP, query.round, 0, hosted.tolist(), 1)[:, 0]
            joined: Int64[np.ndarray, " members"] = hosted[(inclusion < sampling.rate).numpy()]
            return joined
        if query.members is None or not np.isin(query.members, hosted).all():
            raise NodeRefused("the server names no members, or some that this node does not host")
        if sampling.kind == "all" and len(query.members) != len(hosted):
            raise NodeRefused("everybody takes part in every round of this plan, and the server leaves users out")
        if not np.array_equal(query.members, np.intersect1d(self.cohort(query.round), hosted, assume_unique=True)):
            raise NodeRefused("the server names other members than the sampling rule of the run chooses in this round")
        return query.members

    def cohort(self, round: int) -> Int64[np.ndarray, " cohort"]:
        """Everybody whom the sampling rule chooses in a round; only for rules that leave nothing to the users."""
        run = self._state.run
        return members(run.config.privacy.sampling, run.cohort_streams(), run.n_users, round).numpy()

    def begin(self, query: Query) -> None:
        """Tell the clients of a query, before the first of its calls."""
        begin_query(self.assembly.clients, query.step, query.message)

    def computed(self, query: Query, members: Int64[np.ndarray, " members"]) -> Iterator[tuple[Call, ClientUpdates]]:
        """What users compute, chunk by chunk; whoever's training fails sends zeros, and keeps private state as it was.

        Whether an answer leaves does not depend on data. A server can send a model, or declare blocks, with which
        training fails for exactly those users who have an item, and no noise hides a refusal. Nor does one such model
        silence them in later rounds.
        """
        assembly = self.assembly
        heard, failed = list[Int64[Tensor, " users"]](), 0
        for call, received in self.calls(query, members):
            together = trained(assembly.clients, call, received)
            for users in torch.split(call.clients, 1 if together is None else len(call.clients)):
                own, message = (call, received) if together is not None else self.call(query, members, users)
                updates = together if together is not None else trained(assembly.clients, own, message)
                if updates is None:
                    failed += 1
                else:
                    heard.append(users)
                yield own, updates or ClientUpdates(users, query.schema, ())
        if failed:
            _log.error(
                "round %d, step %r: training failed for %d users, who send zeros; check the model that the server sent",
                query.round + 1, query.step, failed,
            )  # fmt: skip
            self.assembly.clients.discard()
            self.begin(query)
            for users in heard:
                perform(self.assembly.clients, *self.call(query, members, users))

    def calls(self, query: Query, members: Int64[np.ndarray, " members"]) -> Iterator[tuple[Call, Message]]:
        """The call of every chunk of users, and the message as they receive it."""
        assembly = self.assembly
        at_once = clients_at_once(assembly.config.chunk or assembly.registered.training.chunk, query.schema)
        for users in torch.split(torch.from_numpy(members), at_once):
            if len(users):
                yield self.call(query, members, users)

    def call(
        self, query: Query, members: Int64[np.ndarray, " members"], users: Int64[Tensor, " users"]
    ) -> tuple[Call, Message]:
        """The call of some of a query's members, and the message as they receive it."""
        assembly = self.assembly
        addressees = members if query.members is not None else self.users
        call = Call(
            query.round, query.cohort_id, query.step, query.query_id, users, assembly.streams, query.schema,
            query.clip_norm, assembly.config.privacy.mechanism.noisy_steps,
        )  # fmt: skip
        return call, addressed(query.message, addressees, users.numpy())

    def stage(self, query: Query) -> None:
        """Keep the users' new private state beside the old, until the release is confirmed."""
        record, clients = self._state.record, self.assembly.clients
        clients.commit()
        name = f"{query.cohort_id}-{query.query_id}-{record.version}"
        record.before, record.staged = record.current, (query.cohort_id, query.query_id)
        record.current = save_tensors(self._state.path, name, clients.state(), self._state.memory.start)
        record.query = query.query_id + 1
        if self._state.run.queries > 1:
            bound = query.address(self._state.run.run, -1, record.counter, "train.input")
            kept = codec.request(bound, query.fields(), query.arrays())
            record.calls = [*record.calls, save_call(self._state.path, name, kept)]

    def settle(self, counted: QueryAddress | None) -> None:
        """Confirm or take back the last query, by the last one whose release these users are in."""
        record = self._state.record
        if record.staged is None:
            return
        if counted != record.staged:
            record.current, record.query = record.before, record.staged[1]
            record.calls = record.calls[: record.query]
            self._state.memory.loaded = False
        record.staged, record.before = None, None

    def _repeat(self, file: str) -> None:
        """Repeat an earlier query of the cohort, for what clients keep in memory between queries."""
        packet = Packet.decode(read_file(self._state.path / file))
        address, run = codec.address_of(packet), self._state.run
        query = Query.read(packet, address, self._max_upload_bytes, run.n_users, run.digest)
        self.begin(query)
        for _ in self.computed(query, self.members(query)):
            pass
        self.assembly.clients.commit()
