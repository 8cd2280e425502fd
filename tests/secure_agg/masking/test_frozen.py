"""The bytes of one round per kind of terms, frozen per protocol version.

With every random number fixed, the messages below are what version 2 sends. Clients and servers of different releases
meet on a network: when a change of the code changes these bytes on purpose, bump `PROTOCOL_VERSION` in
`secure_agg/masking/terms.py` and freeze anew (the failing assertion prints the new digests).
"""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from secure_agg import shamir
from secure_agg.masking import PROTOCOL_VERSION, ClientRequirements, MaskingClient, MaskingServer, Stage, Suite, Terms
from secure_agg.masking import client as client_module
from secure_agg.masking.messages import Envelope
from secure_agg.primitives.keys import Identity, KeyPair
from secure_agg.primitives.prg import keystream

RUN = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
LAYOUT = hashlib.sha256(b"five words").digest()
IDS = (3, 5, 8, 13, 4_294_967_294)
SILENT = 8
"""It sends no masked input, so that both kinds of share are revealed."""


class Drawn:
    """Random numbers that are none: the key stream of one key, in the order they are asked for."""

    def __init__(self, label):
        stream = np.empty(1 << 16, np.uint8)
        keystream(hashlib.sha256(label).digest(), stream)
        self._rest = stream.tobytes()

    def bytes(self, count):
        taken, self._rest = self._rest[:count], self._rest[count:]
        assert len(taken) == count
        return taken

    def below(self, limit):
        return int.from_bytes(self.bytes(48), "big") % limit


def play_frozen(monkeypatch, *, signed, suite):
    """Digest of every message of the round, by stage and client, and the total."""
    drawn = Drawn(b"secure_agg frozen round")
    monkeypatch.setattr(KeyPair, "generate", classmethod(lambda cls: cls.from_private(drawn.bytes(32))))
    monkeypatch.setattr(client_module, "secrets", SimpleNamespace(token_bytes=drawn.bytes))
    monkeypatch.setattr(shamir, "secrets", SimpleNamespace(randbelow=drawn.below))
    ids = tuple(sorted((*IDS, 21, 34))) if signed else IDS
    terms = Terms(RUN, 7, 32, 5, 5 if signed else 3, suite=suite, signed=signed, layout=LAYOUT)
    identities = {one: Identity.from_private(hashlib.sha256(b"identity %d" % one).digest()) for one in ids}
    directory = {one: identity.public for one, identity in identities.items()}
    server = MaskingServer(terms, directory=directory)
    requirements = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
    clients = {
        one: MaskingClient(one, requirements, run=RUN, identity=identities[one], directory=directory) for one in ids
    }
    vectors = {one: np.arange(5, dtype=np.uint32) * one for one in ids}
    digests, requests = {}, server.invite(ids)
    while server.awaits is not None:
        stage = server.awaits
        replies = {}
        for one, request in requests.items():
            if one == SILENT and stage >= Stage.MASKED_INPUT:
                continue
            replies[one] = answer(clients[one], stage, request, vectors[one])
            server.receive(one, replies[one])
        digests[str(Envelope.decode(next(iter(requests.values()))).stage)] = digest(requests)
        digests[str(stage)] = digest(replies)
        requests = server.advance()
    return digests, server.total.tolist()


def answer(client, stage, request, vector):
    match stage:
        case Stage.ADVERTISEMENT:
            return client.advertise(request)
        case Stage.SHARES:
            return client.share(request)
        case Stage.CHECK:
            return client.check(request)
        case Stage.MASKED_INPUT:
            return client.mask(request, vector)
        case Stage.CONFIRMATION:
            return client.confirm(request)
        case _:
            return client.unmask(request)


def digest(messages):
    """Of all clients' messages of a stage, each after its length, in the order of their ids."""
    state = hashlib.sha256()
    for _, message in sorted(messages.items()):
        state.update(len(message).to_bytes(4, "big") + message)
    return state.hexdigest()[:32]


FROZEN = {
    "unsigned, AES-256": {
        "invitation": "8897c1ebdb70977d839a1e1511fd3ed2",
        "advertisement": "fc4c09f73138bab194f449d403ecbf02",
        "roster": "14ebed96d71868428a7324bda446bfc0",
        "shares": "96010437de2bc17ce3fddb4693c20526",
        "delivery": "7c736f9803901be410f07f6c9364060d",
        "masked input": "11cd552c8d7935c119d4ee9205e87ac6",
        "request": "1123848e87045761844f53591bf7e91a",
        "reveal": "533e2c88e6870e89cfc642013f0bd063",
    },
    "unsigned, AES-128": {
        "invitation": "6eadf36e19aa713b0d67e6623fcedad2",
        "advertisement": "fc4c09f73138bab194f449d403ecbf02",
        "roster": "14ebed96d71868428a7324bda446bfc0",
        "shares": "4d57df6a7e83a6490ffe66f821a41f04",
        "delivery": "9862a8dfe2367a4d2e43544c9a60b87b",
        "masked input": "3e13b4f0cf18fc5cf0bb5acdbd51e68f",
        "request": "1123848e87045761844f53591bf7e91a",
        "reveal": "533e2c88e6870e89cfc642013f0bd063",
    },
    "signed, ChaCha20": {
        "invitation": "4fc5109e5abeb8784697d93bb13ce544",
        "advertisement": "5e1c69e2da2dfcd0da887819dcd896e7",
        "roster": "4f1610bbc566085e0d8e48426bc702ce",
        "shares": "ec3101f9419aa0fcf34476da848f693b",
        "delivery": "3c6a6483a4c2ab1ba07487bc36a3009b",
        "check": "a076eb9419d98a20cf8ef3c500ab68b2",
        "go ahead": "22b01fe416595aebd0b06394b743979d",
        "masked input": "54ffc280db6a50d8c9368e8f62f333b9",
        "survivors": "05bf71a54818969bc2a55b8b0fffa0b8",
        "confirmation": "f19d2ea10a9a117e2c4c18eecfde1265",
        "request": "7ad7571e729bf05161b2ac55ef64e357",
        "reveal": "48feeb16913281995920c2fcedf6a9e4",
    },
}


@pytest.mark.parametrize(("name", "signed", "suite"), [
    ("unsigned, AES-256", False, Suite.AES256),
    ("unsigned, AES-128", False, Suite.AES128),
    ("signed, ChaCha20", True, Suite.CHACHA20),
])  # fmt: skip
def test_the_wire_is_what_it_was(monkeypatch, name, signed, suite):
    assert PROTOCOL_VERSION == 2, "freeze the messages of the new version beside the old"
    digests, total = play_frozen(monkeypatch, signed=signed, suite=suite)
    assert digests == FROZEN[name], "the wire has changed: bump PROTOCOL_VERSION and freeze the new messages"
    survivors = [one for one in (*IDS, *((21, 34) if signed else ())) if one != SILENT]
    assert total == [sum(survivors) * position % 2**32 for position in range(5)]
