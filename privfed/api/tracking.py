"""Trackers: whoever follows a run while it trains, such as MLflow, Weights & Biases or a function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from privfed.api.errors import UseError, optional
from privfed.evaluation import RoundEvaluation

Log = Callable[[int, Mapping[str, float]], None]
"""(rounds done, metrics by name such as `test/ndcg@10`) -> None; called whenever a round was evaluated."""


@runtime_checkable
class Tracker(Protocol):
    """What follows a run.

    Example:
        >>> class Printed:
        ...     def begin(self, name, settings): print(name)
        ...     def log(self, rounds, metrics): print(rounds, sorted(metrics)[0])
        ...     def end(self, summary): print("epsilon", summary["epsilon"])
        >>> import privfed
        >>> run = privfed.run("popularity", "synthetic-small", trackers=[Printed()])
        popularity on synthetic-small
        1 test/hr@10
        epsilon inf
    """

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """A run begins: its name, and everything that decides its result, keys with dots."""

    def log(self, rounds: int, metrics: Mapping[str, float]) -> None:
        """A round was evaluated."""

    def end(self, summary: Mapping[str, float] | None) -> None:
        """The run is over; `summary` has its epsilon, delta and test metrics, and is None where it failed."""


class LoggedBy:
    """A function as a tracker."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Nothing to do."""


class MLflow:
    """A run of MLflow for each run, in the experiment that MLflow is set to."""

    def __init__(self) -> None:
        self._mlflow = optional("mlflow", "mlflow")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Start a run with the settings as parameters."""
        self._mlflow.start_run(run_name=name)
        self._mlflow.log_params(dict(settings))

    def log(self, rounds: int, metrics: Mapping[str, float]) -> None:
        """Log metrics at the round; MLflow allows no @ in names."""
        self._mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in metrics.items()}, step=rounds)

    def end(self, summary: Mapping[str, float] | None) -> None:
        """End the run."""
        if summary is not None:
            self._mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in summary.items()})
        self._mlflow.end_run(status="FAILED" if summary is None else "FINISHED")


class WandB:
    """A run of Weights & Biases for each run, in the project `privfed` unless the environment names another."""

    def __init__(self) -> None:
        self._wandb = optional("wandb", "wandb")
        self._run: Any = None

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Start a run with the settings as its configuration."""
        self._run = self._wandb.init(name=name, config=dict(settings))

    def log(self, rounds: int, metrics: Mapping[str, float]) -> None:
        """Log metrics at the round."""
        self._run.log(dict(metrics), step=rounds)

    def end(self, summary: Mapping[str, float] | None) -> None:
        """End the run."""
        self._run.summary.update(summary or {})
        self._run.finish(exit_code=int(summary is None))


_KNOWN: dict[str, Callable[[], Tracker]] = {"mlflow": MLflow, "wandb": WandB}


def chosen(log: Log | None, trackers: Sequence[Any]) -> list[Tracker]:
    """Trackers by name, or as they are, and the function.

    Raises:
        UseError: a name is not known, what it names is not installed, or an object is no tracker.
    """
    if isinstance(trackers, str):
        raise UseError(f"trackers={trackers!r} is a text: give a list, trackers=[{trackers!r}]")
    return [*(_tracker(one) for one in trackers), *([] if log is None else [LoggedBy(log)])]


def _tracker(given: Any) -> Tracker:
    if isinstance(given, str):
        if given not in _KNOWN:
            raise UseError(f"the tracker {given!r} is not known: choose among {', '.join(_KNOWN)}, or give an object")
        return _KNOWN[given]()
    if not isinstance(given, Tracker):
        raise UseError(f"{type(given).__name__} is no tracker: it needs the methods begin, log and end")
    return given


def measured(evaluated: RoundEvaluation) -> dict[str, float]:
    """Metrics of a round by name."""
    return {
        f"{part}/{metric.slug}": metric.value for part, result in evaluated.results.items() for metric in result.metrics
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, keys joined by dots."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result
