"""`meta.json` in the folder of a data set: its `terms`, and `catalog: {"items": n}`, the size of its catalogue."""

import json
from dataclasses import dataclass

from privfed.data.errors import DataError
from privfed.data.sources.files import Files

_NAME = "meta.json"


@dataclass(frozen=True)
class Meta:
    """Declared properties of a data set; None where not declared.

    Attributes:
        terms: Terms of use.
        n_items: Size of the catalogue.
    """

    terms: str | None = None
    n_items: int | None = None


def read(files: Files) -> Meta:
    """Contents of `meta.json`; empty where there is none.

    Raises:
        DataError: It is not JSON, or the size of the catalogue is no whole number.
    """
    if _NAME not in files.names:
        return Meta()
    place = files.named(_NAME)
    try:
        content = json.loads(files.read(_NAME))
    except ValueError as error:
        raise DataError(f"{place} is not valid JSON ({error}): correct or remove it") from error
    if not isinstance(content, dict):
        return Meta()
    catalogue = content.get("catalog")
    n_items = catalogue.get("items") if isinstance(catalogue, dict) else None
    if n_items is not None and (type(n_items) is not int or n_items < 1):
        raise DataError(f"{place} gives {n_items!r} as catalog.items: write the number of items, or leave it out")
    return Meta(content.get("terms"), n_items)
