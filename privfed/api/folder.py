"""The folder of a run for Python: what is in it, read and checked."""

import json
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from privfed import __version__
from privfed.api.errors import UseError
from privfed.data import Interactions
from privfed.experiment.folder import CHECKPOINT, DEVICES, FORMAT, GUARANTEE, DevicesRecord, FolderRecord
from privfed.experiment.record_file import RECORD
from privfed.privacy import configure


def temporary(kind: str) -> Path:
    """A new folder that only this user may read."""
    return Path(tempfile.mkdtemp(prefix=f"privfed-{kind}-"))


def remove_with(owner: object, folder: Path) -> None:
    """Remove `folder` when nobody holds `owner` any more, or the process ends."""
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)


def read_record(folder: Path) -> FolderRecord:
    """The record of a finished run.

    Raises:
        UseError: there is none, it is not finished, or it is damaged or in another format.
    """
    try:
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UseError(f"{folder} holds no run: give a folder that Run.save or 'privfed run' wrote") from None
    except (ValueError, RecursionError) as error:
        raise UseError(f"{folder / RECORD} is damaged ({error}): train again") from error
    record = configure(FolderRecord, _in_format(content, folder))
    if record.kind != "run":
        raise UseError(f"{folder} holds an audit: give the folder of a run")
    if not ((folder / CHECKPOINT).exists() and (folder / GUARANTEE).exists()):
        raise UseError(f"the run in {folder} is not finished: let 'privfed run' resume it, or train again")
    return record


def read_devices_record(folder: Path) -> DevicesRecord:
    """The record of a finished run over devices.

    Raises:
        UseError: it was aborted, is damaged, or is in another format.
    """
    try:
        content = json.loads((folder / DEVICES).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UseError(f"{folder / DEVICES} is damaged ({error}): bring back the file as it was written") from error
    record = configure(DevicesRecord, _in_format(content, folder))
    if record.ended is None:
        raise UseError(f"the run in {folder} was aborted and published no model: let devices run again")
    return record


def _in_format(content: Any, folder: Path) -> Any:
    """The content of a record, unless it is in another format."""
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise UseError(
            f"{folder} is in format {version}, and privfed {__version__} reads format {FORMAT}: use the version that "
            f"wrote it, or train again"
        )
    return content


def check_data(record: FolderRecord, data: Interactions, folder: Path) -> None:
    """Refuse data other than the run was trained on.

    Raises:
        UseError: the digests differ.
    """
    if data.card.sha256 != record.data_sha256:
        raise UseError(
            f"the data set {data.name} is not the one that {folder} was trained on (its digest differs): give the "
            f"former data, or train again"
        )
