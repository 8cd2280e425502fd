"""Tables in Markdown, and their place between two markers of a page."""

from collections.abc import Iterable, Sequence

SEPARATORS = {"l": "---", "r": "---:"}


class MarkerError(ValueError):
    """A page without the markers of its table."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """Lines of a table, with an empty one after it.

    Args:
        head: names of the columns.
        rows: cells.
        align: `l` or `r` for every column; by default all but the first are numbers and stand at the right.
    """
    columns = align or "l" + "r" * (len(head) - 1)
    separator = "|" + "".join(f"{SEPARATORS[side]}|" for side in columns)
    return ["| " + " | ".join(head) + " |", separator, *("| " + " | ".join(row) + " |" for row in rows), ""]


def markers(name: str) -> tuple[str, str]:
    """What stands before and after a table."""
    return f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"


def replaced(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with what stands between two markers replaced.

    Raises:
        MarkerError: The markers do not stand on the page, once each and in this order.
    """
    begin, end = markers(name)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise MarkerError(f"the page needs {begin.strip()} and {end} once each, in this order")
    before, rest = text.split(begin)
    return before + begin + "\n".join(lines).rstrip() + "\n" + end + rest.split(end)[1]
