"""What a command can refuse before it imports anything that takes long: folders that are not there, unknown names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from privfed.cli.failures import CommandError
from privfed.experiment.record_file import RECORD


def refuse_absent(folder: Path, kind: Literal["run", "audit"]) -> None:
    """Refuse a folder that holds no run or audit.

    Raises:
        CommandError: it has no record, or is a file.
    """
    if folder.is_file():
        raise CommandError(f"{folder} is a file: give the --out folder of 'privfed {kind}'")
    if not (folder / RECORD).exists():
        missing = f"holds no {kind}" if folder.is_dir() else "is not there"
        raise CommandError(f"{folder} {missing}: give the --out folder of 'privfed {kind}'")


def refuse_unknown(
    methods: Sequence[str], data: str | None, plans: Sequence[str] = (), protocol: str | None = None
) -> None:
    """Refuse methods that nobody registered, data that are nowhere, and plans and protocols of unknown names.

    Raises:
        UnknownMethodError, DataError, PlanError, CommandError: there is no such method, data set or path, plan, or
            protocol.
    """
    from privfed.methods import registry

    for method in methods:
        registry.refuse_unknown(method)
    if data is not None:
        refuse_missing(data)
    if plans or protocol is not None:
        from privfed.cli.early_settings import refuse_words

        refuse_words(methods, plans, protocol)


def refuse_missing(data: str) -> None:
    """Refuse data that are nowhere, before anything is loaded for them.

    Raises:
        DataError, CommandError: there are none of that name or at that path.
    """
    from privfed.data import catalogue

    path, root = Path(data).expanduser(), os.environ.get(catalogue.ENVIRONMENT)
    if path.exists() or (root and (Path(root).expanduser() / data).exists()):
        return
    if os.sep in data or path.suffix:
        raise CommandError(f"there is no file or folder {data}: correct the path, or see 'privfed data list'")
    catalogue.find(data)
