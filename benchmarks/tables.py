"""Write every table of the documentation that shows results of benchmarks, from their files.

    python -m benchmarks.tables [--charts]

What stands between the two markers of a table, `<!-- NAME: begin -->` and `<!-- NAME: end -->`, is replaced; all else
on the page stays. A test compares every page with the files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import doc_tables, harness
from benchmarks.markdown import replaced
from benchmarks.speed.suite.page import CHARTS, Page

DOCS = harness.ROOT / "docs"


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        page: below `docs`.
        name: in its markers.
        lines: what stands between them.
    """

    page: str
    name: str
    lines: Callable[[], Iterable[str]]


def suite(charts: Path | None = None) -> Iterable[str]:
    """All that the suite measured."""
    return Page(harness.read(harness.RESULTS / "suite.json"), charts).lines()


TABLES = (
    Table("performance.md", "suite", suite),
    Table("privacy.md", "accounting oracles", doc_tables.accounting_oracles),
    Table("secure_aggregation.md", "signed sums", doc_tables.signed_sums),
    Table("from_real_numbers_to_bits.md", "float noise", doc_tables.float_noise),
    Table("from_real_numbers_to_bits.md", "grid cost", doc_tables.grid_cost),
    Table("from_real_numbers_to_bits.md", "planted faults", doc_tables.planted_faults),
    Table("wire_compression.md", "wire compression", doc_tables.wire_compression),
    Table("performance.md", "rounds with evaluation", doc_tables.rounds_evaluated),
    Table("performance.md", "graphs of GPFedRec", doc_tables.gpfedrec_graphs),
    Table("performance.md", "one and two processes", doc_tables.scale_out),
    Table("deploying.md", "parity over Flower", doc_tables.flower_parity),
    Table("deploying.md", "cost of a device", doc_tables.devices),
)


def written(page: str, text: str) -> str:
    """A page with all its tables as the files have them."""
    for table in TABLES:
        if table.page == page:
            text = replaced(text, table.name, table.lines())
    return text


def write(*, charts: bool = False) -> None:
    """Write every page, and the charts of the suite where they are asked for."""
    if charts:
        CHARTS.mkdir(parents=True, exist_ok=True)
        list(suite(CHARTS))
    for page in dict.fromkeys(table.page for table in TABLES):
        file = DOCS / page
        file.write_text(written(page, file.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--charts", action="store_true", help="draw the charts of the suite, too")
    write(charts=harness.parse(parser, arguments).charts)


if __name__ == "__main__":
    main()
