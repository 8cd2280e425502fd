"""Whatever parties that hold keys and strangers do to messages: nobody falls, nothing is charged for nothing.

`python -m benchmarks.privacy.fuzz_nodes --cpu-minutes 10 --seed 7` does it for longer.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.privacy.fuzz_nodes import __main__ as command
from benchmarks.privacy.fuzz_nodes.drafts import Draft
from benchmarks.privacy.fuzz_nodes.findings import Findings
from benchmarks.privacy.fuzz_nodes.fuzzing import burst, trials
from privfed.engines.nodes.admission import Admission
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.node import Node


def fuzzed(handler: str, name: str, number: int, seed: int = 1) -> Findings:
    findings = Findings()
    burst(handler, name, random.Random(seed), findings, lambda: trials(number))
    return findings


BENT = ("masked, cohorts", "partial sums", "masked", "coded uploads", "masked, measured", "masked, a year")


@pytest.mark.parametrize("name", BENT)
def test_a_node_survives_its_server(name: str) -> None:
    findings = fuzzed("node", name, 30)
    assert not findings.found
    assert findings.messages > 60
    outcomes = {outcome for _, _, _, outcome in findings.counts}
    assert {"answered", "refused", "bad_message"} <= outcomes


@pytest.mark.parametrize("name", ["partial sums", "masked, cohorts", "counted uploads"])
def test_a_server_survives_its_nodes(name: str) -> None:
    findings = fuzzed("server", name, 10)
    assert not findings.found
    assert findings.messages > 10
    assert findings.rounds["opened"] > 8


def test_every_bent_message_is_what_it_says() -> None:
    draft = Draft.of(Packet({"a": 1}, {"x": random_bytes(3)}).encode())
    assert Draft.of(draft.encode()) == draft


def random_bytes(size: int) -> Any:
    return np.arange(size, dtype=np.uint8)


# Twins: a handler with a fault is named ------------------------------------------------------------------------------


def test_a_node_that_falls_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Node, packet: Packet) -> None:
        if (given := packet.fields.get("receipt")) is not None:
            _ = given[0]  # type: ignore[index, call-overload]

    monkeypatch.setattr(Node, "_require_no_rollback", careless)
    assert any("fails: TypeError" in name for name in fuzzed("node", "partial sums", 60).found)


def test_a_node_that_sends_without_a_charge_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "_record_new", lambda *_: None)
    assert any("not charged" in name for name in fuzzed("node", "partial sums", 20).found)


def test_the_command_writes_down_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "NODES", ("partial sums",))
    monkeypatch.setattr(command, "SERVERS", ())
    assert command.main(["--cpu-minutes", "0.01", "--seed", "5", "--out", str(tmp_path)]) == 0
    assert '"node, outcomes"' in (tmp_path / "fuzz_nodes.json").read_text()
