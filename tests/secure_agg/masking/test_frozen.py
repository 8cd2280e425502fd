"""The bytes of one round per kind of terms, frozen per protocol version.

With every random number fixed, the messages below are what version 3 sends. Clients and servers of different releases
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


def play_frozen(monkeypatch, *, signed, suite, neighbours=0):
    """Digest of every message of the round, by stage and client, and the total."""
    drawn = Drawn(b"secure_agg frozen round")
    monkeypatch.setattr(KeyPair, "generate", classmethod(lambda cls: cls.from_private(drawn.bytes(32))))
    monkeypatch.setattr(client_module, "secrets", SimpleNamespace(token_bytes=drawn.bytes))
    monkeypatch.setattr(shamir, "secrets", SimpleNamespace(randbelow=drawn.below))
    ids = among(signed=signed, neighbours=neighbours)
    threshold = 3 if neighbours or not signed else 5
    terms = Terms(RUN, 7, 32, 5, threshold, neighbours, suite=suite, signed=signed, layout=LAYOUT)
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


def among(*, signed, neighbours):
    """Who takes part."""
    return tuple(sorted({*IDS, *((21, 34) if signed else ()), *range(100, 100 + 3 * neighbours)}))


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
        "invitation": "ef974f7d31701a1d5d42fed05f41471d",
        "advertisement": "8d8e9300e2bb6d9d5f5e39fa2f7329a8",
        "roster": "9c29398ff599705857ced25d76d0680d",
        "shares": "334c4e11eed75b576174ee790e3524bf",
        "delivery": "7d3cfb70cf636dd7b66e9c612db7aba8",
        "masked input": "eb6c15a62cfc7b023581c92ad9c887d9",
        "request": "2f7fbb075268d127923cbf450a416c0f",
        "reveal": "e6f125afb1ec58b981de8d37c0b66dbc",
    },
    "unsigned, AES-128": {
        "invitation": "b4d028291d704adb26b4f4c192bffbfa",
        "advertisement": "8d8e9300e2bb6d9d5f5e39fa2f7329a8",
        "roster": "9c29398ff599705857ced25d76d0680d",
        "shares": "a6f39b7d960278d4e8d43319ba45cec3",
        "delivery": "438861da7c5de8a695ed690c81454a52",
        "masked input": "7ad7f38051ad823abe3df67a51435f79",
        "request": "2f7fbb075268d127923cbf450a416c0f",
        "reveal": "e6f125afb1ec58b981de8d37c0b66dbc",
    },
    "signed, ChaCha20": {
        "invitation": "a657cb5bc677274c14064bd0e879c43d",
        "advertisement": "fa2b65ab99034217f6c9dc9300068bd4",
        "roster": "5d6d2086da5f3d4b024699e643bd2d74",
        "shares": "b633b12d14852428859f1ab8583bf617",
        "delivery": "b85a87285b47e53346f67859078db5e2",
        "check": "48932d6cad8006ce5d9e327cdb5980f6",
        "go ahead": "60620af49a89ec10f9680b3847afe0db",
        "masked input": "46d20cc123d06c7a47e3138025d179a3",
        "survivors": "f5c853de5e6d2568e38438ca7dd85804",
        "confirmation": "b45ab5aa3a03a0e2287384698ac7e993",
        "request": "d6b205a9b7ed76c6589b7fb8f8f8865b",
        "reveal": "87c4295a40c3abd8666667b92bbff7c4",
    },
    "signed, 4 neighbours": {
        "invitation": "1cd9a9eebbd5dd32c2743863b92fd0c3",
        "advertisement": "9e9a5b1cb9871d40d1933015598ffae3",
        "roster": "9f9f3e9d35e55b7fa5913f5d969d304c",
        "shares": "2cbcbe012529b4a4a2499a59d1b8029a",
        "delivery": "3968c37cccdd7128e61ddd0d78c93d3f",
        "check": "cb19d14b8c5f623e7c553b0eeb6b1e1b",
        "go ahead": "628d445cc5585d1e2fb07c76e8365ee3",
        "masked input": "3cf8754edc83bfef17b5d830c17965d4",
        "survivors": "1171daf04dc060541d26252d97e4fac5",
        "confirmation": "02f87f7146d2005a578f077a34237f8b",
        "request": "ca17577c514a74dc9c590ed7b665fa67",
        "reveal": "9aadf8640be0ae925daf6d46531c038e",
    },
}


@pytest.mark.parametrize(("name", "signed", "suite", "neighbours"), [
    ("unsigned, AES-256", False, Suite.AES256, 0),
    ("unsigned, AES-128", False, Suite.AES128, 0),
    ("signed, ChaCha20", True, Suite.CHACHA20, 0),
    ("signed, 4 neighbours", True, Suite.AES256, 4),
])  # fmt: skip
def test_the_wire_is_what_it_was(monkeypatch, name, signed, suite, neighbours):
    assert PROTOCOL_VERSION == 3, "freeze the messages of the new version beside the old"
    digests, total = play_frozen(monkeypatch, signed=signed, suite=suite, neighbours=neighbours)
    assert digests == FROZEN[name], "the wire has changed: bump PROTOCOL_VERSION and freeze the new messages"
    survivors = [one for one in among(signed=signed, neighbours=neighbours) if one != SILENT]
    assert total == [sum(survivors) * position % 2**32 for position in range(5)]
