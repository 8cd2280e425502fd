"""What `load_run` gives of a run over people's own devices: the published model, and nobody's history."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from privfed.api import printing
from privfed.api.errors import UseError
from privfed.api.folder import read_devices_record
from privfed.api.publishing import PublishedModel
from privfed.api.result import TrainedRun
from privfed.experiment.folder import PUBLISHED
from privfed.setup.config import ExperimentConfig

_LEFT = frozenset({"data", "costs", "_experiment", "_history"})


class DevicesRun(TrainedRun):
    """A run that people's own devices made: what a device would recommend for a history, and what is guaranteed.

    Its data, quality and costs are at the devices; asking for them is refused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.rounds = folder, 1
        self._record = read_devices_record(folder)
        self._model = PublishedModel.read(folder / PUBLISHED)
        self.guarantee = self._model.guarantee

    @property
    def config(self) -> ExperimentConfig:
        """Everything that decided the result but the histories."""
        return self._record.experiment()

    def recommend(self, user: Any = None, k: int = 10, *, history: Sequence[Any] | None = None) -> pd.DataFrame:
        """The best `k` items for somebody's history, which is not kept.

        Args:
            user: nobody is known here, so leave it out.
            k: number of items.
            history: ids of the items that somebody has.
        """
        if user is not None or history is None:
            raise UseError(f"{self.folder} knows no user, as devices keep who has what: give history=[items]")
        return self._model.recommend(list(history), k)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _LEFT:
            raise UseError(
                f"{self.folder} is a run over people's devices, where their histories stay, so nothing was measured: "
                "recommend(history=[...]) and guarantee are here"
            )
        raise AttributeError(name)

    def __repr__(self) -> str:
        record = self._record
        took_part = f"{record.joined:,} of {record.people:,} devices of {record.federation}"
        return f"{self.method} over {took_part}\n{'Privacy':<8} {printing.privacy(self.guarantee)}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
