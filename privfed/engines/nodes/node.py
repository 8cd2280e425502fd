"""A node: it hosts the private halves of its own users, and answers a server that it does not have to believe.

    announce   which experiment; the node's policy decides whether it takes part
    invite     terms of a masked sum -> public keys; where all goes well these travelled with the previous reveal
    share      roster -> sealed shares
    input      the ask itself, and the shares -> trains its users; the sum of their ring words under its masks
    reveal     survivors -> shares that open the sum, once; and keys for the next sum
    clear      the ask under a plan without masked sums -> partial sums, or single protected uploads
    settle     how the last ask ended

Every user's upload is clipped, rounded and noised by `ClientGuard` under that user's own key before the node adds
anything up, so the node is one party of the masked sum and its users' guarantee does not depend on it being large.

What a node must remember lies in its folder (`Record`), written before the reply that depends on it is handed out: a
process may be killed between any two messages, or serve only one of them. The outcome of an ask reaches the node with
the next request (`settle`: the last place whose sum it was in); until then private state can go back to what it was.
"""

import fcntl
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import ValidationError
from torch import Tensor

from privfed.compute.tiles import TILE
from privfed.contracts import Schema, UpdateError, schema_digest
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.budget import Budget, spent_in
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import MessageError, NodeRefused, NodesError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.measuring import PARTS, sums_of
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.policy import FILE as POLICY
from privfed.engines.nodes.policy import Policy, masked
from privfed.engines.nodes.queries import MEASURE, Query, addressed, coded_arrays
from privfed.engines.nodes.record import Place, Record, load_tensors, save_call, save_tensors
from privfed.federation import Call, FederationError, Message, Purpose, perform
from privfed.guards import ClientGuard
from privfed.guards.ring_code import RingCode
from privfed.privacy import Ledger, LedgerError, PrivacyError, SchemaSummary, explain
from privfed.privacy.ledger import to_ranges
from privfed.privacy.refusals import refuse_unprotected_blocks
from privfed.setup.assembly import Assembly
from privfed.updates import clients_at_once
from secure_agg.encoding import Ring
from secure_agg.errors import RoundAborted, SecureAggregationError
from secure_agg.masking import MaskingClient, Stage, Terms
from secure_agg.prg import Words

_log = logging.getLogger("privfed.nodes")

_ROOT, _LOCK, _STATE = "secret.key", "lock", "state"
_NOT_STEPS = frozenset({"commit", "discard", "state", "load", "score"})
_RING_BITS = 64

Answer = tuple[Mapping[str, Any], Mapping[str, Array]]
_Sums = dict[str, Tensor]


class Node:
    """One node.

    Args:
        folder: its own, for state, ledger and keys; made where it is missing.
        policy: what it insists on; None reads `node.toml` in the folder.
        data: its users; None reads the file that `NodeData.save` wrote there.

    Raises:
        StateError: the folder, the policy or the data cannot be read.
        PlanError: the policy has an unknown key or a bad value.
    """

    def __init__(self, folder: Path | str, policy: Policy | None = None, data: NodeData | None = None) -> None:
        self.folder = Path(folder)
        self.policy = policy or Policy.read(self.folder / POLICY)
        self.data = data or NodeData.load(self.folder)
        self._place = self.folder / _STATE
        self._record = Record()
        self._half: Assembly | None = None
        self._start: _Sums = {}
        self._ready = False
        self._ledger: Ledger | None = None
        self._budget: Budget | None = None
        self._handlers: Mapping[str, Callable[[Packet, Address], Answer]] = {
            "train.announce": self._announce,
            "train.invite": self._invite,
            "train.share": self._share,
            "train.input": self._input,
            "train.reveal": self._reveal,
            "train.clear": self._clear,
            "train.settle": self._settled,
        }

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answer one request, or refuse it and say why; what the request says never raises.

        Args:
            stage: as the transport names it.
            request: bytes of the server.
        """
        try:
            with self._locked():
                self._refresh()
                packet = Packet.decode(request, self.policy.max_message_mib * 2**20)
                address = self._accept(stage, codec.address_of(packet))
                values, arrays = self._handlers[stage](packet, address)
                self._save()
                return codec.reply(request, values, arrays)
        except RoundAborted as aborted:
            ended = self._record.masking
            self._forget()
            return self._refuse(stage, request, f"{aborted}{self._leave(ended)}")
        except MessageError as refused:
            with suppress(StateError):
                self._record = Record.load(self._place)
            return self._refuse(stage, request, str(refused))
        except (
            ValidationError, PrivacyError, SecureAggregationError, FederationError, UpdateError, NodesError,
        ) as refused:  # fmt: skip
            self._forget()
            said = explain(refused, Announcement) if isinstance(refused, ValidationError) else str(refused)
            return self._refuse(stage, request, said)
        except Exception as failed:
            self._forget()
            _log.exception("a request of stage %s failed", stage[:40])
            return self._refuse(stage, request, f"the node failed with {type(failed).__name__}; its own log says more")

    @property
    def ledger(self) -> Ledger | None:
        """What its users have spent in the run it takes part in; None before one was announced."""
        self._refresh()
        return self._book() if self._record.run is not None else None

    # The frame of a message ------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One message at a time, whichever process serves it."""
        make_folder(self._place)
        try:
            file = (self._place / _LOCK).open("ab")
        except OSError as error:
            raise StateError(
                f"{self._place} cannot be written ({error.strerror}); mend the folder, then go on"
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _refresh(self) -> None:
        """Take over what another process wrote, where one did."""
        found = Record.load(self._place)
        if found.version != self._record.version:
            self._forget()
            self._record = found

    def _forget(self) -> None:
        """Begin the next message as a process that has just started."""
        self._record, self._half, self._ready, self._ledger, self._budget = Record(), None, False, None, None
        with suppress(StateError):
            self._record = Record.load(self._place)

    def _refuse(self, stage: str, request: bytes, reason: str) -> bytes:
        _log.warning("node %d refuses %s: %s", self._record.node, stage[:40], reason)
        return codec.refusal(request, reason, {"serial": self._record.serial})

    def _save(self) -> None:
        self._record.save(self._place)

    def _leave(self, ended: str) -> str:
        """Keep the end of a masked sum, its secrets gone; returns what to add where that fails."""
        self._record.masking = ended
        try:
            with self._locked():
                self._save()
        except StateError as failed:
            self._forget()
            return f"; besides, {failed}"
        return ""

    def _accept(self, stage: str, address: Address) -> Address:
        """Refuse what is stale, misdirected or of an unknown run; remember the serial with the first change."""
        record = self._record
        if stage not in self._handlers or address.stage != stage:
            raise MessageError("the request came as another stage than it says, or as one that no node knows; drop it")
        if address.serial <= record.serial:
            raise MessageError("the request is not newer than one that was accepted before: it is a replay, so drop it")
        if stage != "train.announce":
            if record.run is None or address.run != record.run.run:
                raise MessageError("the request is of a run that was not announced to this node; announce it first")
            if address.node != record.node:
                raise MessageError("the request is for another node; drop it")
        record.serial = address.serial
        return address

    # Taking part -----------------------------------------------------------------------------------------------------

    def _announce(self, packet: Packet, address: Address) -> Answer:
        """Compare an experiment with the policy and, where it may be, take part."""
        announced, seat = Announcement.model_validate(packet["announcement"]), packet.whole("seat", 0, 2**32 - 2)
        settled, record = _settled_place(packet["settle"]), self._record
        if announced.run != address.run:
            raise MessageError("the announcement is of another run than the request; drop it")
        if record.run is None or record.run.run != announced.run:
            self._begin_run(announced)
        elif record.run != announced or (record.node, record.seat) != (address.node, seat):
            raise NodeRefused(
                "the run was announced to this node with other settings, and these do not change in a run"
            )
        record = self._record
        record.run, record.node, record.seat, record.serial = announced, address.node, seat, address.serial
        self._settle(settled)
        return {"users": to_ranges(self.data.users), "session": record.session, "draw": record.cohort_id}, {}

    def _begin_run(self, announced: Announcement) -> None:
        """Leave an earlier run, whose cost stays counted."""
        config, record = announced.config, self._record
        self.policy.accept_plan(
            config.method_name, config.privacy, config.rounds, announced.population, seeded=announced.seeded
        )
        spent = [*record.spent]
        if record.run is not None:
            spent.append(spent_in(record.run.run, self._book()))
        if any(earlier.run == announced.run for earlier in spent):
            raise NodeRefused(
                "this node has left that run for another one and does not come back to it; begin a new run"
            )
        Budget(self.policy, spent).accept_run(config.privacy)
        salt, version, serial = secrets.token_hex(ROOT_BYTES), record.version, record.serial
        half = announced.half(self.data, self._root(), salt)
        self._forget()
        self._record = Record(version=version, serial=serial, spent=spent, salt=salt)
        self._half, self._start = half, half.clients.state()

    def _invite(self, packet: Packet, address: Address) -> Answer:
        del address
        self._settle(_settled_place(packet["settle"]))
        return {}, {"advertisement": self._advertised(packet)}

    def _advertised(self, packet: Packet) -> Array:
        """Join the session that the invitation opens: fresh keys, and the old session's secrets are gone.

        Keys that were advertised in a reply that got lost are advertised again.
        """
        record = self._record
        if record.run is None:
            raise NodeRefused("no run was announced to this node; announce it first")
        invitation = packet.array("invitation", "uint8", (None,)).tobytes()
        if record.invited == codec.digest(invitation) and self._masking().awaits is Stage.ROSTER:
            return _bytes(bytes.fromhex(record.advertised))
        client = MaskingClient(
            record.seat, self.policy.floor, run=bytes.fromhex(record.run.run), after=record.session, store=self._keep
        )
        said = client.advertise(invitation)
        record.session, record.invited, record.advertised = client.terms.round, codec.digest(invitation), said.hex()
        return _bytes(said)

    def _share(self, packet: Packet, address: Address) -> Answer:
        del address
        self._settle(_settled_place(packet["settle"]))
        said = self._masking().share(packet.array("roster", "uint8", (None,)).tobytes())
        return {}, {"shares": _bytes(said)}

    def _input(self, packet: Packet, address: Address) -> Answer:
        """Train, add up the users' ring words, and return them under masks."""
        client, query = self._masking(), Query.read(packet, address, self._most)
        self._settle(_settled_place(packet["settle"]))
        if client.awaits is not Stage.DELIVERY:
            raise NodeRefused("this node has shared no secrets in an open session; share first")
        if query.step != MEASURE and not masked(self._plan):
            raise NodeRefused("the run's plan has no masked sums; ask in the clear")
        self._refuse_second(query)
        _fit(client.terms, query.schema, self._length(query))
        ring_elements, taking = self._ring_elements(query)
        said = client.mask(packet.array("delivery", "uint8", (None,)).tobytes(), ring_elements)
        return {"members": self._shown(taking)}, {"masked": _bytes(said)}

    def _reveal(self, packet: Packet, address: Address) -> Answer:
        """Help to open the sum, once; then join the next session."""
        del address
        said = self._masking().unmask(packet.array("request", "uint8", (None,)).tobytes())
        out = {"reveal": _bytes(said)}
        if "invitation" in packet.arrays:
            with suppress(SecureAggregationError):
                out["advertisement"] = self._advertised(packet)
        return {}, out

    def _clear(self, packet: Packet, address: Address) -> Answer:
        """Train, and return partial sums or every user's protected upload."""
        query = Query.read(packet, address, self._most)
        each = packet["each"]
        self._settle(_settled_place(packet["settle"]))
        if masked(self._plan) and query.schema:
            raise NodeRefused("the run's plan opens nothing but masked sums; nothing leaves in the clear")
        if type(each) is not bool or (each and self._plan.mechanism.release == "total"):
            raise NodeRefused("the run's plan releases sums and no single uploads; ask for a sum")
        if each:
            arrays, taking = self._uploads(query)
            return {"members": self._shown(taking), "within": 0}, arrays
        sums, taking, within = self._sums(query)
        arrays = {f"block/{name}": values.numpy() for name, values in sums.items()}
        return {"members": self._shown(taking), "within": within}, arrays

    def _settled(self, packet: Packet, address: Address) -> Answer:
        del address
        self._settle(_settled_place(packet["settle"]))
        return {"charges": len(self._book().entries)}, {}

    # Masked sums -----------------------------------------------------------------------------------------------------

    def _masking(self) -> MaskingClient:
        if not self._record.masking:
            raise NodeRefused("this node is in no masked sum; invite it first")
        return MaskingClient.restore(self._record.masking.encode(), self.policy.floor, store=self._keep)

    def _keep(self, snapshot: bytes) -> None:
        """Take over a masked sum's state; that a request was answered is on the disk before the answer leaves."""
        self._record.masking = snapshot.decode()

    def _refuse_second(self, query: Query) -> None:
        """One masked input per ask: in a simulation an ask that was lost repeats to the bit, elsewhere it is spent.

        Sums of the same inputs over other survivors would differ by what single nodes sent.
        """
        record = self._record
        spent = query.cohort_id == record.cohort_id and query.query_id in record.calls_digest
        if spent and query.step != MEASURE and record.run is not None and not record.run.seeded:
            raise NodeRefused(
                "this node has sent its masked input of that ask, and does so once; go on with a new draw"
            )

    def _length(self, query: Query) -> tuple[int, int]:
        """Words and bits of an ask's vector."""
        if query.step == MEASURE:
            return sum(block.size for block in query.schema.values()), _RING_BITS
        code = self._code(query.schema)
        return code.length, code.ring.bits

    def _code(self, schema: Schema) -> RingCode:
        mechanism: Any = self._plan.mechanism
        return RingCode(mechanism, schema, self._plan.sampling.max_cohort(self.data.population))

    def _ring_elements(self, query: Query) -> tuple[Words, Int64[np.ndarray, " taking"]]:
        """The sum of the own users' ring words."""
        if query.step == MEASURE:
            sums = self._measured(query)
            flat = np.concatenate([sums[name].numpy().reshape(-1) for name in query.schema])
            return flat.astype(np.int64).view(Ring(_RING_BITS).dtype), self.data.users
        code = self._code(query.schema)
        taking = self._begin(query)
        guard, total = self._guard(), code.ring.zeros(code.length)
        for call, updates, _ in self._chunks(query, taking, guard):
            for tile in torch.split(torch.arange(len(updates)), TILE):
                total = code.ring.sum([total, *guard.ring_elements(code, updates.materialise(tile), call, tile)])
        self._stage(query)
        return total, taking

    # Asks ------------------------------------------------------------------------------------------------------------

    def _sums(self, query: Query) -> tuple[_Sums, Int64[np.ndarray, " taking"], int]:
        """Partial sums, with every user's own noise where the plan has any."""
        if query.step == MEASURE:
            return self._measured(query), self.data.users, 0
        taking = self._begin(query)
        guard, within = self._guard(), 0
        sums = {
            name: torch.zeros(b.shape, dtype=torch.float64 if b.kind == "real" else torch.int64)
            for name, b in query.schema.items()
        }
        for call, updates, inside in self._chunks(query, taking, guard):
            within += inside
            if not guard.rewrites:
                updates.add_to(sums, precise=guard.sums_precisely)
                continue
            for tile in torch.split(torch.arange(len(updates)), TILE):
                for name, values in guard.protect(updates, call, tile).items():
                    sums[name].add_(values.sum(0, dtype=sums[name].dtype))
        self._stage(query)
        return sums, taking, within

    def _uploads(self, query: Query) -> tuple[dict[str, Array], Int64[np.ndarray, " taking"]]:
        """Every user's own protected upload, as it travels."""
        taking = self._begin(query)
        guard, first, bits = self._guard(), 0, self._plan.upload_bits
        steps = {n: torch.empty(len(taking)) for n, b in query.schema.items() if b.kind == "real" and bits is not None}
        out = {
            name: torch.empty((len(taking), *b.shape), dtype=torch.float32 if b.kind == "real" else torch.int64)
            for name, b in query.schema.items()
        }
        for call, updates, _ in self._chunks(query, taking, guard):
            some = {name: values[first : first + len(updates)] for name, values in out.items()}
            rounded = dict[str, Tensor]()
            guard.protect(updates, call, torch.arange(len(updates)), out=some, steps=rounded)
            for name, own in rounded.items():
                steps[name][first : first + len(updates)] = own
            first += len(updates)
        self._stage(query)
        if bits is not None:
            return coded_arrays(out, steps, query.schema, bits), taking
        return {f"block/{name}": values.numpy() for name, values in out.items()}, taking

    def _measured(self, query: Query) -> _Sums:
        """Sums of metrics over the own users."""
        if not self.policy.evaluate:
            raise NodeRefused("this node's policy lets no sums of metrics leave (evaluate = false)")
        parts = [part for part in PARTS if query.message.config.get(part)]
        began = self._ready
        half = self._prepared(None)
        self._ready = began
        sums = dict(sums_of(half, self.data.users, query.message, parts))
        if {name: tuple(v.shape) for name, v in sums.items()} != {n: b.shape for n, b in query.schema.items()}:
            raise NodeRefused("the sums of metrics asked for are not those of this run's protocol")
        return sums

    def _begin(self, query: Query) -> Int64[np.ndarray, " taking"]:
        """Check an ask against plan, policy and ledger, charge it, and get private halves ready; returns who trains."""
        record, digest = self._record, query.digest()
        if query.step in _NOT_STEPS:
            raise NodeRefused(f"{query.step!r} is no step of a client; ask for one that trains")
        refuse_unprotected_blocks(self._plan, query.schema)
        self.policy.accept_clip_norm(self._plan, query.clip_norm)
        if query.cohort_id < record.cohort_id:
            raise NodeRefused("the ask is older than one that this node has done; go on with a new draw")
        before = record.query if query.cohort_id == record.cohort_id else 0
        if query.query_id != before:
            raise NodeRefused(
                f"this node has done {before} queries of cohort {query.cohort_id} and is sent number "
                f"{query.query_id + 1}: it sits out the rest of the round"
            )
        if query.cohort_id == record.cohort_id and record.calls_digest.get(query.query_id, digest) != digest:
            raise NodeRefused("the ask was made before with another message, and its noise is spent; use a new draw")
        self._prepared(query)
        taking = self._taking(query)
        self.policy.accept_share(self._plan, len(taking))
        self._charge(query, taking, digest)
        return taking

    def _charge(self, query: Query, taking: Int64[np.ndarray, " taking"], digest: str) -> None:
        """Write down what the ask costs, before anything of it leaves; what repeats to the bit costs nothing more."""
        record, ledger, plan = self._record, self._book(), self._plan
        summary = SchemaSummary.of(query.schema)
        if (query.cohort_id, query.step, query.query_id) not in {
            entry.address for entry in ledger.entries[-_max_queries(record) :]
        }:
            whole = plan.sampling.kind == "all"
            budget = self._budget or Budget(self.policy, record.spent)
            self._budget = budget
            budget.accept(
                ledger, cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id,
                schema=summary, participants=self.data.users if whole else taking,
            )  # fmt: skip
            ledger.record(
                cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id, schema=summary,
                participants=None if plan.amplifies else taking,
            )  # fmt: skip
            record.charges, record.head = len(ledger.entries), ledger.head
        elif record.calls_digest.get(query.query_id) != digest or query.cohort_id != record.cohort_id:
            raise NodeRefused("the ask was charged before and its noise may be out; use a new draw")
        if query.cohort_id != record.cohort_id:
            record.cohort_id, record.query, record.calls, record.base = query.cohort_id, 0, [], record.current
            record.calls_digest = {}
        record.calls_digest[query.query_id] = digest

    def _taking(self, query: Query) -> Int64[np.ndarray, " taking"]:
        """The own users that take part."""
        sampling, own = self._plan.sampling, self.data.users
        if sampling.kind == "poisson":
            if query.members is not None:
                raise NodeRefused("who takes part is each user's own secret coin, and the server names members")
            inclusion = self._prepared(None).streams.uniform(Purpose.MEMBERSHIP, query.round, 0, own.tolist(), 1)[:, 0]
            joined: Int64[np.ndarray, " taking"] = own[(inclusion < sampling.rate).numpy()]
            return joined
        if query.members is None or not np.isin(query.members, own).all():
            raise NodeRefused("the server names no members, or some that this node does not host")
        if sampling.kind == "all" and len(query.members) != len(own):
            raise NodeRefused("everybody takes part in every round of this plan, and the server leaves users out")
        chosen: Int64[np.ndarray, " taking"] = query.members
        return chosen

    def _shown(self, taking: Int64[np.ndarray, " taking"]) -> str | None:
        """Who took part, where the server does not know it already."""
        return to_ranges(taking) if self._plan.sampling.kind == "poisson" else None

    def _calls(
        self, query: Query, taking: Int64[np.ndarray, " taking"], half: Assembly
    ) -> Iterator[tuple[Call, Message]]:
        """What every chunk of users is told."""
        everybody = taking if query.members is not None else self.data.users
        noisy_steps = half.config.privacy.mechanism.noisy_steps
        at_once = clients_at_once(half.config.chunk or half.registered.training.chunk, query.schema)
        for users in torch.split(torch.from_numpy(taking), at_once):
            if len(users):
                call = Call(
                    query.round, query.cohort_id, query.step, query.query_id, users, half.streams, query.schema,
                    query.clip_norm, noisy_steps,
                )  # fmt: skip
                yield call, addressed(query.message, everybody, users.numpy())

    def _chunks(
        self, query: Query, taking: Int64[np.ndarray, " taking"], guard: ClientGuard
    ) -> Iterator[tuple[Call, Any, int]]:
        """Clipped updates, chunk by chunk, as a simulation makes them."""
        half = self._prepared(None)
        for call, own in self._calls(query, taking, half):
            updates = perform(half.clients, call, own)
            guard.refuse_broken(updates, call)
            yield call, updates, guard.clip_(updates, query.clip_norm)

    def _stage(self, query: Query) -> None:
        """Keep the users' new private state beside the old, until the release is confirmed."""
        record, clients = self._record, self._prepared(None).clients
        clients.commit()
        name = f"{query.cohort_id}-{query.query_id}-{record.version}"
        record.before, record.staged = record.current, (query.cohort_id, query.query_id)
        record.current = save_tensors(self._place, name, clients.state(), self._start)
        record.query = query.query_id + 1
        if _max_queries(record) > 1:
            bound = query.address(record.run.run if record.run else "", record.node, record.serial, "train.input")
            kept = codec.request(bound, query.fields(), query.arrays())
            record.calls = [*record.calls, save_call(self._place, name, kept)]

    def _settle(self, counted: Place | None) -> None:
        """Confirm or take back the last ask, by the last place whose sum this node was in."""
        record = self._record
        if record.staged is None:
            return
        if counted != record.staged:
            record.current, record.query = record.before, record.staged[1]
            record.calls = record.calls[: record.query]
            self._ready = False
        record.staged, record.before = None, None

    # What is kept in memory ------------------------------------------------------------------------------------------

    @property
    def _plan(self) -> Any:
        if self._record.run is None:
            raise NodeRefused("no run was announced to this node; announce it first")
        return self._record.run.config.privacy

    @property
    def _most(self) -> int:
        """Bytes of the largest upload of one user: a tile of them must fit where a message does."""
        return self.policy.max_message_mib * 2**20 // TILE

    def _root(self) -> bytes:
        """This node's own secret, from which its users' keys follow; drawn once."""
        path = self.folder / _ROOT
        if not path.exists():
            write_file(path, secrets.token_bytes(ROOT_BYTES), secret=True)
        root = read_file(path)
        if len(root) != ROOT_BYTES:
            raise StateError(f"{path} is no key of {ROOT_BYTES} bytes; restore it from a copy")
        return root

    def _prepared(self, query: Query | None) -> Assembly:
        """The private halves, with the private state that the next ask starts from; in memory until a process ends."""
        record = self._record
        if record.run is None:
            raise NodeRefused("no run was announced to this node; announce it first")
        if self._half is None:
            self._half = record.run.half(self.data, self._root(), record.salt)
            self._start, self._ready = self._half.clients.state(), False
        if not self._ready:
            again = query is not None and query.cohort_id == record.cohort_id and query.query_id > 0
            self._half.clients.discard()
            file = record.base if again else record.current
            self._half.clients.load(load_tensors(self._place, file, self._start))
            for call in record.calls if again else ():
                self._repeat(call, self._half)
            self._ready = True
        return self._half

    def _repeat(self, file: str, half: Assembly) -> None:
        """Do an earlier ask of the draw again, for what the private halves keep in memory between asks."""
        packet = Packet.decode(read_file(self._place / file))
        query = Query.read(packet, codec.address_of(packet), self._most)
        for call, own in self._calls(query, self._taking(query), half):
            perform(half.clients, call, own)
        half.clients.commit()

    def _guard(self) -> ClientGuard:
        return ClientGuard(self._plan, self._prepared(None).streams)

    def _book(self) -> Ledger:
        """The own ledger of the run."""
        record = self._record
        run = record.run
        if run is None:
            raise NodeRefused("no run was announced to this node; announce it first")
        if self._ledger is None:
            path, plan = self.folder / f"ledger-{run.run}.jsonl", run.config.privacy
            try:
                if path.exists() or record.charges:
                    ledger = Ledger.resume(plan, run.population, path, run=run.run, same_noise=False)
                    if record.charges:
                        ledger.require(record.charges, record.head, "this node's record")
                else:
                    ledger = Ledger(plan, run.population, path, run=run.run)
            except OSError as error:
                raise LedgerError(f"ledger {path} cannot be written ({error.strerror}); mend the folder") from error
            if ledger.notice is not None:
                _log.warning("node %d: %s", record.node, ledger.notice)
            self._ledger = ledger
        return self._ledger


def _settled_place(given: Any) -> Place | None:
    """The last place whose sum a node was in, as a request says it."""
    if given is None:
        return None
    if not (isinstance(given, list) and len(given) == 2 and all(type(n) is int and n >= 0 for n in given)):
        raise MessageError("what was settled is no draw and ask; drop the message")
    return given[0], given[1]


def _max_queries(record: Record) -> int:
    """The most asks of one draw."""
    return 1 if record.run is None else record.run.queries


def _fit(terms: Terms, schema: Schema, size: tuple[int, int]) -> None:
    """Refuse an ask whose words are not those that the session's terms were for."""
    if (terms.length, terms.bits) != size or terms.layout.hex() != schema_digest(schema):
        raise NodeRefused("the blocks asked for are not those that this masked sum was agreed for; invite anew")


def _bytes(message: bytes) -> Array:
    return np.frombuffer(message, np.uint8)
