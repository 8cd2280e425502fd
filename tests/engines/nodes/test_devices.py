"""`DeviceFederation` over devices in this process: what it opens, and what devices that lie or leave change."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from privfed.engines.nodes.devices import messages
from privfed.engines.nodes.devices.device_federation import DeviceFederation
from privfed.engines.nodes.devices.run import DeviceRun
from privfed.engines.nodes.devices.terms import DeviceQuery, announced_terms
from privfed.engines.nodes.errors import MessageError, NodesError
from privfed.engines.nodes.federation_file import FederationFile, Organisation
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.party_data import catalogue_alone
from privfed.engines.simulation import TooFewClientsError
from privfed.federation import FederationError, Message, Streams
from privfed.guards import ServerGuard
from privfed.methods.shared.popular_head import POPULARITY, unit_block
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.privacy.mechanisms.secure_sum import SecureSum
from privfed.setup.config import ExperimentConfig
from secure_agg.masking import Stage
from secure_agg.primitives.keys import Identity
from tests.device_client.aggregator import Peer

PEOPLE, ITEMS, HONEST = 5, 20, 3
MECHANISM = DistributedGaussian(clip_norm=1.0, noise_multiplier=4.0, n_min_honest=HONEST, colluding=1)


class People:
    """A transport to devices that send known elements, any of which a test may have answer otherwise."""

    def __init__(self) -> None:
        keys = [Identity.generate() for _ in range(PEOPLE + 1)]
        organisations = tuple(
            Organisation(name=f"device-{seat}", key=key.public.hex(), users=str(seat))
            for seat, key in enumerate(keys[1:])
        )
        federation = FederationFile(
            name="people", version=1, server=keys[0].public.hex(), population=PEOPLE, items=ITEMS,
            organisations=organisations,
        )  # fmt: skip
        self.server = Party.from_identity(federation, keys[0])
        self.peers = [Peer(Party.from_identity(federation, key), np.zeros(0, np.uint32)) for key in keys[1:]]
        self.lie: Callable[[int, str, bytes, bytes], bytes] = lambda _seat, _stage, _frame, reply: reply

    def nodes(self) -> list[int]:
        return list(range(PEOPLE))

    def exchange(self, stage: str, requests: Mapping[int, bytes], timeout: float) -> dict[int, bytes]:
        replies = {
            seat: self.lie(seat, stage, frame, self.peers[seat].handle(stage, frame))
            for seat, frame in requests.items()
        }
        return {seat: reply for seat, reply in replies.items() if reply}


@pytest.fixture
def people() -> People:
    return People()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(PrivacyPlan(mechanism=MECHANISM, delta=1e-3), PEOPLE)


@pytest.fixture
def federation(people: People, ledger: Ledger) -> DeviceFederation:
    guard = ServerGuard(ledger.plan, ledger, Streams.from_seed(0))
    code = guard.code({POPULARITY: unit_block((ITEMS, 1), 1.0, 1.0)})
    assert code is not None
    for seat, peer in enumerate(people.peers):
        peer.vector = np.full(code.length, 10**seat, code.ring.dtype)
    query = DeviceQuery(POPULARITY, code, diagonal=False)
    terms = announced_terms(MECHANISM, [query], delta=1e-3, cohort=PEOPLE)
    return DeviceFederation(people, people.server, guard, terms, [query], timeout=1.0)


def summed(federation: DeviceFederation) -> torch.Tensor:
    federation.announce()
    (query,) = federation._queries
    cohort = federation.sample_cohort(0)
    total = federation.aggregate(POPULARITY, cohort, Message({}), query.code.schema)
    assert query.code.distributed is not None
    return total.sums[POPULARITY][:, 0] / query.code.distributed.grid


def test_a_sum_is_that_of_everybody_and_in_the_ledger(federation: DeviceFederation, ledger: Ledger) -> None:
    assert torch.allclose(summed(federation), torch.full((ITEMS,), 11111.0))
    assert [entry.participants for entry in ledger.entries] == ["0-4"]
    assert federation.incidents == []


@pytest.mark.parametrize("stage", [Stage.INVITATION, Stage.GO_AHEAD])
def test_who_leaves_is_not_in_it(people: People, federation: DeviceFederation, ledger: Ledger, stage: Stage) -> None:
    people.peers[4].leaves_at = stage
    assert torch.allclose(summed(federation), torch.full((ITEMS,), 1111.0))
    assert [entry.participants for entry in ledger.entries] == ["0-3"]


def test_two_who_leave_are_too_many_and_nothing_is_opened_or_recorded(
    people: People, federation: DeviceFederation, ledger: Ledger
) -> None:
    for seat in (3, 4):
        people.peers[seat].leaves_at = Stage.GO_AHEAD
    with pytest.raises(TooFewClientsError):
        summed(federation)
    assert ledger.entries == ()


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (lambda seat, stage, frame, reply: reply[:-1] + bytes([reply[-1] ^ 1]), "not signed by device-4"),
        (lambda seat, stage, frame, reply: reply[:10], "not signed by device-4"),
        (lambda seat, stage, frame, reply: b"x" * 300, "not signed by device-4"),
    ],
)
@pytest.mark.parametrize("stage", ["announce", "query"])
def test_replies_that_no_device_signed_are_dropped(
    people: People, federation: DeviceFederation, stage: str, lie: Callable[..., bytes], why: str
) -> None:
    people.lie = lambda seat, at, frame, reply: lie(seat, at, frame, reply) if (seat, at) == (4, stage) else reply
    assert torch.allclose(summed(federation), torch.full((ITEMS,), 1111.0))
    assert [(one.node, one.stage) for one in federation.incidents] == [("device-4", stage)]
    assert why in federation.incidents[0].reason


def test_a_device_that_agrees_to_something_else_or_plays_a_reply_back_is_left_out(
    people: People, federation: DeviceFederation
) -> None:
    earlier = dict[str, bytes]()

    def lying(seat: int, stage: str, frame: bytes, reply: bytes) -> bytes:
        if seat == 3 and stage == "query":
            return messages.reply(people.peers[3].party, frame, hashlib.sha256(b"else").digest())
        if seat == 4:
            earlier.setdefault("first", reply)
            return earlier["first"]
        return reply

    people.lie = lying
    with pytest.raises(TooFewClientsError, match="3 devices answered the query"):
        summed(federation)
    reasons = {one.node: one.reason for one in federation.incidents}
    assert "to another request" in reasons["device-4"]
    assert "something else than it was told" in reasons["device-3"]


def test_only_what_was_announced_is_asked_and_only_once(federation: DeviceFederation) -> None:
    summed(federation)
    (query,) = federation._queries
    with pytest.raises(FederationError, match="query 2 of step 'popularity' is not the one"):
        federation.aggregate(POPULARITY, federation._cohort, Message({}), query.code.schema)  # type: ignore[arg-type]
    with pytest.raises(FederationError, match="one round"):
        federation.sample_cohort(1)
    with pytest.raises(FederationError, match="sums only"):
        federation.collect(POPULARITY, federation._cohort, Message({}), query.code.schema)  # type: ignore[arg-type]


def test_requests_are_for_one_seat_one_stage_and_above_the_last_counter(people: People) -> None:
    party = people.peers[1].party
    frame = messages.request(people.server, 1, 7, "query", b"content")
    assert messages.request_content(party, frame, "query", 6) == (7, b"content")
    for other, stage, last in ((party, "query", 7), (party, "masking", 6), (people.peers[2].party, "query", 6)):
        with pytest.raises(MessageError, match="another seat or stage, or was sent before"):
            messages.request_content(other, frame, stage, last)
    with pytest.raises(MessageError, match="not signed"):
        messages.request_content(party, frame[:-1] + bytes([frame[-1] ^ 1]), "query", 6)


def test_a_run_of_popularity_counts_once_and_sends_devices_nothing_of_the_server_s(
    people: People, tmp_path: Path
) -> None:
    plan = PrivacyPlan(mechanism=MECHANISM.model_copy(update={"clip_norm": 4.0}), delta=1e-3)
    config = ExperimentConfig(data="devices", method={"name": "popularity"}, rounds=1, privacy=plan)
    frame = pd.DataFrame(index=pd.Index([f"i{n}" for n in range(ITEMS)], name="item"))
    run = DeviceRun.prepare(config, catalogue_alone(frame, PEOPLE, "devices"), people.server, tmp_path / "ledger.jsonl")
    (query,) = run.queries
    assert (query.step, query.code.length) == ("count", ITEMS)
    asked = list[bytes]()
    people.lie = lambda seat, stage, frame, reply: (stage == "query" and asked.append(frame[82:-64])) or reply
    for seat, peer in enumerate(people.peers):
        peer.vector = np.full(ITEMS, 10**seat, query.code.ring.dtype)
    result = run.train(people, 1.0)
    assert {name for content in asked for name in json.loads(content)} == {"run", "query", "masking"}
    assert {json.loads(content)["run"] for content in asked} == {run.guard.ledger.run}
    assert query.code.distributed is not None
    counts = result.assembly.server.public().shared["counts"][:, 0] / query.code.distributed.grid
    assert torch.allclose(counts, torch.full((ITEMS,), 11111.0))
    assert (result.joined, result.summed, result.incidents) == (PEOPLE, (PEOPLE,), [])
    announced = announced_terms(plan.mechanism, run.queries, delta=1e-3, cohort=PEOPLE)
    assert (announced["method"], [one["name"] for one in announced["queries"]]) == ("popularity", ["count"])


def test_a_plan_of_exact_sums_is_refused_before_anybody_is_asked(people: People, tmp_path: Path) -> None:
    plan = PrivacyPlan(mechanism=SecureSum(clip_norm=1.0), delta=1e-3)
    config = ExperimentConfig(data="devices", method={"name": "popularity"}, rounds=1, privacy=plan)
    frame = pd.DataFrame(index=pd.Index([f"i{n}" for n in range(ITEMS)], name="item"))
    run = DeviceRun.prepare(config, catalogue_alone(frame, PEOPLE, "devices"), people.server, tmp_path / "ledger.jsonl")
    with pytest.raises(NodesError, match=r"adds no shares of noise.*choose distributed-gaussian"):
        run.train(people, 1.0)


def test_queries_of_two_methods_are_of_no_run(federation: DeviceFederation) -> None:
    (query,) = federation._queries
    both = [query, replace(query, step="count")]
    with pytest.raises(NodesError, match="no method has the steps count, popularity"):
        announced_terms(MECHANISM, both, delta=1e-6, cohort=PEOPLE)
    with pytest.raises(NodesError, match="do not compute the step 'count'"):
        both[1].terms  # noqa: B018 (a property that refuses)


@pytest.mark.parametrize("change", [{"law": "discrete_gaussian"}, {"bits": 40}, {"clipping": "per_block"}])
def test_what_devices_do_not_compute_is_not_announced(federation: DeviceFederation, change: dict[str, object]) -> None:
    with pytest.raises(NodesError, match="devices add Skellam noise"):
        announced_terms(MECHANISM.model_copy(update=change), federation._queries, delta=1e-6, cohort=PEOPLE)
    assert json.loads(json.dumps(federation._terms)) == federation._terms
