"""Options of every loader, apart from the location of the files."""

from typing import NotRequired, TypedDict

from privfed.data.interactions import Duplicates


class BuildOptions(TypedDict):
    """Arguments that a loader passes on to `privfed.data.interactions.build`."""

    name: str
    duplicates: NotRequired[Duplicates]
    min_per_user: NotRequired[int]
    terms: NotRequired[str | None]
