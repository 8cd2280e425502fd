"""Write every table of the documentation that shows results of benchmarks, from their files.

    python -m benchmarks.tables [--charts]

What stands between the two markers of a table, `<!-- NAME: begin -->` and `<!-- NAME: end -->`, is replaced; all else
on the page stays. A test compares every page with the files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import clip_norm_tables, doc_tables, harness, private_tables, reproduction_tables
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
    Table("performance/flower.md", "parity over Flower", doc_tables.flower_parity),
    Table("performance/flower.md", "cost of a device", doc_tables.devices),
    Table("performance/flower.md", "cost of signatures", doc_tables.signed_rounds),
    Table("performance/flower.md", "liars", doc_tables.lying_rounds),
    Table("reproduction.md", "personalisation", reproduction_tables.personalisation),
    Table("reproduction.md", "depth of the autoencoder", reproduction_tables.depth),
    Table("reproduction.md", "user-level privacy", reproduction_tables.user_level),
    Table("reproduction.md", "DFMR on JD", reproduction_tables.dfmr_quality),
    Table("reproduction.md", "DFMR differences", reproduction_tables.dfmr_differences),
    Table("reproduction.md", "DFMR on films", reproduction_tables.dfmr_films),
    Table("reproduction.md", "DFMR on shops", reproduction_tables.dfmr_shops),
    Table("reproduction.md", "padding", reproduction_tables.leakage),
    Table("reproduction.md", "HeteFedRec on NCF", reproduction_tables.hetefedrec_ncf),
    Table("reproduction.md", "HeteFedRec differences", reproduction_tables.hetefedrec_differences),
    Table("reproduction.md", "HeteFedRec on LightGCN", reproduction_tables.hetefedrec_lightgcn),
    Table("reproduction.md", "HeteFedRec default", reproduction_tables.hetefedrec_good),
    Table("reproduction.md", "HeteFedRec behind noise", reproduction_tables.hetefedrec_private),
    Table("reproduction.md", "FAIR", reproduction_tables.fair_quality),
    Table("reproduction.md", "FAIR differences", reproduction_tables.fair_differences),
    Table("reproduction.md", "FAIR without small devices", reproduction_tables.fair_loss),
    Table("reproduction.md", "FAIR by memory", reproduction_tables.fair_ladder),
    Table("reproduction.md", "FAIR ratings", reproduction_tables.fair_ratings),
    Table("reproduction.md", "unequal uploads", reproduction_tables.unequal_uploads),
    Table("reproduction.md", "IMIA", reproduction_tables.imia),
    Table("reproduction.md", "canaries", reproduction_tables.canaries),
    Table("private_recommender.md", "budgets", private_tables.budgets),
    Table("private_recommender.md", "populations", private_tables.populations),
    Table("private_recommender.md", "larger populations", private_tables.larger_populations),
    Table("private_recommender.md", "refreshes", private_tables.refreshes),
    Table("private_recommender.md", "refreshed quality", private_tables.refreshed_quality),
    Table("private_recommender.md", "cohorts", private_tables.cohorts),
    Table("private_recommender.md", "masked sums", private_tables.masked_sums),
    Table("private_recommender.md", "dropouts", private_tables.dropouts),
    Table("private_recommender.md", "catalogues", private_tables.catalogues),
    Table("choosing_a_clip_norm.md", "clip norms", clip_norm_tables.measured),
    Table("choosing_a_clip_norm.md", "default clip norms", clip_norm_tables.defaults),
    Table("bridge.md", "bridge", private_tables.bridge),
    Table("bridge.md", "bridge differences", private_tables.bridge_differences),
    Table("empirical_epsilon.md", "two inputs", partial(doc_tables.empirical_epsilon, "two inputs")),
    Table("empirical_epsilon.md", "one run", partial(doc_tables.empirical_epsilon, "one run")),
    Table("empirical_epsilon.md", "one-shot canaries", partial(doc_tables.empirical_epsilon, "one-shot canaries")),
    Table("empirical_epsilon.md", "scatter", partial(doc_tables.empirical_epsilon, "scatter")),
    Table("empirical_epsilon.md", "coverage", partial(doc_tables.empirical_epsilon, "coverage")),
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
