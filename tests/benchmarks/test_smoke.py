"""The counted gate: what grows is named, and an extra copy of a table for every client grows."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import smoke
from privfed.methods.fedvae import FedVAEClients

STORED = json.loads(smoke.STORED.read_text(encoding="utf-8"))["counts"]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> dict[str, smoke.Counts]:
    """What a round of few people does, counted once everything is loaded."""
    monkeypatch.setattr(smoke, "USERS", 16)
    smoke.counted("fedvae")
    return {"fedvae": smoke.counted("fedvae")}


def test_the_same_round_has_the_same_counts(before: dict[str, smoke.Counts]) -> None:
    assert smoke.grown({"fedvae": smoke.counted("fedvae")}, before) == []


def test_every_case_has_counts_of_work() -> None:
    assert list(STORED) == [*smoke.CASES, smoke.MASKED_SUM]
    assert len(STORED) == 12
    for name, counts in STORED.items():
        assert counts["calls"] > 0 < counts["peak"], name


def test_what_grew_is_named_and_what_fell_is_no_failure() -> None:
    now = {name: dict(counts) for name, counts in STORED.items()}
    assert smoke.grown(now, STORED) == smoke.fallen(now, STORED) == []
    now["fair"]["calls"] = round(1.02 * STORED["fair"]["calls"])
    now["dfmr"]["operators"] //= 2
    (grown,), (fallen,) = smoke.grown(now, STORED), smoke.fallen(now, STORED)
    assert grown.startswith(f"fair: calls grew from {STORED['fair']['calls']:,} to ")
    assert fallen.startswith("dfmr: operators fell")


def test_a_case_without_counts_is_a_failure() -> None:
    few = {name: STORED[name] for name in list(STORED)[1:]}
    assert "fedmf is not in smoke.json" in smoke.grown(STORED, few)[0]
    assert "fedmf is in smoke.json and is not counted" in smoke.grown(few, STORED)[0]


def test_an_extra_copy_of_the_model_for_every_client_is_caught(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, smoke.Counts]
) -> None:
    train: Callable[..., Any] = FedVAEClients.train

    def copying(clients: FedVAEClients, call: Any, message: Any) -> Any:
        models = [[tensor.clone() for tensor in message.shared.values()] for _ in call.clients]
        return train(clients, call, message) if models else None

    monkeypatch.setattr(FedVAEClients, "train", copying)
    grown = smoke.grown({"fedvae": smoke.counted("fedvae")}, before)
    assert [sentence.partition(" from ")[0] for sentence in grown][:2] == [
        "fedvae: operators grew", "fedvae: bytes grew",
    ]  # fmt: skip
