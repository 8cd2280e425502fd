"""MLflow and Weights & Biases, as modules of these names hear of a run."""

import sys
from types import ModuleType
from typing import Any

import pytest

import privfed


class Heard(ModuleType):
    """A module that notes every call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.summary: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> "Heard":
            self.calls.append((name, arguments, options))
            return self

        return call

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@pytest.fixture
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Heard:
    module = Heard(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


@pytest.mark.parametrize("fake", ["mlflow"], indirect=True)
def test_mlflow_has_a_run_with_parameters_metrics_and_an_end(fake: Heard) -> None:
    privfed.run("fedmf", "synthetic-small", rounds=2, trackers=["mlflow"])
    assert fake.names() == ["start_run", "log_params", "log_metrics", "log_metrics", "log_metrics", "end_run"]
    assert fake.calls[1][1][0]["method.name"] == "fedmf"
    assert fake.calls[2][2] == {"step": 1}
    assert "test/ndcg_at_10" in fake.calls[2][1][0]
    assert not any("@" in name for name in fake.calls[4][1][0])
    assert fake.calls[5][2] == {"status": "FINISHED"}


@pytest.mark.parametrize("fake", ["wandb"], indirect=True)
def test_wandb_has_a_run_with_parameters_metrics_and_an_end(fake: Heard) -> None:
    privfed.run("fedmf", "synthetic-small", rounds=1, trackers=["wandb"])
    assert fake.names() == ["init", "log", "finish"]
    assert fake.calls[0][2]["config"]["method.name"] == "fedmf"
    assert "test/ndcg@10" in fake.calls[1][1][0]
    assert fake.summary["delta"] > 0
    assert fake.calls[2][2] == {"exit_code": 0}


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"{name} is not installed: pip install 'privfed\[{name}\]'"):
        privfed.run("popularity", "synthetic-small", trackers=[name])
