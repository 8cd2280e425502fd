"""The script that measures a GPU, tried where there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import harness
from benchmarks.speed import gpu
from benchmarks.speed.suite.case import made_up


@pytest.mark.parametrize("method", ["fedmf", "private-gram"])
def test_a_method_on_the_pretended_device_agrees_and_is_equal_twice(
    pretended: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: None)
    with pretended() as device:
        found = gpu.agreement(method, "pretend", made_up(**gpu.FEW))
    assert found["agrees"]
    assert found["equal_twice"]
    assert device.counts["launches"] > 0


@pytest.mark.parametrize(
    ("other", "agrees"),
    [(torch.tensor([1.0, 100.05]), True), (torch.tensor([1.0, 101.0]), False), (torch.ones(3), False)],
)
def test_other_results_are_told_from_sums_of_another_order(other: torch.Tensor, agrees: bool) -> None:
    found = gpu.unlike({"w": torch.tensor([1.0, 100.0])}, {"w": other})
    assert (max(found.values()) <= gpu.TOLERANCE) is agrees


def test_a_round_is_profiled_where_it_runs() -> None:
    found = gpu.profiled({"method": "fedmf", "data": gpu.FEW, "device": "cpu"})
    assert found["wall_s"] > 0
    assert found["longest"]


def test_the_next_call_goes_on_where_time_was_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rates", "--device", "cpu", "--small", "--out", str(tmp_path)]
    gpu.main([*words, "--minutes", "0"])
    assert "Time is over before rates, product, float32" in capsys.readouterr().out
    gpu.main([*words, "--only", "product*"])
    gpu.main(words)
    rows = harness.read(tmp_path / "gpu.json")["results"]["rates"]
    assert list(rows) == ["product, float32", "product, TF32", "product, bfloat16", "triad"]
    assert "Nothing is left." in capsys.readouterr().out


def test_a_method_that_fails_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def agreement(name: str, *_: Any) -> dict[str, Any]:
        if name == "dcf":
            raise RuntimeError("no deterministic kernel\nand a long trace")
        return {"agrees": True}

    monkeypatch.setattr(gpu, "agreement", agreement)
    gpu.main(["agreement", "--device", "cpu", "--small", "--out", str(tmp_path)])
    rows = harness.read(tmp_path / "gpu.json")["results"]["agreement"]
    assert rows["dcf"] == {"device": "cpu", "failed": "RuntimeError: no deterministic kernel"}
    assert list(rows) == list(gpu.methods())
    assert all(row["agrees"] for name, row in rows.items() if name != "dcf")


def test_a_round_has_the_share_of_its_limit_that_it_reaches() -> None:
    rates = {"product, float32": {"flops": 4.0}, "triad": {"bytes_per_s": 2.0}}
    work = [{"name": "train", "flops": 8.0, "moved": 2.0, "cipher": 9.0}]
    row = gpu.with_limit({"work": work, "wall_s": 8.0}, rates)
    assert (row["limit_s"], row["share_of_limit"]) == (2.0, 0.25)
    assert gpu.with_limit({"failed": "out of memory"}, rates) == {"failed": "out of memory"}
    assert gpu.with_limit({"work": work, "wall_s": 8.0}, {}) == {"work": work, "wall_s": 8.0}


def test_a_part_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["speed"])
    assert "speed is no part: choose from rates, agreement" in capsys.readouterr().err
