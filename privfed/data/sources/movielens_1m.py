"""MovieLens-1M as GroupLens releases it: `ratings.dat`, `users.dat`, `movies.dat` (`::`, latin-1).

Harper and Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015. `movies.dat` gives the
catalogue (3,883 movies, 177 of them never rated), `users.dat` the attributes; either may be absent. An age
here is the lowest of its bracket (1, 18, 25, 35, 45, 50, 56).
"""

from typing import Unpack

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.people import demographics
from privfed.data.sources import text
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import MOVIELENS_1M
from privfed.data.sources.movielens_terms import TERMS

OCCUPATIONS = (
    "other", "academic/educator", "artist", "clerical/admin", "college/grad student", "customer service",
    "doctor/health care", "executive/managerial", "farmer", "homemaker", "K-12 student", "lawyer",
    "programmer", "retired", "sales/marketing", "scientist", "self-employed", "technician/engineer",
    "tradesman/craftsman", "unemployed", "writer",
)  # fmt: skip

_RATINGS = text.TextLayout([("user", "whole"), ("item", "whole"), ("rating", "number"), ("timestamp", "whole")], "::")
_USERS = text.TextLayout(
    [("user", "whole"), ("gender", "text"), ("age", "whole"), ("occupation", "whole"), ("zip_code", "text")],
    "::",
    encoding="latin-1",
)
_MOVIES = text.TextLayout([("item", "whole"), ("title", "text"), ("genres", "text")], "::", encoding="latin-1")


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read the release.

    Raises:
        DataError: `ratings.dat` is missing or empty, or a line of any file is malformed.
    """
    options.setdefault("terms", TERMS)
    table = text.read(files, MOVIELENS_1M, _RATINGS)
    info = text.read(files, "movies.dat", _MOVIES).frame.set_index("item") if "movies.dat" in files.names else None
    people = None
    if "users.dat" in files.names:
        users = text.read(files, "users.dat", _USERS)
        numbers = users.frame["occupation"]
        if len(wrong := numbers.index[~numbers.between(0, len(OCCUPATIONS) - 1)]):
            raise DataError(
                f"{users.where(wrong[0])}: occupation {numbers[wrong[0]]} is not one of 0 to "
                f"{len(OCCUPATIONS) - 1}; correct or remove the line"
            )
        named = users.frame.assign(occupation=[OCCUPATIONS[number] for number in numbers])
        people = demographics(named.set_index("user"))
    return build(
        **options,
        user=table.frame["user"],
        item=table.frame["item"],
        timestamp=table.frame["timestamp"],
        rating=table.frame["rating"],
        catalogue=None if info is None else info.index,
        attributes=people,
        item_info=info,
        where=table.where,
    )
