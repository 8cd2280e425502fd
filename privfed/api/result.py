"""`Run`: a trained recommender with its quality, its guarantee and what can be done with it."""

import shutil
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from privfed.api import attacks, exporting, printing, recommending
from privfed.api.data import Data
from privfed.api.errors import UseError
from privfed.audit.attack_runs.attack_run import RunFindings, attack_run
from privfed.engines.checkpoint import Checkpoint
from privfed.engines.costs import Costs
from privfed.evaluation import EvaluationResult, RoundEvaluation
from privfed.experiment import Experiment, TrainingProgress
from privfed.experiment.baseline import popularity
from privfed.experiment.folder import CHECKPOINT, GUARANTEE
from privfed.experiment.result import selected
from privfed.privacy import Guarantee
from privfed.setup.config import ExperimentConfig


class TrainedRun:
    """A trained recommender.

    `print(run)` shows how good it is beside popularity and what is guaranteed; so does a notebook.

    Attributes:
        data: what it was trained on.
        folder: where its files are; of a run that was not saved, a temporary folder that goes with this object.
        config: everything that decided the result.
        rounds: rounds trained.
        costs: bytes on the wire and seconds.
        guarantee: epsilon, delta, the unit and the two worlds it compares, who is trusted, and every sentence that a
            reader must be told with it.

    Example:
        >>> import privfed
        >>> run = privfed.run("private-gram", "synthetic-small", epsilon=8)
        >>> round(run.guarantee.epsilon, 2)
        8.0
        >>> list(run.recommend(1, k=3).columns)
        ['item', 'title', 'score']
    """

    def __init__(self, experiment: Experiment, data: Data, folder: Path) -> None:
        self.data, self.folder, self._experiment = data, folder, experiment
        place = folder / CHECKPOINT
        checkpoint = Checkpoint.load(place, ranged=True)
        self.rounds = checkpoint.next_round
        progress = TrainingProgress.from_checkpoint(checkpoint, place)
        self._history = [one.evaluation() for one in progress.history]
        self.costs = Costs.from_saved(progress.simulation.costs)
        self.guarantee = Guarantee.model_validate_json((folder / GUARANTEE).read_text(encoding="utf-8"))

    @property
    def config(self) -> ExperimentConfig:
        """Everything that decided the result."""
        return self._experiment.config

    @property
    def method(self) -> str:
        """The method's name, a file's without its folder."""
        return Path(self.config.method_name).name

    @property
    def experiment(self) -> Experiment:
        """The trained experiment, for whoever wants to look inside."""
        return self._experiment

    @property
    def decisions(self) -> dict[str, float]:
        """What the method decided by what had been released to it, so at no cost of privacy; {} of a loaded run."""
        return dict(getattr(self._experiment.server, "decisions", {}))

    @property
    def test(self) -> EvaluationResult:
        """Test quality at the round that the protocol reports."""
        return self._selected.results["test"]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Test quality: metric, k, value, low and high (95 % interval over people), and popularity's value.

        Where ratings are predicted, `popularity` is the error of predicting the best of the means.
        """
        return printing.metrics_frame(self.test, self._popularity)

    @property
    def history(self) -> pd.DataFrame:
        """Every evaluation while it trained: round (from 1), part, metric, k, value, low, high."""
        return printing.history_frame(self._history)

    def recommend(self, user: Any = None, k: int = 10, *, history: Sequence[Any] | None = None) -> pd.DataFrame:
        """The best `k` items, best first: what the person's own device would show after download and local training.

        Args:
            user: an id as the data set has it, or a list of ids; items that a user trained on are left out.
            k: number of items.
            history: instead of a user, ids of the items that somebody new has; for methods whose model answers from
                a history (private-gram, ease, autoencoders, ...). It is not kept.

        Returns:
            item, title (where known) and score; of several users, `user` before them. Scores are comparable within a
            list only.

        Raises:
            ValueError: an id is not in the data, or the method cannot answer from a history.

        Example:
            >>> import privfed
            >>> run = privfed.run("ease", "synthetic-small")
            >>> len(run.recommend([1, 2], k=5)), len(run.recommend(history=[3, 8], k=5))
            (10, 5)
        """
        if (user is None) == (history is None):
            raise UseError(
                "recommend needs a user, a list of users, or history=[items of somebody new]: give one of them"
            )
        if history is not None:
            return recommending.for_history(self._experiment, self.data, list(history), k, self.rounds)
        several = not isinstance(user, str) and hasattr(user, "__iter__")
        lists = recommending.for_users(self._experiment, self.data, list(user) if several else [user], k, self.rounds)
        lists = lists.reset_index(drop=True)
        return lists if several else lists.drop(columns="user")

    def attack(self) -> pd.DataFrame:
        """What an honest but curious server, and whoever sees a device's recommendations, could tell from this run.

        Returns:
            A line for each attack, game and place, the strongest first: attack, seen_by, game, items, rounds, auc (0.5
            is chance, 1 certainty), low and high (95 % interval over people), popularity (the AUC of guessing by
            popularity alone). What could not be attacked, and why, is in `attrs["notices"]`.

        Example:
            >>> import privfed
            >>> run = privfed.run("fedmf", "synthetic-small", rounds=2)
            >>> run.attack().columns[:2].tolist()
            ['attack', 'seen_by']
        """
        frame = attacks.as_frame(self._findings.rows)
        unseen = [] if attacks.main_attack(self._findings.rows) else [attacks.NOT_ATTACKED]
        frame.attrs["notices"] = [*unseen, *self._findings.notices]
        return frame

    def save(self, folder: str | PathLike[str]) -> Path:
        """Keep the run in a folder, which `privfed.load_run` and the command line read.

        It holds the private state of the simulated clients, so treat it as you treat the data. DataFrames are not
        copied into it.

        Args:
            folder: new, or empty.

        Raises:
            ValueError: there is something in it already.
        """
        place = Path(folder)
        if place.is_file() or (place.is_dir() and any(place.iterdir())):
            raise UseError(f"{place} is not empty: choose another folder to save to")
        shutil.copytree(self.folder, place, dirs_exist_ok=True)
        return place

    def export(self, file: str | PathLike[str]) -> Path:
        """Write the public model to one file, with a model card beside it.

        Args:
            file: `.safetensors` holds every public tensor and the item ids; `.csv` has a line for each item; `.onnx`
                scores histories in other runtimes, for methods whose devices keep nothing else (extra `onnx`).

        Returns:
            The model card: method, data, protocol, guarantee, whom it trusts, what it must not be used for.

        Raises:
            ValueError: the format is not known or cannot hold the model, or the file is there already.

        Example:
            >>> import privfed, tempfile
            >>> run = privfed.run("private-gram", "synthetic-small", epsilon=8)
            >>> run.export(tempfile.mkdtemp() + "/model.safetensors").name
            'model.md'
        """
        return exporting.export(self, Path(file))

    def __repr__(self) -> str:
        return printing.text(self)

    def _repr_html_(self) -> str:
        return printing.html(self)

    @property
    def attacked(self) -> bool:
        """Whether `attack` was called."""
        return "_findings" in vars(self)

    @cached_property
    def _findings(self) -> RunFindings:
        return attack_run(self.folder, self.config, self._experiment.parts)

    @cached_property
    def _popularity(self) -> EvaluationResult | None:
        return popularity(self.config, self._experiment.parts, self.test)

    @cached_property
    def _selected(self) -> RoundEvaluation:
        return selected(self.config, self._history)
