"""Which column plays which part: user, item and, optionally, time, order, rating, behaviour and split."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from privfed.data.errors import DataError

ROLES = ("user", "item", "timestamp", "order", "rating", "behaviour", "split")
ALIASES: dict[str, tuple[str, ...]] = {
    "user": (
        "user", "userid", "uid", "visitorid", "customerid", "customer", "memberid", "member", "reviewerid", "reviewer",
        "personid", "person", "accountid", "clientid", "buyerid", "profileid", "listenerid", "readerid", "username",
    ),
    "item": (
        "item", "itemid", "iid", "movieid", "productid", "parentasin", "asin", "bookid", "isbn", "artistid", "songid",
        "trackid", "articleid", "businessid", "gameid", "newsid", "videoid", "animeid", "recipeid", "locationid",
        "venueid", "contentid", "stockcode", "sku", "movie", "product", "book", "artist", "song", "track", "article",
    ),
    "timestamp": (
        "timestamp", "time", "ts", "unixreviewtime", "unixtime", "unixtimestamp", "datetime", "date", "eventtime",
        "createdat", "ratedat", "reviewedat", "boughtat",
    ),
    "order": ("order",),
    "rating": ("rating", "ratings", "stars", "overall", "score", "bookrating", "ratingscore", "reviewscore"),
    "behaviour": (
        "behaviour", "behavior", "behaviourtype", "behaviortype", "event", "eventtype", "action", "actiontype",
        "interactiontype",
    ),
    "split": ("split",),
}  # fmt: skip
"""Column names that a role is recognised by, in small letters with nothing between words, the likeliest first."""

_OPTIONS = {
    "user": "--user-column",
    "item": "--item-column",
    "timestamp": "--time-column",
    "rating": "--rating-column",
    "behaviour": "--behaviour-column",
}


_HEADERLESS = "its first line looks like data, so put a header such as user,item,rating,timestamp above it"


def resolve(present: Sequence[str], chosen: Mapping[str, str] | None, source: str) -> dict[str, str]:
    """Role -> column, for the roles that a column plays.

    Args:
        present: Columns of the file.
        chosen: Role -> column named by the user, or None.
        source: The file, for messages.

    Raises:
        DataError: A role or a column is unknown, a name stands twice, or no column plays user or item.
    """
    chosen = chosen or {}
    if unknown := [role for role in chosen if role not in ROLES]:
        raise DataError(f"columns names {unknown[0]!r}, which is not a role: choose among {', '.join(ROLES)}")
    if twice := [column for column, count in Counter(present).items() if count > 1]:
        advice = _HEADERLESS if _looks_like_data(present) else "rename one of them"
        raise DataError(f"{source} has two columns called {twice[0]!r}: {advice}")
    for role, column in chosen.items():
        if column not in present:
            raise _missing(role, column, present, source)
    free = [column for column in present if column not in chosen.values()]
    guessed = {role: chosen.get(role) or _alias(free, ALIASES[role]) for role in ROLES}
    found = {role: column for role, column in guessed.items() if column is not None}
    for role in ("user", "item"):
        if role not in found:
            raise _missing(role, None, present, source)
    return found


def plays_both(present: Iterable[str]) -> bool:
    """Whether a table of these columns can be one of interactions."""
    present = list(present)
    return all(_alias(present, ALIASES[role]) is not None for role in ("user", "item"))


def key_column(present: Sequence[str], role: str, column: str | None = None) -> str | None:
    """The column of a table of users or items that holds their ids, or None.

    Args:
        present: Columns of the table.
        role: "user" or "item".
        column: What the column is called among the interactions.
    """
    return column if column in present else _alias(present, (*ALIASES[role], "id"))


def alias(present: Sequence[str], names: Sequence[str]) -> str | None:
    """The first column that has one of `names`, apart from capitals and what stands between words."""
    return _alias(present, names)


def phrase(source: str, roles: Mapping[str, str]) -> str:
    """What was taken for what, in words."""
    return f"{source}: " + ", ".join(f"{role} = {column}" for role, column in roles.items())


def _alias(present: Iterable[str], names: Sequence[str]) -> str | None:
    plain = {re.sub(r"[^a-z0-9]", "", column.lower()): column for column in reversed(list(present))}
    return next((plain[name] for name in names if name in plain), None)


def _looks_like_data(header: Sequence[str]) -> bool:
    """Whether there is a digit in every name of a header, or one that is a number or a date."""
    return all(re.search(r"\d", name) for name in header) or any(
        re.fullmatch(r"\d[\d.:TZ+-]*", name) for name in header
    )


def _missing(role: str, column: str | None, present: Sequence[str], source: str) -> DataError:
    has = f"{source} has no column {column or role!r} for the {role} (it has {', '.join(present)})"
    if column is None and _looks_like_data(present):
        return DataError(f"{has}: {_HEADERLESS}")
    close = get_close_matches(column or role, present, n=1)
    meant, example = (f"did you mean {close[0]!r}? ", close[0]) if close else ("", present[0])
    python = f'{has}: {meant}say which one it is, for example columns={{"{role}": "{example}"}}'
    if role not in _OPTIONS:
        return DataError(python, command_line=f"{has}: {meant}rename the column to {role}")
    option = f"for example {_OPTIONS[role]} {example}"
    return DataError(python, command_line=f"{has}: {meant}say which one it is, {option}")
