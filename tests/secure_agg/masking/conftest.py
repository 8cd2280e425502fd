"""A round played one message at a time, so that a test can stop anywhere, fork, and send what it likes."""

import copy
import gc
import json
from collections import defaultdict
from types import FunctionType, MethodType, ModuleType

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_agg.errors import MessageRefused, SecureAggregationError
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Stage, Terms
from secure_agg.primitives.keys import Identity
from secure_agg.primitives.prg import random_uints

RUN = bytes(range(16))
FOLLOWS = {
    False: {
        Stage.ADVERTISEMENT: Stage.INVITATION,
        Stage.SHARES: Stage.ROSTER,
        Stage.MASKED_INPUT: Stage.DELIVERY,
        Stage.REVEAL: Stage.REQUEST,
    },
    True: {
        Stage.ADVERTISEMENT: Stage.INVITATION,
        Stage.SHARES: Stage.ROSTER,
        Stage.CHECK: Stage.DELIVERY,
        Stage.MASKED_INPUT: Stage.GO_AHEAD,
        Stage.CONFIRMATION: Stage.SURVIVORS,
        Stage.REVEAL: Stage.REQUEST,
    },
}


class Play:
    """Server and clients of one round; `requests` are the messages that clients have not answered yet."""

    def __init__(
        self, clients=5, threshold=3, *, requirements=None, min_clients=3, stores=False, number=3, run=RUN, **terms
    ):
        self.ids = list(range(clients)) if isinstance(clients, int) else list(clients)
        self.terms = Terms(run, number, terms.pop("bits", 32), terms.pop("length", 4), threshold, **terms)
        self.requirements = requirements or ClientRequirements(
            min_clients=3, min_threshold=2, require_signatures=self.terms.signed
        )
        self.vectors = {one: random_uints(self.terms.length, self.terms.ring.dtype) for one in self.ids}
        self.identities = {one: Identity.generate() for one in self.ids} if self.terms.signed else {}
        self.directory = {one: identity.public for one, identity in self.identities.items()}
        self.kept = {one: [] for one in self.ids}
        self.server = MaskingServer(self.terms, min_clients=min_clients, directory=self.directory)
        self.clients = {
            one: MaskingClient(one, self.requirements, run=run, **self.belongings(one, stores=stores))
            for one in self.ids
        }
        self.sent, self.replies = defaultdict(dict), defaultdict(dict)
        self.refusals, self.secrets = {}, {}
        self.keep(self.server.invite(self.ids))

    @property
    def follows(self):
        """By message awaited of clients, the server's message before it."""
        return FOLLOWS[self.terms.signed]

    def belongings(self, one, *, stores=False):
        store = {"store": self.kept[one].append} if stores else {}
        return {"identity": self.identities.get(one), "directory": self.directory, **store}

    def keep(self, requests):
        self.requests = requests
        if self.server.awaits is not None:
            self.sent[self.follows[self.server.awaits]].update(requests)

    def restored(self, one, snapshot=None):
        """The client in another process."""
        snapshot = self.clients[one].snapshot() if snapshot is None else snapshot
        return MaskingClient.restore(snapshot, self.requirements, **self.belongings(one))

    def fork(self):
        """The same round, to be spoilt without harm to this one."""
        other = copy.copy(self)
        other.server = copy.deepcopy(self.server)
        other.clients = {one: self.restored(one) for one in self.clients}
        other.sent, other.replies = copy.deepcopy(self.sent), copy.deepcopy(self.replies)
        other.refusals, other.requests, other.secrets = dict(self.refusals), dict(self.requests), {}
        return other

    def call(self, client, awaited, request, vector=None):
        """What a client returns to a request, by the message that is awaited of it."""
        match awaited:
            case Stage.ADVERTISEMENT:
                return client.advertise(request)
            case Stage.SHARES:
                return client.share(request)
            case Stage.CHECK:
                return client.check(request)
            case Stage.MASKED_INPUT:
                return client.mask(request, self.vectors[client.client] if vector is None else vector)
            case Stage.CONFIRMATION:
                return client.confirm(request)
            case _:
                return client.unmask(request)

    def answer(self, one, request=None):
        """One client's reply to its outstanding request (or to another), not yet handed to the server."""
        request = self.requests[one] if request is None else request
        return self.call(self.clients[one], self.server.awaits, request)

    def receive(self, one, reply):
        self.server.receive(one, reply)
        self.replies[self.server.awaits][one] = reply

    def answer_all(self, but=()):
        """Everybody else answers; who refuses has dropped out."""
        for one in self.requests:
            if one in but or one not in self.server.pending_clients:
                continue
            try:
                reply = self.answer(one)
            except SecureAggregationError as refused:
                self.refusals[one] = refused
                continue
            self.receive(one, reply)

    def advance(self):
        self.keep(self.server.advance())

    def until(self, awaited, silent=()):
        """Play honestly until this message is due of clients; `silent` never answer."""
        while self.server.awaits is not awaited:
            self.answer_all(but=silent)
            self.advance()
        return self

    def finish(self, silent=()):
        """Play honestly to the end, and return the total."""
        while self.server.awaits is not None:
            self.answer_all(but=silent)
            self.advance()
        return self.server.total

    def must_be_over(self, one):
        """The client has left: it answers nothing, and no secret that it had is in it or in its snapshot."""
        client = self.clients[one]
        assert client.ended == "aborted"
        assert client.awaits is None
        gone = self.secrets.pop(one)
        assert gone
        held = reachable(client)
        assert not any(isinstance(thing, X25519PrivateKey) for thing in held)
        texts = [bytes(thing) for thing in held if isinstance(thing, (bytes, bytearray))]
        assert not any(secret in text for secret in gone for text in texts)
        kept = client.snapshot().decode()
        assert not any(secret.hex() in kept for secret in gone)
        known = json.loads(kept)
        assert not known["keys"]
        assert not known["inbound"]
        assert not known["held"]
        assert set(known["self_seed"]) <= {"0"}
        for awaited, follows in self.follows.items():
            for message in self.sent[follows].values():
                with pytest.raises(MessageRefused):
                    self.call(client, awaited, message)
            with pytest.raises(MessageRefused):
                self.call(self.restored(one), awaited, self.requests.get(one, b""))
        assert client.snapshot().decode() == kept

    def note_secrets(self, one):
        """Remember what must be gone later."""
        self.secrets[one] = secrets_of(self.clients[one])
        return self.secrets[one]

    def server_state(self):
        """All that the server knows, to be compared; who signed something else than asked is noted besides."""
        server, apart = self.server, {"_sum", "_total", "_graph", "_contradicting"}
        others = {name: value for name, value in vars(server).items() if name not in apart}
        return repr(others), server._sum.tobytes()

    def expected(self, survivors=None):
        """The sum in the open, coordinate by coordinate, in Python's integers."""
        survivors = self.server.survivors if survivors is None else survivors
        columns = zip(*(self.vectors[one].tolist() for one in survivors), strict=True)
        return np.array([sum(column) % 2**self.terms.bits for column in columns], self.terms.ring.dtype)


def secrets_of(client):
    """Everything in a client's snapshot that others must not see."""
    known = json.loads(client.snapshot())
    result = [*(known["keys"] or []), known["self_seed"], *(key for _, key in known["inbound"])]
    for _, pair in known["held"]:
        result += [pair[:66], pair[66:]]
    return [bytes.fromhex(text) for text in result if set(text) - {"0"}]


def reachable(root):
    """All objects that can be reached from one, code and classes left out."""
    seen, waiting = {}, [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType, MethodType)):
            continue
        seen[id(thing)] = thing
        waiting += gc.get_referents(thing)
    return list(seen.values())


@pytest.fixture(scope="session")
def play():
    """The class `Play`."""
    return Play
