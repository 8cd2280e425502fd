"""Write every table of the documentation that shows results of benchmarks, from their files.

    python -m benchmarks.tables [--charts]

What stands between the two markers of a table, `<!-- NAME: begin -->` and `<!-- NAME: end -->`, is replaced; all else
on the page stays. A test compares every page with the files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import (
    active_tables,
    attribute_tables,
    clip_norm_tables,
    cost_tables,
    dfmr_tables,
    doc_tables,
    five_tables,
    harness,
    paper_tables,
    private_tables,
    reproduction_tables,
    scale_tables,
    third_party_tables,
)
from benchmarks.markdown import replaced
from benchmarks.speed.suite.page import CHARTS, Page

DOCS = harness.ROOT / "docs"
PICTURE = DOCS / "assets" / "five_systems.svg"


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        page: below `docs`.
        name: in its markers.
        lines: what stands between them.
        sources: names of the files of results that they show.
    """

    page: str
    name: str
    lines: Callable[[], Iterable[str]]
    sources: tuple[str, ...]

    def written(self) -> list[str]:
        """The lines, and below them where they come from."""
        lines = list(self.lines())
        while lines and not lines[-1]:
            lines.pop()
        if not self.sources:
            return lines
        return [*lines, "", "*From " + " ".join(map(harness.provenance, self.sources)) + "*"]


def suite(charts: Path | None = None) -> Iterable[str]:
    """All that the suite measured."""
    return Page(harness.read(harness.RESULTS / "suite.json"), charts).lines()


CATALOGUES = tuple(f"private_gram_table_{data}" for data in private_tables.CATALOGUES)
BRIDGED = tuple(f"bridge_ml-100k_{system}" for system in private_tables.SYSTEMS)
PAPERS = tuple(
    Table(f"results/papers/{name}.md", what, partial(lines, name), sources)
    for name in paper_tables.PAPERS
    for what, lines, sources in (
        ("claims", paper_tables.claims, ()),
        ("numbers of the paper", paper_tables.numbers, paper_tables.sources(name)),
        ("mechanisms", paper_tables.mechanisms, ("five_systems",)),
    )
)
TABLES = (
    Table("results/papers.md", "counts", paper_tables.counts, ()),
    Table("results/papers.md", "cells", paper_tables.cells, ()),
    Table("results/papers.md", "results", paper_tables.index, ("paper_costs",)),
    Table("results/papers.md", "comparison methods", paper_tables.methods, ()),
    Table("results/papers.md", "as shipped", paper_tables.shipped, ("shipped",)),
    Table("results/papers.md", "searched", paper_tables.searched, ("defaults",)),
    *PAPERS,
    Table("../README.md", "five rows", five_tables.readme, ("five_systems",)),
    Table("results/five_systems.md", "five systems", five_tables.audited, ("five_systems",)),
    Table("results/performance.md", "suite", suite, ("suite",)),
    Table("explanation/privacy.md", "accounting oracles", doc_tables.accounting_oracles, ("accounting_oracles",)),
    Table("explanation/secure_aggregation.md", "signed sums", doc_tables.signed_sums, ("signed_sums",)),
    Table(
        "explanation/two_servers.md", "two servers", doc_tables.two_servers, ("two_server_sums", "two_server_rounds")
    ),
    Table("explanation/two_servers.md", "over nodes", doc_tables.two_server_nodes, ("two_server_nodes",)),
    Table("explanation/two_servers.md", "lies between two servers", doc_tables.two_server_lies, ()),
    Table(
        "explanation/from_real_numbers_to_bits.md",
        "float noise",
        doc_tables.float_noise,
        ("float_noise_before", "float_noise_after"),
    ),
    Table("explanation/from_real_numbers_to_bits.md", "grid cost", doc_tables.grid_cost, ("rounds_noise",)),
    Table("explanation/from_real_numbers_to_bits.md", "planted faults", doc_tables.planted_faults, ("planted_faults",)),
    Table("explanation/wire_compression.md", "wire compression", doc_tables.wire_compression, ("wire_compression",)),
    Table("results/performance.md", "start", cost_tables.start, ("start",)),
    Table("results/performance.md", "graphs of GPFedRec", doc_tables.gpfedrec_graphs, ("gpfedrec_scale",)),
    Table("scale.md", "one and two processes", doc_tables.scale_out, ("scale_out",)),
    Table("scale.md", "out of core", scale_tables.out_of_core, ("out_of_core",)),
    Table("scale.md", "hundred million", scale_tables.plan, ("out_of_core", "scale_out")),
    Table("results/performance.md", "edges of graphs", cost_tables.graph_edges, ("gpfedrec_scale",)),
    Table("results/performance.md", "DFMR in shares", cost_tables.dfmr_cost, ("dfmr_cost_jd-dfmr",)),
    Table("results/performance.md", "masking", cost_tables.masking, ("secure_aggregation",)),
    Table("explanation/attacks/active_servers.md", "active servers", active_tables.active_servers, ("active_servers",)),
    Table(
        "explanation/attacks/active_servers.md",
        "ranges and links",
        active_tables.ranges_and_links,
        ("ranges_and_links",),
    ),
    Table("explanation/attacks/active_servers.md", "links", active_tables.links, ("ranges_and_links",)),
    Table(
        "explanation/attacks/active_servers.md",
        "inversion",
        active_tables.inversion,
        ("gradient_inversion", "ranges_and_links"),
    ),
    Table("explanation/attacks/poisoning.md", "poisoning", active_tables.poisoning, ("poisoning",)),
    Table("explanation/attacks/attributes.md", "attributes", attribute_tables.attributes, ("attributes",)),
    Table("results/flower.md", "exchanges", cost_tables.exchanges, ("flower",)),
    Table("results/flower.md", "losses", cost_tables.losses, ("nodes", "flower_faults")),
    Table("results/flower.md", "parity over Flower", doc_tables.flower_parity, ("flower_parity",)),
    Table("results/flower.md", "cost of a device", doc_tables.devices, ("nodes",)),
    Table("results/flower.md", "cost of signatures", doc_tables.signed_rounds, ("nodes",)),
    Table("results/flower.md", "liars", doc_tables.lying_rounds, ("nodes",)),
    Table(
        "results/papers/feddae.md",
        "personalisation",
        reproduction_tables.personalisation,
        ("feddae_personalisation_ml-100k",),
    ),
    Table("results/papers/gpfedrec.md", "controls", reproduction_tables.controls, ("controls",)),
    Table("results/papers/gpfedrec.md", "open settings", reproduction_tables.open_settings, ("open_settings",)),
    Table(
        "results/papers/feddae.md",
        "gates by activity",
        reproduction_tables.gates_by_activity,
        ("feddae_gates_ml-100k",),
    ),
    Table("results/papers/feddae.md", "gate of FedDAE", reproduction_tables.gate, ("feddae_gate_ml-100k",)),
    Table("results/papers/feddae.md", "encoders of FedDAE", reproduction_tables.encoders, ("feddae_encoders_ml-100k",)),
    Table("results/papers/feddae.md", "depth of the autoencoder", reproduction_tables.depth, ("feddae_depth_ml-100k",)),
    Table(
        "results/papers/feddae.md",
        "user-level privacy",
        reproduction_tables.user_level,
        ("feddae_privacy_ml-100k", "feddae_privacy_ml-1m"),
    ),
    Table("results/papers/dfmr.md", "DFMR on JD", reproduction_tables.dfmr_quality, ("dfmr_quality_jd-dfmr",)),
    Table(
        "results/papers/dfmr.md", "DFMR differences", reproduction_tables.dfmr_differences, ("dfmr_quality_jd-dfmr",)
    ),
    Table(
        "results/papers/dfmr.md", "DFMR on films", reproduction_tables.dfmr_films, ("dfmr_quality_ml-100k-behaviours",)
    ),
    Table(
        "results/papers/dfmr.md",
        "DFMR on shops",
        reproduction_tables.dfmr_shops,
        ("dfmr_quality_tmall-dfmr", "dfmr_quality_ub-dfmr"),
    ),
    *(
        Table("results/papers/dfmr.md", name, lines, dfmr_tables.sources(part))
        for name, lines, part in (
            ("space by bits", dfmr_tables.space, "space"),
            ("space by catalogue", dfmr_tables.items, "space"),
            ("bytes of a round", dfmr_tables.communication, "communication"),
            ("seconds of a round", dfmr_tables.times, "time"),
        )
    ),
    Table("results/papers/dfmr.md", "boosts", reproduction_tables.boosts, reproduction_tables.boosted()),
    Table("results/papers/dfmr.md", "padding", reproduction_tables.leakage, ("dfmr_leakage_jd-dfmr",)),
    Table(
        "results/papers/hetefedrec.md",
        "HeteFedRec on NCF",
        reproduction_tables.hetefedrec_ncf,
        ("hetefedrec_table_ncf",),
    ),
    Table(
        "results/papers/hetefedrec.md",
        "HeteFedRec differences",
        reproduction_tables.hetefedrec_differences,
        ("hetefedrec_table_ncf", "hetefedrec_table_lightgcn"),
    ),
    Table(
        "results/papers/hetefedrec.md",
        "HeteFedRec on LightGCN",
        reproduction_tables.hetefedrec_lightgcn,
        ("hetefedrec_table_lightgcn",),
    ),
    Table(
        "results/papers/hetefedrec.md",
        "HeteFedRec by group",
        reproduction_tables.hetefedrec_groups,
        ("hetefedrec_groups_ncf", "hetefedrec_groups_lightgcn"),
    ),
    Table(
        "results/papers/hetefedrec.md", "HeteFedRec default", reproduction_tables.hetefedrec_good, ("hetefedrec_good",)
    ),
    Table(
        "results/papers/hetefedrec.md",
        "HeteFedRec behind noise",
        reproduction_tables.hetefedrec_private,
        ("hetefedrec_private",),
    ),
    Table("results/papers/fair.md", "FAIR", reproduction_tables.fair_quality, ("fair_table_goodreads-100",)),
    Table(
        "results/papers/fair.md",
        "FAIR differences",
        reproduction_tables.fair_differences,
        ("fair_table_goodreads-100",),
    ),
    Table(
        "results/papers/fair.md",
        "FAIR without small devices",
        reproduction_tables.fair_loss,
        ("fair_loss_goodreads-100",),
    ),
    Table("results/papers/fair.md", "FAIR by memory", reproduction_tables.fair_ladder, ("fair_ladder_goodreads-100",)),
    Table("results/papers/fair.md", "FAIR ratings", reproduction_tables.fair_ratings, ("fair_ratings_ml-100k",)),
    Table("results/papers/fair.md", "unequal uploads", reproduction_tables.unequal_uploads, ("unequal_attacks",)),
    Table("explanation/attacks/imia.md", "IMIA", reproduction_tables.imia, ("imia",)),
    Table("explanation/canaries.md", "canaries", reproduction_tables.canaries, ("canaries",)),
    Table(
        "results/private_recommender.md",
        "chosen budgets",
        private_tables.chosen_budgets,
        tuple(f"personal_budgets_test_{data}" for data in private_tables.TIERED),
    ),
    Table(
        "results/private_recommender.md",
        "donors",
        private_tables.donors,
        tuple(f"donors_{data}" for data in private_tables.DONATED),
    ),
    Table(
        "results/private_recommender.md",
        "beyond accuracy",
        private_tables.beyond_accuracy,
        tuple(f"private_gram_beyond_{data}" for data in private_tables.BEYOND),
    ),
    Table(
        "results/private_recommender.md",
        "field",
        private_tables.field,
        ("private_gram_table_ml-1m", "private_field_ml-1m"),
    ),
    Table(
        "results/private_recommender.md",
        "targets",
        private_tables.targets,
        (
            "private_gram_table_ml-1m",
            "donors_ml-1m",
            "personal_budgets_test_ml-1m",
            "private_evaluation_ml-1m",
            "floor_test",
            "private_field_ml-1m",
        ),
    ),
    Table("results/private_recommender.md", "tried", private_tables.gram_trials, ("gram_trials",)),
    Table("cli.md", "private evaluations", private_tables.private_evaluations, private_tables.EVALUATED),
    Table("results/private_recommender.md", "forecasts", private_tables.forecasts, ("forecast",)),
    Table("results/private_recommender.md", "forecast errors", private_tables.forecast_errors, ("forecast",)),
    Table("results/private_recommender.md", "budgets", private_tables.budgets, ("private_gram_table_ml-1m",)),
    Table(
        "results/private_recommender.md",
        "populations",
        private_tables.populations,
        ("private_populations_scaling", "private_populations_refreshes", "references"),
    ),
    Table(
        "results/private_recommender.md",
        "larger populations",
        private_tables.larger_populations,
        ("private_populations_larger", "private_gram_table_ml-1m"),
    ),
    Table("results/private_recommender.md", "refreshes", private_tables.refreshes, ("private_populations_refreshes",)),
    Table(
        "results/private_recommender.md",
        "refreshed quality",
        private_tables.refreshed_quality,
        ("private_populations_refreshes",),
    ),
    Table(
        "results/private_recommender.md",
        "running totals",
        private_tables.running_totals,
        ("refreshes_test_ml-1m", "refreshes_test_ml-100k"),
    ),
    Table("results/private_recommender.md", "cohorts", private_tables.cohorts, ("private_populations_cohorts",)),
    Table(
        "results/private_recommender.md", "masked sums", private_tables.masked_sums, ("private_populations_devices",)
    ),
    Table("results/private_recommender.md", "dropouts", private_tables.dropouts, ("private_populations_wire",)),
    Table("results/private_recommender.md", "catalogues", private_tables.catalogues, CATALOGUES),
    Table("results/private_recommender.md", "floors", private_tables.floors, ("floor_test", "floor_valid")),
    Table(
        "results/bridge.md",
        "correlated rounds",
        private_tables.correlated_rounds,
        ("correlated_rounds_bounds", "correlated_rounds_runs"),
    ),
    Table("results/bridge.md", "bridge", private_tables.bridge, BRIDGED),
    Table("results/bridge.md", "bridge differences", private_tables.bridge_differences, BRIDGED),
    Table(
        "explanation/empirical_epsilon.md",
        "two inputs",
        partial(doc_tables.empirical_epsilon, "two inputs"),
        ("empirical_epsilon",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "one run",
        partial(doc_tables.empirical_epsilon, "one run"),
        ("empirical_epsilon",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "one-shot canaries",
        partial(doc_tables.empirical_epsilon, "one-shot canaries"),
        ("empirical_epsilon",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "scatter",
        partial(doc_tables.empirical_epsilon, "scatter"),
        ("empirical_epsilon",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "coverage",
        partial(doc_tables.empirical_epsilon, "coverage"),
        ("empirical_epsilon",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "third party",
        third_party_tables.third_party,
        ("third_party",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "historical faults",
        third_party_tables.historical_faults,
        ("historical_faults",),
    ),
    Table(
        "explanation/empirical_epsilon.md",
        "false alarms",
        third_party_tables.false_alarms,
        ("mechanism_false_alarms",),
    ),
    Table("guides/choosing_a_clip_norm.md", "clip norms", clip_norm_tables.measured, ("clip_norms",)),
    Table("guides/choosing_a_clip_norm.md", "default clip norms", clip_norm_tables.defaults, ("clip_norms",)),
)


def written(page: str, text: str) -> str:
    """A page with all its tables as the files have them."""
    for table in TABLES:
        if table.page == page:
            text = replaced(text, table.name, table.written())
    return text


def write(*, charts: bool = False) -> None:
    """Write every page, and the charts of the suite where they are asked for."""
    if charts:
        CHARTS.mkdir(parents=True, exist_ok=True)
        list(suite(CHARTS))
    PICTURE.write_text(five_tables.picture(), encoding="utf-8")
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
