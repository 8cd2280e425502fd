"""Last.fm 2K as HetRec 2011 releases it: `user_artists.dat` and `user_taggedartists.dat` (tabs, a header).

Cantador, Brusilovsky and Kuflik, "2nd Workshop on Information Heterogeneity and Fusion in Recommender Systems
(HetRec 2011)", RecSys 2011. Two data sets lie in one folder, so the file says which is meant.

`user_artists.dat` has one row for each user and artist with the number of plays, which stands in `rating` and is no
rating: its scale has no upper end. It has no time.

`user_taggedartists.dat` has one row for each user, artist and *tag*, with the day it was given. The day is nearly
always the first, so the times are months (unix seconds at midnight UTC). Several federated papers count its rows as
interactions; of a user's rows for an artist the earliest is kept here unless duplicates are requested, because a test
pair would be in training too. It may be cut into `user_taggedartists.part1.dat`, `.part2.dat`, ..., each with the
header.

The artists are those that occur; `artists.dat` is not read.
"""

import re
from itertools import pairwise
from typing import Unpack

import numpy as np
import pandas as pd

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.sources import text
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import LISTENED, TAGGED

TERMS = (
    "HetRec 2011 Last.fm data is for non-commercial research, must be acknowledged in publications (Cantador, "
    "Brusilovsky and Kuflik, HetRec 2011, RecSys 2011; http://www.lastfm.com), and belongs to Last.fm "
    "(https://grouplens.org/datasets/hetrec-2011)."
)

_PART = re.compile(r"user_taggedartists\.part(\d+)\.dat")
_PLAYS = text.TextLayout([("userID", "whole"), ("artistID", "whole"), ("weight", "number")], "\t", header=True)
_TAGS = text.TextLayout(
    [(column, "whole") for column in ("userID", "artistID", "tagID", "day", "month", "year")], "\t", header=True
)


def read_listened(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read who played what; the number of plays is in `rating`.

    Raises:
        DataError: The file is missing or empty, or a line is malformed.
    """
    options.setdefault("terms", TERMS)
    table = text.read(files, LISTENED, _PLAYS)
    rows = table.frame
    return build(**options, user=rows["userID"], item=rows["artistID"], rating=rows["weight"], where=table.where)


def read_tagged(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read who tagged what, from one file or from its parts in the order of their numbers.

    Raises:
        DataError: A file is empty, a part is missing, a line is malformed or has a date that does not exist.
    """
    options.setdefault("terms", TERMS)
    tables = [text.read(files, name, _TAGS) for name in _tag_files(files)]
    ends = np.cumsum([len(table.frame) for table in tables])

    def where(row: int) -> str:
        number = int(np.searchsorted(ends, row, side="right"))
        return tables[number].where(row - int(ends[number - 1] if number else 0))

    rows = pd.concat([table.frame for table in tables], ignore_index=True)
    days = pd.to_datetime(rows[["year", "month", "day"]], utc=True, errors="coerce")
    if days.isna().any():
        row = int(np.argmax(days.isna()))
        day, month, year = rows.loc[row, ["day", "month", "year"]]
        raise DataError(f"{where(row)}: there is no day {day} of month {month} of {year}; correct or remove the line")
    return build(**options, user=rows["userID"], item=rows["artistID"], timestamp=days, where=where)


def _tag_files(files: Files) -> list[str]:
    if TAGGED in files.names:
        return [TAGGED]
    numbers = sorted(int(found[1]) for name in files.names if (found := _PART.fullmatch(name)))
    if gap := next((one + 1 for one, two in pairwise(numbers) if two > one + 1), None):
        raise DataError(
            f"user_taggedartists.part{gap}.dat is missing in {files.location}, and later parts are there: add it"
        )
    return [f"user_taggedartists.part{number}.dat" for number in numbers]
