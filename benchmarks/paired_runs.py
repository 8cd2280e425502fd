"""Runs of several arms and seeds on the same users: kept as they come, compared user by user.

Numbers of a run go to a JSON file; one number per user goes to a file beside it (`.users`), which stays on the machine.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

RESAMPLES = 2000


class PairedRuns:
    """The runs of one benchmark.

    Args:
        file: where they are kept; an interrupted benchmark goes on from it.
    """

    def __init__(self, file: Path) -> None:
        self.file, self._users_file = file, file.with_suffix(".users")
        kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.runs: list[dict[str, Any]] = kept.get("runs", [])
        self.differences: dict[str, list[float]] = kept.get("paired", {})
        self._users: dict[str, list[float]] = {}
        if self._users_file.exists():
            self._users = json.loads(self._users_file.read_text())

    def has(self, arm: str, seed: int) -> bool:
        """Whether this run is there."""
        return any((run["arm"], run["seed"]) == (arm, seed) for run in self.runs)

    def add(self, run: dict[str, Any], users: np.ndarray) -> None:
        """Keep a run, print it, and keep its numbers by user, `[users]`."""
        self.runs.append(run)
        self._users[f"{run['arm']}/{run['seed']}"] = [round(float(value), 5) for value in users]
        shown = {key: round(v, 4) if isinstance(v, float) else v for key, v in run.items() if key != "method"}
        print(shown, flush=True)
        self._save()

    def compare(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Differences of two arms: means over seeds by user, then their mean and 95 % bootstrap interval over users."""
        for one, other in pairs:
            means = [self._of(one), self._of(other)]
            if len(means[0]) and len(means[1]):
                self.differences[f"{one} less {other}"] = _interval(means[0] - means[1])
        self._save()
        for pair, found in self.differences.items():
            print(pair, [round(value, 4) for value in found])

    def _of(self, arm: str) -> np.ndarray:
        rows = [values for key, values in self._users.items() if key.rsplit("/", 1)[0] == arm]
        return np.mean(rows, 0) if rows else np.empty(0)

    def _save(self) -> None:
        self.file.write_text(json.dumps({"runs": self.runs, "paired": self.differences}, indent=1) + "\n")
        self._users_file.write_text(json.dumps(self._users) + "\n")


def _interval(differences: np.ndarray) -> list[float]:
    rng = np.random.default_rng(0)
    means = [differences[rng.integers(len(differences), size=len(differences))].mean() for _ in range(RESAMPLES)]
    return [float(differences.mean()), *np.percentile(means, [2.5, 97.5]).tolist()]
