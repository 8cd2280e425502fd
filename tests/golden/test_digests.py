"""What the comparison of digests notices, and what it does not."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

FOLDER = Path(__file__).parent
RUN = (
    "run", "fedmf", "--rounds", "1", "--privacy", "clip:clip_norm=1", "--set", "method.dim=4",
    "--set", "protocol.k=[5]", "--json",
)  # fmt: skip


@pytest.fixture(scope="module")
def golden() -> Iterator[ModuleType]:
    """The script as a module; it puts its own folder on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        spec = importlib.util.spec_from_file_location("golden_digests", FOLDER / "digests.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Only this name goes again: whatever else is imported meanwhile has to stay the one module of its name.
        patch.setitem(sys.modules, "golden_digests", module)
        spec.loader.exec_module(module)
        yield module


def digests(golden: ModuleType, **records: Any) -> dict[str, Any]:
    return {case: golden.summary({"records": list(golden.json_leaves(value))}) for case, value in records.items()}


def test_a_changed_value_is_reported_with_both_names(golden: ModuleType) -> None:
    a = digests(golden, run={"auc": 0.5, "n": 3})
    b = digests(golden, run={"area": 0.25, "n": 3})
    assert golden.differences(a, b) == [
        "run: records differs", "    only in A: auc = float 0.5", "    only in B: area = float 0.25",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other"),
    [(3, 3.0), (True, 1), (0.1 + 0.2, 0.3), (-0.0, 0.0), ([1, 1], [1]), ("inf", 1e308), ("0-941", "0-942"),
     (list(range(20)), list(reversed(range(20))))],
)  # fmt: skip
def test_values_that_only_look_alike_differ(golden: ModuleType, one: Any, other: Any) -> None:
    assert golden.differences(digests(golden, run={"x": one}), digests(golden, run={"x": other}))


def test_a_missing_run_and_a_missing_kind_are_reported(golden: ModuleType) -> None:
    a, b = digests(golden, one={"x": 1}, two={"x": 2}), digests(golden, one={"x": 1}, three={})
    assert golden.differences(a, b) == ["three: only in B", "two: only in A"]
    assert golden.differences(a, {**a, "one": {}})[0] == "one: records differs"


def test_renamed_moved_and_reordered_fields_and_texts_are_no_change(golden: ModuleType) -> None:
    a = digests(golden, run={"draw": 1, "cost": {"bytes": 7}, "kind": "nothing", "note": None, "seconds": 1.5})
    b = digests(golden, run={"traffic_bytes": 7, "cohort": 1, "mechanism": "unprotected", "seconds": 2.5})
    assert golden.differences(a, b) == []


def test_many_leaves_are_told_by_their_name(golden: ModuleType) -> None:
    a = digests(golden, run={"x": [{"auc": n, "low": -n} for n in range(400)]})
    b = digests(golden, run={"x": [{"auc": n + (n == 7), "low": -n} for n in range(400)]})
    assert golden.differences(a, b) == [
        "run: records differs", "    only in A: x.auc = 400 values", "    only in B: x.auc = 400 values",
    ]  # fmt: skip


def test_tensors_are_told_apart_by_dtype_shape_and_bytes(golden: ModuleType, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    def leaves(**tensors: torch.Tensor) -> list[str]:
        save_file(tensors, tmp_path / "t.safetensors")
        return sorted(digest for digest, _, _ in golden.tensor_leaves(tmp_path / "t.safetensors"))

    values = torch.arange(6.0)
    assert leaves(a=values, b=values + 1) == leaves(y=values + 1, z=values)
    others = (values.reshape(2, 3), values.double(), values.view(torch.int32), values.nextafter(values + 1))
    assert len({*(tuple(leaves(a=other)) for other in others), tuple(leaves(a=values))}) == 5


def test_two_equal_runs_have_equal_digests_and_another_seed_another(golden: ModuleType, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    golden.write_data(data)

    def digest(name: str, seed: str) -> dict[str, Any]:
        words = ["command", *RUN, "--seed", seed, "--data", "{data}/times.csv", "--out", "{out}"]
        found = golden.run_case(golden.Case(name, [words]), data, tmp_path / name, golden.Spelling())
        return {"run": json.loads(json.dumps(golden.summary(found)))}

    first, again, other = digest("a", "1"), digest("b", "1"), digest("c", "2")
    assert {"public", "private", "taps", "ledger", "guarantee", "metrics", "document"} <= first["run"].keys()
    assert golden.differences(first, again) == []
    assert [line for line in golden.differences(first, other) if line == "run: taps differs"]


def test_a_spelling_that_is_refused_is_followed_by_the_next(golden: ModuleType, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    golden.write_data(data)
    words = ["command", *RUN, "--data", "{data}/times.csv", "--out", "{out}", "--set", "<x>=exact"]
    spelling = golden.Spelling()
    with mock.patch.dict(golden.SPELLINGS, {"x": ("no_such_field", "wire", "fidelity")}):
        found = golden.run_case(golden.Case("x", [words]), data, tmp_path / "x", spelling)
    assert found["codes"][0][2] == "[0]"
    assert spelling.chosen["x"] > 0


def test_names_of_cases_are_told_apart_and_every_method_has_some(golden: ModuleType) -> None:
    from privfed.methods import methods

    names = [case.name for case in golden.cases()]
    assert len(names) == len(set(names))
    assert {name.split("/")[1] for name in names if name.startswith("method/")} == set(methods())
