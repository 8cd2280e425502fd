"""`privfed.load_run`: a run from its folder."""

from os import PathLike
from pathlib import Path

import pandas as pd

from privfed.api.data import Data, as_data, load
from privfed.api.devices_run import DevicesRun
from privfed.api.errors import UseError
from privfed.api.folder import check_data, read_record
from privfed.api.method import AnyMethod, named
from privfed.api.result import TrainedRun
from privfed.data import DataError, Interactions
from privfed.experiment import Experiment
from privfed.experiment.folder import DEVICES


def load_run(
    folder: str | PathLike[str], data: Data | Interactions | pd.DataFrame | None = None, method: AnyMethod | None = None
) -> TrainedRun:
    """A run that was saved, or that `privfed run` or `privfed federation devices` wrote.

    Args:
        folder: where it is; of a run over devices, what they published, which recommends for any history.
        data: the data set it was trained on, where it was trained on a DataFrame; otherwise it is loaded again.
        method: where it was trained with a method that was given as an object.

    Raises:
        ValueError: there is no such run, or the data are not the same any more.

    Example:
        >>> import privfed, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> run = privfed.run("popularity", "synthetic-small")
        >>> privfed.load_run(run.save(folder)).recommend(1).equals(run.recommend(1))
        True
    """
    place = Path(folder)
    if (place / DEVICES).exists():
        return DevicesRun(place)
    record = read_record(place)
    if method is not None:
        named(method)
    config = record.experiment()
    if data is None:
        try:
            data = load(config.data, columns=record.columns)
        except DataError as error:
            raise UseError(
                f"{place} was trained on {config.data!r}, which cannot be loaded again ({error}): give the data set, "
                f"as in load_run(folder, data)"
            ) from error
    loaded = as_data(data)
    check_data(record, loaded, place)
    experiment = Experiment.on(config, loaded)
    experiment.restore(place)
    return TrainedRun(experiment, loaded, place)
