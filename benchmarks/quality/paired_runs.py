"""Runs of several variants and seeds on the same users: kept as they come, compared user by user.

Numbers of a run go to the file of results; one number per user goes to a file next to it (`.users`), which stays on the
machine.
"""

import argparse
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.harness import Record
from benchmarks.quality.ranking import paired_interval


class PairedRuns:
    """The runs of one benchmark.

    Args:
        name: of the file of results; an interrupted benchmark goes on from it.
        options: parsed by the harness.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.record = Record(name, options, {"runs": [], "paired": {}})
        self.runs: list[dict[str, Any]] = self.record.results["runs"]
        self.differences: dict[str, list[float]] = self.record.results["paired"]
        self._users_file = self.record.file.with_suffix(".users")
        self._users: dict[str, list[float]] = {}
        if self._users_file.exists():
            self._users = json.loads(self._users_file.read_text())

    def has(self, variant: str, seed: int) -> bool:
        """Whether this run is there."""
        return any((run["variant"], run["seed"]) == (variant, seed) for run in self.runs)

    def add(self, run: dict[str, Any], users: np.ndarray) -> None:
        """Keep a run, print it, and keep its numbers by user, `[users]`."""
        self.runs.append(run)
        self.keep(run["variant"], run["seed"], users)
        print(
            {key: round(v, 4) if isinstance(v, float) else v for key, v in run.items() if key != "method"}, flush=True
        )
        self._save()

    def keep(self, variant: str, seed: int, users: np.ndarray) -> None:
        """Keep numbers by user under a name; NaN of those whom a seed leaves out."""
        self._users[f"{variant}/{seed}"] = [round(float(value), 5) for value in users]

    def compare(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Differences of two variants: means over seeds by user, then their mean and interval over users."""
        for one, other in pairs:
            means = [self._mean(one), self._mean(other)]
            if len(means[0]) and len(means[1]):
                both = means[0] - means[1]
                self.differences[f"{one} less {other}"] = paired_interval(both[np.isfinite(both)])
        self._save()
        for pair, found in self.differences.items():
            print(pair, [round(value, 4) for value in found])

    def _mean(self, variant: str) -> np.ndarray:
        rows = [values for key, values in self._users.items() if key.rsplit("/", 1)[0] == variant]
        if not rows:
            return np.empty(0)
        counted = np.isfinite(rows).sum(0)
        # Whom every seed leaves out is NaN, without a warning.
        means: np.ndarray = np.divide(np.nansum(rows, 0), counted, out=np.full(len(counted), np.nan), where=counted > 0)
        return means

    def _save(self) -> None:
        self.record.save()
        self._users_file.write_text(json.dumps(self._users) + "\n")
