"""A node that lies to the server under its own real key: its own data is missing, and nobody else pays."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import RefusalCode
from privfed.engines.nodes.loopback import InProcess
from privfed.methods.shared.vae_server import COUNTS
from secure_agg.masking import MaskingClient, key_derivation
from secure_agg.masking.messages import HEADER_BYTES, SEALED_BYTES, Complaint, membership_bits
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES, KeyPair
from tests.engines.nodes.hostile.liars import FORGERY, LIAR, NAME

HONEST, OTHERS = (100, 101, 102), (100, 101, 102, 104)
"""Who does not lie, of four nodes and of five: masked sums in which one of four may lie need all four."""
ARRAY = f"block/{COUNTS}"


class Play:
    """A standing federation whose server plays round after round; one node's reply may be replaced in each."""

    def __init__(self, f: Any, count_server: Any) -> None:
        self.f, self.server, self.lie, self.t = f, count_server(), ("", None), 0
        self.remote = f.remote(InProcess(f.nodes, tamper=self._tamper))
        self.schema = {COUNTS: Block((70,))}

    def _tamper(self, node: int, stage: str, reply: bytes) -> bytes:
        if (node, stage) != (LIAR, self.lie[0]) or self.lie[1] is None:
            return reply
        made = self.lie[1](Packet.decode(reply[:-SIGNATURE_BYTES]))
        return made if isinstance(made, bytes) else self.f.parties[LIAR].frame("reply", made.encode())

    def round(self) -> bool:
        """One round, in which nobody rests from an earlier one."""
        roster = self.remote.roster
        roster.misses.clear()
        roster.rests.clear()
        self.t += 1
        return bool(self.remote.run(self.server, self.t - 1))

    def charges(self) -> list[int]:
        """Number of queries that each node has recorded."""
        return [len(self.f.nodes[node].ledger_of(self.remote.announced.run).entries) for node in self.f.nodes]

    def require_sum_of(self, *nodes: int, queried: int = 45) -> None:
        """The latest sum is that of all users of these nodes, to the unit; in the clear all queried are recorded."""
        users = np.concatenate([self.f.shards[node - 100] for node in nodes])
        assert torch.equal(self.server.sums[-1][1], self.f.counts(users))
        recorded = np.arange(queried) if self.f.config.privacy.mechanism.masking is None else np.sort(users)
        assert np.array_equal(self.remote.guard.ledger.entries[-1].members(), recorded)


def numbers(value: float, shape: tuple[int, ...] = (70,), dtype: Any = np.float64) -> Callable[[Packet], Packet]:
    return lambda p: Packet(p.fields, {ARRAY: np.full(shape, value, dtype)})


def small(**changes: Any) -> Callable[[Packet], Packet]:
    return lambda p: Packet({**p.fields, **changes}, p.arrays)


def no(**changes: Any) -> Callable[[Packet], Packet]:
    return lambda p: Packet({**p.fields, "refused": "no", "counter": 1, **changes})


CLEAR: dict[str, tuple[Callable[[Packet], Any], str]] = {
    "numbers that are NaN": (numbers(np.nan), "NaN or infinity"),
    "numbers that are infinite": (numbers(np.inf), "NaN or infinity"),
    "numbers so large that their sum is infinite": (numbers(1e300), "float32"),
    "numbers at the very end of float32": (numbers(-3.4e38), "float32"),
    "a block of another shape": (numbers(1.0, (71,)), "shape"),
    "a block of another type": (numbers(1, dtype=np.int64), "int64"),
    "no block at all": (lambda p: Packet(p.fields), "no more and no fewer"),
    "a block that was not queried": (
        lambda p: Packet(p.fields, {**p.arrays, "block/other": np.zeros(3)}), "no more and no fewer"),
    "more users within the clip norm than it hosts": (small(within=10**6), "within"),
    "a negative number of users within the clip norm": (small(within=-1), "within"),
    "a truth value where a number belongs": (small(within=True), "within"),
    "a reply to another request": (small(of="0" * 64), "another request"),
    "a reply in the name of another seat": (small(seat=0), "another organisation"),
    "a reply of a seat that does not exist": (small(seat=2**62), "another organisation"),
    "a seat that is negative": (small(seat=-1), "seat"),
    "a receipt that is none": (small(receipt=[1, FORGERY, "x"]), "receipt"),
    "a receipt with a huge number": (small(receipt=[2**63 - 1, "0" * 64]), "receipt"),
    "a refusal whose counter is two to the 62": (no(counter=2**62), "it refuses"),
    "a refusal whose counter is beyond all": (no(counter=2**63 - 1), "counter"),
    "a refusal whose counter is negative": (no(counter=-(2**62)), "counter"),
    "a refusal that is a number": (small(refused=7), "neither answers nor refuses"),
    "a refusal of four megabytes": (no(refused="no" * 2**20), "it refuses"),
    "a refusal that forges lines of the log": (no(refused=FORGERY, code=FORGERY), r"\x1b[2J"),
    "a code that is none": (no(code=["unknown_run"]), "it refuses"),
    "a reply without a signature": (lambda p: p.encode(), "not signed"),
    "a reply that is cut": (lambda p: p.encode()[:100], "not signed"),
    "nothing": (lambda p: b"", "not signed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def plays() -> dict[str, Play]:
    return {}


@pytest.fixture
def clear(standing: Callable[..., Any], count_server: Any, plays: dict[str, Play]) -> Iterator[Play]:
    if "clear" not in plays:
        plays["clear"] = Play(standing("clear", "none"), count_server)
        assert plays["clear"].round()
    yield plays["clear"]
    plays["clear"].lie = ("", None)


@pytest.mark.parametrize("lie", CLEAR)
def test_a_reply_is_dropped_and_the_others_add_up(clear: Play, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    made, said = CLEAR[lie]
    clear.lie = ("train.clear", made)
    told, before = len(clear.remote.incidents), clear.charges()
    caplog.set_level(logging.WARNING)
    assert clear.round()
    clear.require_sum_of(*HONEST)
    (incident,) = clear.remote.incidents[told:]
    assert (incident.node, incident.stage) == (NAME, "train.clear")
    assert said in incident.reason
    assert incident.code in (None, RefusalCode.REFUSED)
    assert len(incident.reason) <= 500
    assert all(line.isascii() and line.isprintable() for line in caplog.messages)
    assert [now - then for now, then in zip(clear.charges(), before, strict=True)] == [1] * 4


def test_after_all_these_lies_everybody_is_in_the_next_sum(clear: Play) -> None:
    """Also the liar, once it is honest: no lie has raised the counter that anybody else is sent."""
    assert clear.round()
    clear.require_sum_of(*HONEST, LIAR)
    assert clear.remote._channel._counter < 10**6


# Who hosts whom -------------------------------------------------------------------------------------------------------

CLAIMS = {
    "users of another organisation": ("0-11", "does not host"),
    "all users of the federation": ("0-44", "does not host"),
    "a quadrillion users": ("0-999999999999999", "names no users"),
    "users that are twice there": ("34,34", "names no users"),
    "users that are no text": (7, "members"),
    "users in a forged line": (FORGERY, "names no users"),
}


@pytest.mark.parametrize("lie", CLAIMS)
def test_a_node_claims_users(standing: Callable[..., Any], count_server: Any, plays: dict[str, Play], lie: str) -> None:
    if "claims" not in plays:
        plays["claims"] = Play(
            standing("claims", "clip:clip_norm=10,sampling.kind=poisson,sampling.rate=0.5"), count_server
        )
    play, (claimed, said) = plays["claims"], CLAIMS[lie]
    play.lie = ("train.clear", small(members=claimed))
    told = len(play.remote.incidents)
    assert play.round()
    members = play.remote.guard.ledger.entries[-1].members()
    members = np.arange(34) if members is None else members
    assert not np.isin(members, play.f.shards[3]).any()
    (incident,) = play.remote.incidents[told:]
    assert (incident.node, said in incident.reason) == (NAME, True)


# Masked sums ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def masked(standing: Callable[..., Any], count_server: Any, plays: dict[str, Play]) -> Iterator[Play]:
    """A federation with masked sums; the liar of an earlier test is forgiven."""
    if "masked" not in plays:
        plays["masked"] = Play(standing("masked", "secure-sum:clip_norm=10.0", nodes=5, corrupt=1), count_server)
        assert plays["masked"].round()
    play = plays["masked"]
    play.remote.roster.excluded.clear()
    yield play
    play.lie = ("", None)


def bent(message: bytes, first: int, length: int) -> bytes:
    """A message in whose body some bytes are others."""
    start = HEADER_BYTES + first
    return message[:start] + bytes(255 - one for one in message[start : start + length]) + message[start + length :]


def complaining(node: Any, accused: set[int], *, evidence: bool = True, signed: bool = True) -> bytes:
    """A complaint under the liar's own key, with its real channel key as evidence or with another."""
    client: MaskingClient = node._session._client()
    state = client._state
    flags = membership_bits(state.neighbours, accused)
    private = (state.keys[1] if evidence else KeyPair.generate()).private_bytes()
    message = key_derivation.complaint_message(state.context, client.client, flags, private)
    signature = node.party.identity.sign(message) if signed else bytes(SIGNATURE_BYTES)
    return Complaint(flags, private, signature).encode()


Wrap = Callable[[Any, Callable[..., bytes]], Callable[..., bytes]]
"""From a node and what its masked session answers to what it answers instead."""

FIRST_SEALED = KEY_BYTES
EXCLUDED: dict[str, tuple[str, Wrap, bool]] = {
    "it seals rubbish for everybody": (
        "share", lambda node, real: lambda m: bent(real(m), FIRST_SEALED, 4 * SEALED_BYTES), True),
    "it seals rubbish for one": ("share", lambda node, real: lambda m: bent(real(m), FIRST_SEALED, SEALED_BYTES), True),
    "it complains about an honest node": (
        "check", lambda node, real: lambda m: (real(m)[:HEADER_BYTES] + complaining(node, {0})), True),
    "it complains about everybody": (
        "check", lambda node, real: lambda m: (real(m)[:HEADER_BYTES] + complaining(node, {0, 1, 2})), True),
    "it complains with another key as evidence": (
        "check", lambda node, real: lambda m: (real(m)[:HEADER_BYTES] + complaining(node, {0}, evidence=False)), True),
    "it masks with another model than it was sent": (
        "mask", lambda node, real: lambda go, elements, model: real(go, elements, "0" * 64), False),
    "it confirms other survivors": ("confirm", lambda node, real: lambda m: bent(real(m), 0, 8), False),
}  # fmt: skip
"""By lie, what the liar's session answers otherwise, and whether the sum begins again at once: nobody has trained."""


@pytest.mark.parametrize("lie", EXCLUDED)
def test_a_proven_liar_is_left_out_and_costs_one_retry(masked: Play, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, wrap, at_once = EXCLUDED[lie]
    liar = masked.f.nodes[LIAR]
    with monkeypatch.context() as patch:
        patch.setattr(liar._session, stage, wrap(liar, getattr(liar._session, stage)))
        before, opened = masked.charges(), len(masked.server.sums)
        assert masked.round() == at_once
        assert len(masked.server.sums) == opened + at_once, "a lost round opens nothing"
        assert set(masked.remote.roster.excluded) == {3}
        assert {one.node for one in masked.remote.incidents} == {NAME}
        if not at_once:
            assert masked.round()
    masked.require_sum_of(*OTHERS)
    charged = [now - then for now, then in zip(masked.charges(), before, strict=True)]
    assert charged == ([1, 1, 1, 0, 1] if at_once else [2, 2, 2, 1, 2]), (
        "one retry, and only inputs that left are charged"
    )


DROPPED: dict[str, tuple[str, Wrap, bool]] = {
    "it complains about nobody": (
        "check", lambda node, real: lambda m: real(m)[:HEADER_BYTES] + complaining(node, set()), False),
    "it complains without a signature": (
        "check", lambda node, real: lambda m: real(m)[:HEADER_BYTES] + complaining(node, {0}, signed=False), False),
    "it complains in the name of another": (
        "check", lambda node, real: lambda m: as_another(real(m), complaining(node, {1})), False),
    "it signs a check of other sharers": ("check", lambda node, real: lambda m: bent(real(m), 0, 8), False),
    "it shares too little": ("share", lambda node, real: lambda m: real(m)[:-1], False),
    "its masked input is cut": ("mask", lambda node, real: lambda *given: real(*given)[:-1], False),
    "its masked input is of another session": (
        "mask", lambda node, real: lambda *given: bent(real(*given), -12, 4), False),
    "its advertised keys are of low order": ("advertise", lambda node, real: lambda m: _low_order(real(m)), False),
    "it reveals too few shares": ("reveal", lambda node, real: lambda m: real(m)[:-1], True),
    "it reveals what is no share": (
        "reveal", lambda node, real: lambda m: real(m)[:HEADER_BYTES] + b"\xff" * 132, True),
}  # fmt: skip
"""By lie, likewise, and whether its data is in the sum all the same: its masked input had come before."""


def as_another(message: bytes, body: bytes) -> bytes:
    """A message whose header says that seat 0 has sent it."""
    return message[:32] + bytes(4) + message[36:HEADER_BYTES] + body


def _low_order(message: bytes) -> bytes:
    return message[:HEADER_BYTES] + bytes(KEY_BYTES) + message[HEADER_BYTES + KEY_BYTES :]


@pytest.mark.parametrize("lie", DROPPED)
def test_a_bad_message_of_a_masked_sum_is_dropped(masked: Play, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, wrap, inside = DROPPED[lie]
    liar = masked.f.nodes[LIAR]
    masked.remote.masked_rounds.forget_next()
    told = len(masked.remote.incidents)
    with monkeypatch.context() as patch:
        patch.setattr(liar._session, stage, wrap(liar, getattr(liar._session, stage)))
        assert masked.round()
    masked.require_sum_of(*OTHERS, *((LIAR,) if inside else ()))
    assert {one.node for one in masked.remote.incidents[told:]} == {NAME}
    assert not masked.remote.roster.excluded


def test_a_commitment_to_another_self_mask_loses_ever_fewer_rounds(
    masked: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No share proves it, so it is suspected only: it rests 1, 3, 7 and then 15 queries between two that it loses."""
    liar, remote, opened = masked.f.nodes[LIAR], masked.remote, []
    real = liar._session.share
    told = len(remote.incidents)
    with monkeypatch.context() as patch:
        patch.setattr(liar._session, "share", lambda m: bent(real(m), 0, KEY_BYTES))
        for _ in range(6):
            masked.t += 1
            opened.append(remote.run(masked.server, masked.t - 1))
            if opened[-1]:
                masked.require_sum_of(*OTHERS)
    remote.roster._suspected.clear()
    assert opened == [False, True, False, True, True, True]
    assert {(one.node, one.stage) for one in remote.incidents[told:]} == {(NAME, "train.reveal")}
    assert not remote.roster.excluded


@pytest.mark.parametrize("lie", ["train.share", "train.check", "train.input", "train.confirm", "train.reveal"])
def test_it_falls_silent_before(masked: Play, lie: str) -> None:
    masked.remote._channel.transport.faults = lambda node, at: "drop" if (node, at) == (LIAR, lie) else None
    try:
        assert masked.round()
    finally:
        masked.remote._channel.transport.faults = lambda node, at: None
    masked.require_sum_of(*OTHERS, *((LIAR,) if lie in ("train.confirm", "train.reveal") else ()))


def test_it_lies_about_its_own_users(masked: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can know what its users have: the sum is off by what it says, and by nothing else."""
    liar = masked.f.nodes[LIAR]
    from privfed.guards.ring_code import RingCode

    code = RingCode(masked.f.config.privacy.mechanism, masked.schema, 45)
    one = code.encode({COUNTS: torch.eye(1, 70)[None, 0][None][0]}, 0, bytes(32))
    real = liar._session.mask
    with monkeypatch.context() as patch:
        patch.setattr(liar._session, "mask", lambda go, elements, model: real(go, elements + 7 * one, model))
        assert masked.round()
    honest = masked.f.counts(np.arange(45))
    honest[0] += 7
    assert torch.equal(masked.server.sums[-1][1], honest)


# The announcement -----------------------------------------------------------------------------------------------------

ANNOUNCED: dict[str, tuple[Callable[[Packet], Any], str]] = {
    "its nonce is longer than any": (small(nonce="x" * 100), "nonce"),
    "its nonce is a number": (small(nonce=7), "nonce"),
    "it gives no nonce": (lambda p: Packet({k: v for k, v in p.fields.items() if k != "nonce"}), "nonce"),
    "it refuses the run with a huge counter": (no(counter=2**62), "it refuses"),
    "it answers an announcement in the name of another": (small(seat=0), "not signed by node100"),
}


@pytest.mark.parametrize("lie", ANNOUNCED)
def test_it_lies_when_a_run_is_announced(standing: Callable[..., Any], count_server: Any, lie: str) -> None:
    made, said = ANNOUNCED[lie]
    play = Play(standing("announced", "none"), count_server)
    play.lie = ("train.announce", made)
    assert play.round()
    play.require_sum_of(*HONEST, queried=34)
    assert {one.node for one in play.remote.incidents} <= {NAME, str(LIAR)}
    assert said in play.remote.incidents[0].reason
    play.lie = ("", None)
    assert play.round()
    assert play.remote._channel._counter < 1000, "and honest nodes are sent counters as before"
