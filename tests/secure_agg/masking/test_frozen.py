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
        "invitation": "629aa176f54c7d75f2ce119f498bcb81",
        "advertisement": "a5826f5c9cdb53fac9d5cca6ff24d3a3",
        "roster": "ded10d0d46d4c8da9c0d7774ec7e3982",
        "shares": "02648a3a5bcb3122395f828fbae33308",
        "delivery": "e3bf5b70ec2962e4140e05c61447c4b9",
        "masked input": "85d1244f6eb9d375a7ad60927a8a2b49",
        "request": "fab2b651dc8c8e0e929aed6d82ac501c",
        "reveal": "5477ebc56a28a6c3bcf92e228bc534c0",
    },
    "unsigned, AES-128": {
        "invitation": "fe16c39efb5140f22f2dd1861d9c62af",
        "advertisement": "a5826f5c9cdb53fac9d5cca6ff24d3a3",
        "roster": "ded10d0d46d4c8da9c0d7774ec7e3982",
        "shares": "0c1d86632cc654302fa64712288301f7",
        "delivery": "513586442039fa1e2ad052cd31920a18",
        "masked input": "9a542e527f554b714c872bf0930982bd",
        "request": "fab2b651dc8c8e0e929aed6d82ac501c",
        "reveal": "5477ebc56a28a6c3bcf92e228bc534c0",
    },
    "signed, ChaCha20": {
        "invitation": "6ca959dfb25591017bf5e4124bdfb1fe",
        "advertisement": "0344eb5fcb49dbcb60b1a0eac6c72f36",
        "roster": "6db3db832c9d6b4b6468004da89deb14",
        "shares": "7b19fc54c80363646ccfc69dca823937",
        "delivery": "1f68784a83650a5b80b8f98694ec8602",
        "masked input": "8ecbcf3a87b480279f569ba99b884cd2",
        "survivors": "be190c3e8ff5f4086a69fe50c5b9dfd8",
        "confirmation": "73cfb2a8c6e1df0f9357853b3ec13143",
        "request": "c81df0912d3ebedd1aee5fafe019bbfd",
        "reveal": "08aabee96203793f1da5e1cb47dbe1cd",
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
