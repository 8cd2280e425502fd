"""A server that lies in a masked sum of nodes: no sum is opened but the one that every node in it agreed to.

All lies are told to one standing federation, each in a session and a cohort of its own, so that it is also shown that
none of them ends anything but its own session: the next one begins with the same nodes.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes.policy import Policy
from privfed.federation import Message
from secure_agg.errors import PartiesAccused, RoundAborted
from secure_agg.masking import Identity, key_derivation
from secure_agg.masking.messages import (
    HEADER_BYTES,
    Advertisement,
    Delivery,
    GoAhead,
    Roster,
    Survivors,
    UnmaskRequest,
    membership_bits,
)
from secure_agg.masking.terms import PROTOCOL_VERSION
from secure_agg.primitives.keys import SIGNATURE_BYTES, KeyPair
from tests.engines.nodes.hostile.liars import MaskedRound, counts, joined

SECURE = "secure-sum:clip_norm=10.0"
POLICY = Policy(allow_simulation=True, min_nodes=3, min_threshold=2, min_users=34)
NODES = 4
VICTIM = 1
AROUND = np.arange(NODES) != VICTIM
"""Seat of the node that is lied to, where one is."""


class Table:
    """A standing federation of four nodes that have joined one run, and the session to play next."""

    def __init__(self, f: Any) -> None:
        self.f, self.servers, self.session = f, joined(f), 0

    def round(self, **given: Any) -> MaskedRound:
        self.session += 1
        return MaskedRound(self.f, self.servers, self.session, **given)

    def entries(self) -> list[int]:
        return [len(server.ledger.entries) for server in self.servers.values()]


@pytest.fixture
def table(standing: Callable[..., Any]) -> Table:
    f = standing("masked", SECURE, policy=POLICY, nodes=NODES)
    if not hasattr(f, "table"):
        f.table = Table(f)
    return f.table


def head(message: bytes, body: bytes) -> bytes:
    return message[:HEADER_BYTES] + body


def only(seat: int, lie: Callable[[bytes], bytes | None]) -> Callable[[int, bytes], bytes | None]:
    """A lie to one node; the others are told the truth."""
    return lambda to, message: lie(message) if to == seat else message


def roster(r: MaskedRound, change: Callable[[list[int], list[Advertisement]], None]) -> Callable[[bytes], bytes]:
    """A roster in which ids and the neighbours' advertisements are changed."""

    def lie(message: bytes) -> bytes:
        told = Roster.decode(memoryview(message)[HEADER_BYTES:], r.masking.terms)
        ids, advertised = told.ids.tolist(), list(told.advertisements)
        change(ids, advertised)
        return head(message, Roster(np.array(ids, np.uint32), tuple(advertised)).encode())

    return lie


def foreign(r: MaskedRound, signer: Identity | None = None) -> Callable[[bytes], bytes]:
    """A roster on which an organisation has keys of the server's making, signed by nobody, or by somebody else."""

    def change(ids: list[int], advertised: list[Advertisement]) -> None:
        mask, channel = KeyPair.generate().public, KeyPair.generate().public
        signed = key_derivation.advertisement_message(r.masking.terms, ids[0], mask, channel)
        advertised[0] = Advertisement(mask, channel, bytes(64) if signer is None else signer.sign(signed))

    return roster(r, change)


def twice(ids: list[int], advertised: list[Advertisement]) -> None:
    advertised[0] = advertised[1]


def stranger_on(ids: list[int], advertised: list[Advertisement]) -> None:
    ids[-1] = 99


def without_victim(ids: list[int], advertised: list[Advertisement]) -> None:
    ids.remove(VICTIM)
    advertised.pop()


def too_few(ids: list[int], advertised: list[Advertisement]) -> None:
    del ids[2:], advertised[1:]


def delivery(change: Callable[[Delivery], Delivery]) -> Callable[[bytes], bytes]:
    return lambda message: head(message, change(Delivery.decode(memoryview(message)[HEADER_BYTES:], AROUND)).encode())


def go_ahead(change: Callable[[GoAhead], GoAhead]) -> Callable[[bytes], bytes]:
    return lambda message: head(message, change(GoAhead.decode(memoryview(message)[HEADER_BYTES:], AROUND)).encode())


def kept_of(go: GoAhead, number: int) -> GoAhead:
    """The go-ahead with the first of the victim's neighbours only."""
    return GoAhead(~AROUND | (np.cumsum(AROUND) <= number), go.signatures[:number])


def survivors(*alive: int) -> Callable[[bytes], bytes]:
    return lambda message: head(message, Survivors(membership_bits(range(NODES), set(alive))).encode())


def request(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def lie(message: bytes) -> bytes:
        told = UnmaskRequest.decode(memoryview(message)[HEADER_BYTES:], NODES - 1, signed=True)
        fields = {n: getattr(told, n) for n in ("survived", "dropped", "confirmed", "confirmations")}
        change(fields)
        return head(message, UnmaskRequest(**fields).encode())

    return lie


def both(fields: dict[str, Any]) -> None:
    fields["dropped"] = fields["survived"] & (np.arange(NODES - 1) == 0)


def dead(fields: dict[str, Any]) -> None:
    first = np.arange(NODES - 1) == 0
    fields["survived"], fields["dropped"] = fields["survived"] & ~first, first


def forged(fields: dict[str, Any]) -> None:
    fields["confirmations"] = tuple(bytes(SIGNATURE_BYTES) for _ in fields["confirmations"])


def unconfirmed(fields: dict[str, Any]) -> None:
    fields["confirmed"], fields["confirmations"] = np.zeros(NODES - 1, bool), ()


Lie = Callable[[MaskedRound], Callable[[bytes], bytes | None]]

ALL, OTHERS, NOBODY = (0, 1, 2, 3), (0, 2, 3), ()

LIES: dict[str, tuple[str, Lie, str, str, tuple[int, ...]]] = {
    "an invitation of another run": (
        "train.invite", lambda r: lambda m: m[:8] + bytes(16) + m[24:], "refused", "of run", OTHERS),
    "an invitation whose terms are cut": ("train.invite", lambda r: lambda m: m[:-1], "refused", "75 bytes", OTHERS),
    "an organisation has keys that nobody signed": ("train.share", foreign, "aborted_round", "signature", OTHERS),
    "an organisation has keys that the server signed": (
        "train.share", lambda r: foreign(r, r.f.server.identity), "aborted_round", "signature", OTHERS),
    "one organisation is on the roster in two seats": (
        "train.share", lambda r: roster(r, twice), "aborted_round", "signature", OTHERS),
    "an organisation that the federation file does not know": (
        "train.share", lambda r: roster(r, stranger_on), "aborted_round", "directory knows no client 99", OTHERS),
    "a roster without the node that is told it": (
        "train.share", lambda r: roster(r, without_victim), "aborted_round", "not on the roster", OTHERS),
    "a roster of two": ("train.share", lambda r: roster(r, too_few), "aborted_round", "requires 3", OTHERS),
    "shares of nobody are delivered": (
        "train.check", lambda r: delivery(lambda d: Delivery(~AROUND, ())), "aborted_round",
        "threshold", OTHERS),
    "a go-ahead whose checks are forged": (
        "train.input", lambda r: go_ahead(lambda g: GoAhead(g.checked, tuple(bytes(64) for _ in g.signatures))),
        "aborted_round", "signature", OTHERS),
    "a go-ahead whose checks are swapped": (
        "train.input", lambda r: go_ahead(lambda g: GoAhead(g.checked, g.signatures[::-1])), "aborted_round",
        "signature", OTHERS),
    "a go-ahead of too few nodes": (
        "train.input", lambda r: go_ahead(lambda g: kept_of(g, 1)), "aborted_round", "threshold", OTHERS),
    "a go-ahead of enough nodes with too few users": (
        "train.input", lambda r: go_ahead(lambda g: GoAhead(np.arange(NODES) > 0, g.signatures[1:])),
        "policy", "33 users", OTHERS),
    "survivors without the node that is told them": (
        "train.confirm", lambda r: survivors(0, 2, 3), "aborted_round", "not among the survivors", ALL),
    "survivors that are nobody": ("train.confirm", lambda r: survivors(), "policy", "0 users", ALL),
    "survivors that are too few nodes": ("train.confirm", lambda r: survivors(VICTIM, 2), "policy", "22 users", ALL),
    "survivors that are enough nodes with too few users": (
        "train.confirm", lambda r: survivors(VICTIM, 2, 3), "policy", "33 users", ALL),
    "a request for both secrets of one node": ("train.reveal", lambda r: request(both), "aborted_round", "both", ALL),
    "a request that counts a survivor as dropped out": (
        "train.reveal", lambda r: request(dead), "aborted_round", "contradicts", ALL),
    "a request whose confirmations are forged": (
        "train.reveal", lambda r: request(forged), "aborted_round", "signature", ALL),
    "a request without confirmations": (
        "train.reveal", lambda r: request(unconfirmed), "aborted_round", "confirmed", ALL),
    "a request that is cut": ("train.reveal", lambda r: lambda m: m[:-1], "refused", "191 bytes", ALL),
}  # fmt: skip
"""By lie, at which stage it is told to one node, with what code and words that refuses, and who is in the sum then."""


@pytest.mark.parametrize("lie", LIES)
def test_one_node_is_lied_to_and_the_sum_is_right_or_there_is_none(table: Table, lie: str) -> None:
    stage, made, code, said, summed = LIES[lie]
    r, before = table.round().until(stage), table.entries()
    r.lies[stage] = only(VICTIM, made(r))
    reply = r.stage(stage)[VICTIM]
    assert (reply.fields.get("code"), dict(reply.arrays)) == (code, {})
    assert said in str(reply["refused"])
    assert r.finish(stage) == summed
    assert torch.equal(r.total(), table.f.counts(np.concatenate([table.f.shards[seat] for seat in summed])))
    # Who sent no masked input has charged nothing, and who sent one has charged it once, whatever came after.
    charged = [0 if seat == VICTIM and stage != "train.confirm" and stage != "train.reveal" else 1 for seat in ALL]
    later = stage in ("train.confirm", "train.reveal")
    assert [now - then for now, then in zip(table.entries(), before, strict=True)] == [
        0 if later else c for c in charged
    ]


def nothing(r: MaskedRound, after: str) -> None:
    assert r.finish(after) == NOBODY
    assert not r.masking.finished


def test_unequal_models_open_nothing(table: Table) -> None:
    """One node gets the model and the others zeros, so that their sum would be that one node's own."""
    f, session = table.f, table.session + 1
    models = [Message({"w": torch.full((3,), float(seat == VICTIM))}) for seat in ALL]
    before = table.entries()
    r = table.round(asked=lambda seat: counts(f, session, members=f.shards[seat], message=models[seat]))
    r.until("train.confirm")
    r.stage("train.confirm")
    nothing(r, "train.confirm")
    assert [now - then for now, then in zip(table.entries(), before, strict=True)] == [1] * 4, "their inputs had left"
    # A server that goes on all the same gets no share from anybody.
    told = UnmaskRequest(np.ones(3, bool), np.zeros(3, bool), np.ones(3, bool), (bytes(64),) * 3)
    for seat in ALL:
        header = r.servers[seat].announced.run
        message = b"SAgg" + PROTOCOL_VERSION.to_bytes(2, "big") + (11).to_bytes(2, "big") + bytes.fromhex(header)
        message += session.to_bytes(8, "big") + (2**32 - 1).to_bytes(4, "big") + seat.to_bytes(4, "big")
        reply = r.tell(seat, "train.reveal", message + told.encode())
        assert (reply["code"], dict(reply.arrays)) == ("aborted_round", {})


def test_different_survivors_for_different_nodes_open_nothing(table: Table) -> None:
    r = table.round().until("train.confirm")
    r.lies["train.confirm"] = only(0, survivors(0, 1, 2))
    r.stage("train.confirm")
    nothing(r, "train.confirm")


def test_different_sets_of_sharers_get_no_masked_input(table: Table) -> None:
    r, before = table.round().until("train.check"), table.entries()
    r.lies["train.check"] = only(VICTIM, delivery(lambda d: Delivery(np.arange(NODES) > 0, d.sealed[1:])))
    r.stage("train.check")
    assert r.finish("train.check") == OTHERS, "whose check is of another set is left out before anybody masks"
    assert [now - then for now, then in zip(table.entries(), before, strict=True)] == [1, 0, 1, 1]


def test_unequal_rosters_get_no_masked_input(table: Table) -> None:
    """A node is told of one organisation fewer than the others are: nobody opens shares of another roster."""

    def fewer(ids: list[int], advertised: list[Advertisement]) -> None:
        del ids[3], advertised[2]

    r, before = table.round().until("train.share"), table.entries()
    r.lies["train.share"] = only(VICTIM, roster(r, fewer))
    replies = r.stage("train.share")
    assert replies[VICTIM]["refused"] is None, "it cannot tell yet"
    assert len(r.masking._replied) == 3, "the server of the roster drops shares of another size"
    assert r.finish("train.share") == OTHERS
    assert [now - then for now, then in zip(table.entries(), before, strict=True)] == [1, 0, 1, 1]


def test_a_server_that_swaps_sealed_shares_gets_a_complaint_and_no_input(table: Table) -> None:
    r, before = table.round().until("train.check"), table.entries()
    r.lies["train.check"] = only(VICTIM, delivery(lambda d: Delivery(d.shared, d.sealed[::-1])))
    reply = r.stage("train.check")[VICTIM]
    assert reply.arrays["check"].tobytes()[HEADER_BYTES:].startswith(b"complaint")
    with pytest.raises(PartiesAccused) as accused:
        r.masking.advance()
    assert accused.value.clients == {VICTIM}, "to everybody else its complaint is unfounded: the lie costs the round"
    again = r.tell(VICTIM, "train.check", r.pending[VICTIM])
    assert again["code"] == "refused"
    assert "has left this round" in str(again["refused"])
    assert table.entries() == before


WEAKER: dict[str, tuple[dict[str, Any], str]] = {
    "terms without signatures": ({"signed": False}, "signatures"),
    "terms of fewer bits than the query's": ({"bits": 2}, "agreed for"),
    "terms of fewer elements than the query's": ({"length": 69}, "agreed for"),
    "terms of other blocks than the query's": ({"layout": bytes(32)}, "agreed for"),
}


@pytest.mark.parametrize("lie", WEAKER)
def test_weaker_terms_get_no_input_and_cost_nothing(table: Table, lie: str) -> None:
    changed, said = WEAKER[lie]
    r, before = table.round(**changed), table.entries()
    with suppress(RoundAborted):
        r.until("train.input")
        r.stage("train.input")
    stage = "train.input" if "train.input" in r.replies else "train.invite"
    assert all(said in str(reply["refused"]) for reply in r.replies[stage].values())
    assert not r.masking.finished
    assert table.entries() == before


def test_a_second_masked_input_of_a_query_is_not_sent(federation: Callable[..., Any]) -> None:
    """Two sums of the same inputs over other survivors would differ by what one organisation sent."""
    f = federation("feddae", SECURE, seeded=False, rounds=100)
    servers = joined(f)
    asked = lambda seat: counts(f, 7, members=f.shards[seat])  # noqa: E731
    first = MaskedRound(f, servers, 1, asked=asked).until("train.input")
    assert all(reply["refused"] is None for reply in first.stage("train.input").values())
    second = MaskedRound(f, servers, 2, asked=asked).until("train.input")
    for reply in second.stage("train.input").values():
        assert (reply["code"], "does so once" in str(reply["refused"])) == ("refused", True)
    assert [len(server.ledger.entries) for server in servers.values()] == [1] * 4


def test_a_sum_is_opened_once_and_its_session_never_again(table: Table) -> None:
    r, before = table.round().until("train.reveal"), table.entries()
    request_to = dict(r.pending)
    r.stage("train.reveal")
    for seat in ALL:
        again = r.tell(seat, "train.reveal", request_to[seat])
        assert (again["code"], "answers no more" in str(again["refused"])) == ("refused", True)
    stale = MaskedRound(table.f, table.servers, table.session)
    for reply in stale.stage("train.invite").values():
        assert (reply["code"], "takes part in rounds after" in str(reply["refused"])) == ("refused", True)
    assert table.entries() == before


def test_stages_out_of_turn_are_refused(table: Table) -> None:
    r, before = table.round().until("train.input"), table.entries()
    go = r.pending[0]
    for stage in ("train.share", "train.check", "train.confirm", "train.reveal"):
        reply = r.tell(0, stage, go)
        assert (reply["code"], dict(reply.arrays)) == ("refused", {})
    assert r.tell(0, "train.input", go)["refused"] is None, "and the session goes on as if nobody had tried"
    assert [now - then for now, then in zip(table.entries(), before, strict=True)] == [1, 0, 0, 0]
