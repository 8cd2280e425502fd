"""Tables for a terminal that need nothing of the library."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table


def plain_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[RenderableType]]) -> Table:
    """A table of texts."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def keep_numbers_whole(table: Table) -> None:
    """Make every column at least as wide as its longest number, however narrow the screen is."""
    for column in table.columns:
        words = [word for cell in column.cells if isinstance(cell, str) for word in cell.split()]
        numbers = [len(word) for word in words if word.strip("[](),%").replace(",", "").lstrip("-")[:1].isdigit()]
        column.min_width = max([column.min_width or 0, *numbers])
