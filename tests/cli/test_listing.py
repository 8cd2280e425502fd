"""What `privfed methods` reads from a file is what the methods say themselves."""

import io
import json
from collections.abc import Callable

from rich.console import Console

from privfed.cli.listing import LISTING, content, documents
from privfed.cli.tables import keep_numbers_whole, plain_table
from privfed.methods import methods


def test_the_file_is_what_the_methods_say() -> None:
    assert json.loads(LISTING.read_text(encoding="utf-8")) == content(), "write it: python -m privfed.cli.listing"


def test_all_methods_are_listed_in_order() -> None:
    assert [one["name"] for one in documents()] == sorted(methods())


def test_a_preset_is_listed_by_what_it_changes_and_from_where(cli: Callable) -> None:
    text = " ".join(cli("methods", "show", "gpfedrec").out.split())
    assert "What gpfedrec:published changes" in text
    assert "method.gamma │ 1.0 │ 0.5 │ paper, figure 3" in text
    assert "method.dim │ 32 │ 32" not in text
    assert (
        "hetefedrec:published is our variant of the published model: no code"
        in cli("methods", "show", "hetefedrec").out
    )


def test_no_number_is_broken_in_two_however_narrow_the_screen() -> None:
    numbers = ["0.0870 [0.0689, 0.1050]", "1,234,567.25", "99.5%"]
    table = plain_table(
        "Numbers", ("a metric with a long name", "another", "last"), [numbers, ["words", "only", "here"]]
    )
    keep_numbers_whole(table)
    console = Console(width=42, file=io.StringIO(), record=True)
    console.print(table)
    printed = console.export_text()
    assert all(number.strip() in printed for text in numbers for number in text.split())
