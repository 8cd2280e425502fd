"""MovieLens-100K as GroupLens releases it: `u.data` (tabs), `u.user` and `u.item` (bars, latin-1).

Harper and Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015. `u.item` gives the
catalogue, `u.user` the attributes; either may be absent.
"""

from itertools import compress
from typing import Unpack

import pandas as pd

from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.people import demographics
from privfed.data.sources import text
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import MOVIELENS_100K
from privfed.data.sources.movielens_terms import TERMS

GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip

_DATA = text.TextLayout([("user", "whole"), ("item", "whole"), ("rating", "number"), ("timestamp", "whole")], "\t")
_USER = text.TextLayout(
    [("user", "whole"), ("age", "whole"), ("gender", "text"), ("occupation", "text"), ("zip_code", "text")],
    "|",
    encoding="latin-1",
)
_ITEM = text.TextLayout(
    [
        ("item", "whole"),
        ("title", "text"),
        ("release_date", "text"),
        ("video_release_date", "ignored"),
        ("url", "ignored"),
        *((genre, "whole") for genre in GENRES),
    ],
    "|",
    encoding="latin-1",
)


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read the release.

    Raises:
        DataError: `u.data` is missing or empty, or a line of any file is malformed.
    """
    options.setdefault("terms", TERMS)
    table = text.read(files, MOVIELENS_100K, _DATA)
    info = _items(files) if "u.item" in files.names else None
    people = text.read(files, "u.user", _USER).frame if "u.user" in files.names else None
    return build(
        **options,
        user=table.frame["user"],
        item=table.frame["item"],
        timestamp=table.frame["timestamp"],
        rating=table.frame["rating"],
        catalogue=None if info is None else info.index,
        attributes=None if people is None else demographics(people.set_index("user")),
        item_info=info,
        where=table.where,
    )


def _items(files: Files) -> pd.DataFrame:
    frame = text.read(files, "u.item", _ITEM).frame.set_index("item")
    genres = ["|".join(compress(GENRES, flags)) for flags in frame[list(GENRES)].to_numpy()]
    return frame[["title", "release_date"]].assign(genres=genres)
