"""A server against its nodes: two organisations of six that lie under their own keys, and strangers.

Rounds of counting items are played with real nodes, and the replies of the liars are bent on their way. The others'
work always finishes: every round is opened, with all of them in it, and its sums are what the nodes in it sent.
"""

import copy
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.privacy.fuzz_nodes.drafts import BENDS, Draft
from benchmarks.privacy.fuzz_nodes.federations import ITEMS, LIARS, SEATS, SmallFederation
from benchmarks.privacy.fuzz_nodes.findings import MOST_BYTES_OF_A_ROUND, Findings, Watch, measured
from benchmarks.privacy.fuzz_secure_agg import mutate
from benchmarks.speed.nodes import members_of
from privfed.contracts import Block
from privfed.engines.nodes import codec
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.transport import NodeId
from privfed.federation import Federation, Individual, Message, Server
from privfed.methods.shared.vae_server import COUNTS
from secure_agg.primitives.keys import SIGNATURE_BYTES

HONEST = tuple(seat for seat in range(SEATS) if seat not in LIARS)
_SCHEMA = {COUNTS: Block((ITEMS,))}
_KEPT = 40
_ANNOUNCED_ANEW = 0.25
"""How often the run is announced anew before a round."""


class Counter(Server):
    """The server side of no method: it queries who has which item, once or twice a round.

    Attributes:
        released: of the latest round.
    """

    def __init__(self, *, each: bool, queries: int) -> None:
        self._each, self._queries = each, queries
        self.schema = _SCHEMA
        self.released: list[torch.Tensor] = []

    def round(self, federation: Federation, t: int) -> None:
        """Count."""
        self.released, cohort = [], federation.sample_cohort(t)
        for _ in range(self._queries):
            query = federation.collect if self._each else federation.aggregate
            release = query("count", cohort, Message({}), _SCHEMA)
            self.released.append(
                release.uploads[COUNTS] if isinstance(release, Individual) else release.sums[COUNTS].clone()
            )

    def public(self) -> Message:
        """Nothing."""
        return Message({})

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing."""


class Bending(InProcess):
    """Passes requests on, and bends replies of the liars.

    Args:
        federation: whose nodes they are.
        lie: makes of a node, a stage and its honest reply what is delivered; None drops it.
    """

    def __init__(
        self, federation: SmallFederation, lie: Callable[[NodeId, str, bytes], bytes | None] | None = None
    ) -> None:
        super().__init__(federation.nodes)
        self.lie = lie
        self.delivered: dict[str, dict[NodeId, bytes]] = {}

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Deliver honest replies as they are."""
        replies = dict(super().exchange(stage, requests, timeout))
        if self.lie is not None:
            for node in replies.keys() & set(LIARS):
                lie = self.lie(node, stage, replies[node])
                if lie is None:
                    del replies[node]
                else:
                    replies[node] = lie
        self.delivered[stage] = replies
        return replies


class ServerTarget:
    """The server of a federation.

    Args:
        name: of the federation.
        federation: whose server it is.
        findings: where all is counted.
        watch: of the log.
    """

    def __init__(self, name: str, federation: SmallFederation, findings: Findings, watch: Watch) -> None:
        self.name, self._federation, self._findings, self._watch = name, federation, findings, watch
        mechanism = federation.config.privacy.mechanism
        self._masked, self._each = mechanism.masking is not None, mechanism.release != "total"
        self._noisy = mechanism.adds_noise
        self._kept: list[bytes] = []
        self._rng = random.Random(0)
        self._rate, self._poisoned, self._told = 0.5, False, [""]
        self._bending = Bending(federation, self._lie)
        self._remote: RemoteFederation | None = None
        self._counter = Counter(each=self._each, queries=1)
        self._t, self._model = 0, Message({})
        self._warm_up()

    def _warm_up(self) -> None:
        """Compute once what is kept for later, so that no message is blamed for it."""
        self._rate = 0.0
        remote = self._ready(self._rng)
        remote.run(self._counter, 0)
        remote.measure(self._model, 0, ("valid",))
        self._t = 1

    def trial(self, rng: random.Random) -> None:
        """A round in which the liars lie."""
        self._rng, self._rate = rng, rng.choice((0.2, 0.5, 1.0))
        remote = self._ready(rng)
        self._round(remote)
        if rng.random() < 0.1:
            self._measure(remote)
        self._t += 1

    def honest_round(self) -> None:
        """A round in which nobody lies, with the server as all the lies have left it."""
        self._rate = 0.0
        self._round(self._ready(random.Random(0)))
        self._t += 1

    def _ready(self, rng: random.Random) -> RemoteFederation:
        """The server of a run to go on with: liars that were left out or rest are let in again."""
        if self._remote is None or self._t >= self._federation.config.rounds or rng.random() < _ANNOUNCED_ANEW:
            if self._remote is not None:
                self._guarded("finish", self._remote.finish)
            self._remote, server = self._federation.remote(self._bending)
            self._t, self._model = 0, server.public()
            self._counter = Counter(each=self._each, queries=self._remote.announced.queries)
        roster = self._remote.roster
        for kept in (roster.excluded, roster.misses, roster.rests, roster.refused):
            kept.clear()
        roster.strangers.clear()
        return self._remote

    # Lies ------------------------------------------------------------------------------------------------------------

    def _lie(self, seat: NodeId, stage: str, reply: bytes) -> bytes | None:
        self._kept = [*self._kept[-_KEPT:], reply]
        if self._rng.random() >= self._rate:
            return reply
        what, lie = self._made(seat, reply)
        self._told.append(f"{stage} of {seat}: {what} {b'' if lie is None else lie[:1500]!r}")
        self._findings.counts["server", self.name, what, stage] += 1
        self._poisoned |= stage == "train.input" and lie is not None
        return lie

    def _made(self, seat: NodeId, reply: bytes) -> tuple[str, bytes | None]:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.06:
            return "dropped", None
        if kind < 0.16:
            return "stranger", mutate(rng, reply, self._kept)
        if kind < 0.26:
            return "bytes, signed", self._signed(seat, mutate(rng, reply[:-SIGNATURE_BYTES], self._kept))
        if kind < 0.32:
            return "replay", rng.choice(self._kept)
        draft = Draft.of(reply[:-SIGNATURE_BYTES])
        others = [Draft.of(one[:-SIGNATURE_BYTES]) for one in rng.sample(self._kept, min(3, len(self._kept)))]
        name = rng.choice(list(BENDS))
        if kind < 0.42:
            honest, draft = draft, copy.deepcopy(rng.choice(others))
            draft.fields |= {"of": honest.fields["of"], "seat": honest.fields["seat"]}
            name = "another moment"
        elif kind < 0.5:
            draft.fields["refused"], draft.arrays = rng.choice(("no", "\x1b[2Jno\n", "n" * 5000)), []
            draft.fields["code"] = rng.choice(("unknown_run", "aborted_round", "policy", "x", None, 7))
            draft.fields["counter"] = rng.choice((-1, 0, 10**6, 2**40, 2**62, 2**63 - 1, -2, 1e300, None))
            name = "refusal"
        for _ in range(rng.choice((1, 1, 2, 3))):
            try:
                BENDS.get(name, BENDS["as it is"])(rng, draft, others)
            except (TypeError, KeyError, IndexError, ValueError):  # the draft is bent beyond this
                break
        return name, self._signed(rng.choice((seat, seat, seat, *LIARS)), draft.encode())

    def _signed(self, seat: int, message: bytes) -> bytes:
        return self._federation.parties[seat].frame("reply", message)

    # What must hold --------------------------------------------------------------------------------------------------

    def _round(self, remote: RemoteFederation) -> None:
        """A round, and all that must hold after it."""
        self._told, self._poisoned, incidents = [], False, len(remote.incidents)
        opened = self._guarded("round", lambda: remote.run(self._counter, self._t))
        problems = self._about_roster(remote, incidents)
        if not opened and not remote.roster.excluded:  # whoever is proven to lie costs the others one round
            problems.append(f"honest work does not finish: {remote.abort_reason}")
        elif opened is True:
            problems += self._about_release(remote)
        self._findings.rounds["opened" if opened else "aborted, a liar is left out"] += 1
        self._note(problems)

    def _measure(self, remote: RemoteFederation) -> None:
        """Sums of metrics, which liars may spoil but not prevent."""
        self._told, incidents = [], len(remote.incidents)
        self._guarded("measuring", lambda: remote.measure(self._model, self._t, ("valid",)))
        self._note(self._about_roster(remote, incidents))

    def _guarded(self, what: str, act: Callable[[], Any]) -> Any:
        with measured(self._findings, 0, MOST_BYTES_OF_A_ROUND, self._case):
            try:
                return act()
            except Exception as error:
                self._findings.defect(
                    f"the server raises {type(error).__name__} in a {what}", f"{traceback.format_exc()} {self._case()}"
                )
                self._remote = None
                return None

    def _about_roster(self, remote: RemoteFederation, since: int) -> list[str]:
        liars = {self._federation.server.federation.name_of(seat) for seat in LIARS} | {str(seat) for seat in LIARS}
        problems = [
            f"an honest organisation has an incident: {incident.reason}"
            for incident in remote.incidents[since:]
            if incident.node not in liars
        ]
        if remote.roster.excluded.keys() - set(LIARS):
            problems.append("an honest organisation is left out")
        if any(remote.roster.routes.get(seat, seat) != seat for seat in HONEST):
            problems.append("an honest organisation is reached elsewhere")
        if any(remote._channel._ahead.get(seat, -1) > remote._channel._counter for seat in HONEST):
            problems.append("an honest organisation's counter was moved")
        wrong, failed = self._watch.taken()
        return problems + wrong + [f"the log has a traceback: {one[-200:]}" for one in failed]

    def _about_release(self, remote: RemoteFederation) -> list[str]:
        release, charged = remote.released, remote.guard.ledger.entries[-1]
        if release is None:
            return ["a round was opened and nothing released"]
        problems, poisson = [], self._federation.config.privacy.sampling.kind == "poisson"
        if not set(HONEST) <= set(release.nodes):
            problems.append("an honest organisation is missing in a release")
        if charged.cohort_id != remote.cohorts - 1:
            problems.append("a release was not charged")
        elif not poisson and not np.isin(release.members, members_of(charged)).all():
            problems.append("a release is charged to fewer users than are in it")
        expected = self._expected(release.nodes, release.members)
        found = self._counter.released[-1].double()
        if not torch.isfinite(found).all():
            problems.append("a release is not finite")
        elif expected is not None and not torch.allclose(found, expected.double(), rtol=1e-5, atol=1e-5):
            problems.append("a release is wrong")
        return problems

    def _expected(self, nodes: Sequence[int], members: np.ndarray) -> torch.Tensor | None:
        """The release as it follows from data or from what was delivered; None where noise or a liar's input decide."""
        train = self._federation.parts.train
        if self._masked:
            if self._noisy or self._poisoned:
                return None
            held = np.zeros(ITEMS)
            np.add.at(held, train.subset(members).items, 1)
            return torch.from_numpy(held)
        if self._noisy and not self._each:
            return None
        delivered = self._bending.delivered["train.clear"]
        try:
            arrays = [
                torch.tensor(codec.Packet.decode(delivered[seat][:-SIGNATURE_BYTES]).arrays[f"block/{COUNTS}"])
                for seat in sorted(nodes)
            ]
        except (NodesError, KeyError):
            return torch.full((ITEMS,), -1.0)  # what was used cannot be read again
        if self._federation.config.privacy.upload_bits is not None:
            return None
        return torch.cat(arrays) if self._each else torch.stack(arrays).sum(0)

    def _note(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self._findings.defect(f"server, {self.name}: {problem}", self._case())

    def _case(self) -> str:
        return f"{self.name}, round {self._t}: " + "; ".join(self._told)
