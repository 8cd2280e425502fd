"""Write every table of the documentation that shows results of benchmarks, from their files.

    python -m benchmarks.tables [--charts]

What stands between the two markers of a table, `<!-- NAME: begin -->` and `<!-- NAME: end -->`, is replaced; all else
on the page stays. A test compares every page with the files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import doc_tables, harness, private_tables, reproduction_tables
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
    Table("results/performance.md", "suite", suite),
    Table("explanation/privacy.md", "accounting oracles", doc_tables.accounting_oracles),
    Table("explanation/secure_aggregation.md", "signed sums", doc_tables.signed_sums),
    Table("explanation/from_real_numbers_to_bits.md", "float noise", doc_tables.float_noise),
    Table("explanation/from_real_numbers_to_bits.md", "grid cost", doc_tables.grid_cost),
    Table("explanation/from_real_numbers_to_bits.md", "planted faults", doc_tables.planted_faults),
    Table("explanation/wire_compression.md", "wire compression", doc_tables.wire_compression),
    Table("results/performance.md", "rounds with evaluation", doc_tables.rounds_evaluated),
    Table("results/performance.md", "graphs of GPFedRec", doc_tables.gpfedrec_graphs),
    Table("results/performance.md", "one and two processes", doc_tables.scale_out),
    Table("results/flower.md", "parity over Flower", doc_tables.flower_parity),
    Table("results/flower.md", "cost of a device", doc_tables.devices),
    Table("results/flower.md", "cost of signatures", doc_tables.signed_rounds),
    Table("results/flower.md", "liars", doc_tables.lying_rounds),
    Table("results/reproduction.md", "personalisation", reproduction_tables.personalisation),
    Table("results/reproduction.md", "depth of the autoencoder", reproduction_tables.depth),
    Table("results/reproduction.md", "user-level privacy", reproduction_tables.user_level),
    Table("results/reproduction.md", "DFMR on JD", reproduction_tables.dfmr_quality),
    Table("results/reproduction.md", "DFMR differences", reproduction_tables.dfmr_differences),
    Table("results/reproduction.md", "DFMR on films", reproduction_tables.dfmr_films),
    Table("results/reproduction.md", "DFMR on shops", reproduction_tables.dfmr_shops),
    Table("results/reproduction.md", "padding", reproduction_tables.leakage),
    Table("results/reproduction.md", "HeteFedRec on NCF", reproduction_tables.hetefedrec_ncf),
    Table("results/reproduction.md", "HeteFedRec differences", reproduction_tables.hetefedrec_differences),
    Table("results/reproduction.md", "HeteFedRec on LightGCN", reproduction_tables.hetefedrec_lightgcn),
    Table("results/reproduction.md", "HeteFedRec default", reproduction_tables.hetefedrec_good),
    Table("results/reproduction.md", "HeteFedRec behind noise", reproduction_tables.hetefedrec_private),
    Table("results/reproduction.md", "FAIR", reproduction_tables.fair_quality),
    Table("results/reproduction.md", "FAIR differences", reproduction_tables.fair_differences),
    Table("results/reproduction.md", "FAIR without small devices", reproduction_tables.fair_loss),
    Table("results/reproduction.md", "FAIR by memory", reproduction_tables.fair_ladder),
    Table("results/reproduction.md", "FAIR ratings", reproduction_tables.fair_ratings),
    Table("results/reproduction.md", "unequal uploads", reproduction_tables.unequal_uploads),
    Table("results/reproduction.md", "IMIA", reproduction_tables.imia),
    Table("results/reproduction.md", "canaries", reproduction_tables.canaries),
    Table("results/private_recommender.md", "budgets", private_tables.budgets),
    Table("results/private_recommender.md", "populations", private_tables.populations),
    Table("results/private_recommender.md", "larger populations", private_tables.larger_populations),
    Table("results/private_recommender.md", "refreshes", private_tables.refreshes),
    Table("results/private_recommender.md", "refreshed quality", private_tables.refreshed_quality),
    Table("results/private_recommender.md", "cohorts", private_tables.cohorts),
    Table("results/private_recommender.md", "masked sums", private_tables.masked_sums),
    Table("results/private_recommender.md", "dropouts", private_tables.dropouts),
    Table("results/private_recommender.md", "catalogues", private_tables.catalogues),
    Table("results/bridge.md", "bridge", private_tables.bridge),
    Table("results/bridge.md", "bridge differences", private_tables.bridge_differences),
    Table("explanation/empirical_epsilon.md", "two inputs", partial(doc_tables.empirical_epsilon, "two inputs")),
    Table("explanation/empirical_epsilon.md", "one run", partial(doc_tables.empirical_epsilon, "one run")),
    Table(
        "explanation/empirical_epsilon.md",
        "one-shot canaries",
        partial(doc_tables.empirical_epsilon, "one-shot canaries"),
    ),
    Table("explanation/empirical_epsilon.md", "scatter", partial(doc_tables.empirical_epsilon, "scatter")),
    Table("explanation/empirical_epsilon.md", "coverage", partial(doc_tables.empirical_epsilon, "coverage")),
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
