"""The tables of an audit for papers: as CSV with every number and its interval, and as LaTeX with what is printed.

A column holds one kind of thing. In CSV an interval takes three columns ("x", "x lo", "x hi"), infinity is "inf", and
what was not measured is empty. In LaTeX an interval is one cell.
"""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from privfed.audit.report import formatting
from privfed.audit.report.headline import PROTECTED_TAPS, inclusion_attack, metrics_on_test, protected_cells
from privfed.audit.report.latex import booktabs
from privfed.audit.report.records import SELECTION, AttackCell, AuditReport, Cell, Interval, Spread
from privfed.evaluation import UNCOUNTED

Value = str | float | int | bool | Interval | None
Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table.

    Attributes:
        slug: Names its files.
        caption: A sentence for LaTeX.
        rows: Column -> value; every row has the same columns in the same order.
        texts: Leading columns of words.
        printed: Columns of the LaTeX table; every one where empty.
    """

    slug: str
    caption: str
    rows: list[Row]
    texts: int
    printed: tuple[str, ...] = ()

    def as_csv(self) -> str:
        """Every column of every row."""
        out = io.StringIO()
        flat = [dict(_flat(row)) for row in self.rows]
        writer = csv.DictWriter(out, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return out.getvalue()

    def as_latex(self) -> str:
        """The printed columns."""
        names = self.printed or tuple(self.rows[0])
        lines = [[_printed(row[name]) for name in names] for row in self.rows]
        heads = [formatting.capital(name) for name in names]
        return booktabs(heads, lines, texts=self.texts, caption=self.caption, label=self.slug)


def paper_tables(report: AuditReport) -> list[PaperTable]:
    """Every table that has a row."""
    tables = [
        _utility(report),
        _guarantees(report),
        _attacks(report, "attacks", strongest=True),
        _attacks(report, "attacks_all", strongest=False),
        _coin(report),
        _measured(report),
        _slices(report),
        _attributes(report),
        _cost(report),
    ]
    return [table for table in tables if table.rows]


def write_tables(report: AuditReport, folder: Path) -> list[Path]:
    """Write every table as CSV and as LaTeX; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in paper_tables(report):
        for suffix, text in ((".csv", table.as_csv()), (".tex", table.as_latex())):
            path = folder / f"{table.slug}{suffix}"
            path.write_text(text, encoding="utf-8", newline="\n")
            paths.append(path)
    return paths


def _about(cell: Cell) -> Row:
    return {"method": formatting.method_name(cell.method), "setting": formatting.setting(cell.setting)}


def _utility(report: AuditReport) -> PaperTable:
    rows = list[Row]()
    for cell in report.aggregates:
        test = [row for row in cell.utility if row.part == "test"]
        for state in dict.fromkeys(row.state for row in test):
            line = _about(cell) | {"state": state, "seeds": cell.n_seeds}
            for name, row in ((formatting.metric(row.name, row.k), row) for row in test if row.state == state):
                line |= {name: row.users, **_spread(name, row.seeds)}
            rows.append(line)
    metrics = [formatting.metric(name, k) for name, k in metrics_on_test(report)]
    columns = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name) for name in columns} for row in rows]
    caption = f"Ranking quality on the test part with 95 % intervals over people. {UNCOUNTED}"
    return PaperTable("utility", caption, rows, 2, ("method", "setting", *metrics))


def _spread(name: str, seeds: Spread) -> Row:
    return {f"{name} seeds min": seeds.minimum, f"{name} seeds max": seeds.maximum}


def _guarantees(report: AuditReport) -> PaperTable:
    rows = [
        _about(cell)
        | {
            "epsilon": cell.guarantee.epsilon,
            "delta": cell.guarantee.delta,
            "unit": cell.guarantee.unit,
            "neighbours": cell.guarantee.neighbours,
            "trust": cell.guarantee.trust,
            "rounds": cell.guarantee.rounds_counted,
            "accountant": cell.guarantee.accountant,
            "reason if inf": cell.guarantee.reason_if_inf,
        }
        for cell in protected_cells(report)
    ]
    printed = ("method", "setting", "trust", "unit", "epsilon", "delta")
    return PaperTable("guarantees", "What is guaranteed, and whom it asks to trust.", rows, 4, printed)


def _attacks(report: AuditReport, slug: str, *, strongest: bool) -> PaperTable:
    rows = [
        _about(cell) | (_chosen(row) if strongest else _attack(row))
        for cell in protected_cells(report)
        for row in cell.attacks
        if not strongest or (row.chosen and row.tap in PROTECTED_TAPS)
    ]
    which = "The strongest attacks behind each mechanism" if strongest else "Every attack"
    how = f" {SELECTION}" if strongest else ""
    printed = ("method", "setting", "attack", "game", "AUC", "TPR at 1 %", "gain")
    return PaperTable(slug, f"{which}, with 95 % intervals over people.{how}", rows, 4, printed)


def _chosen(row: AttackCell) -> Row:
    """An attack as it was measured on the users who did not choose it."""
    if row.sample_split is None:
        return _attack(row)
    sample_split = row.sample_split
    measured: Row = {"AUC": sample_split.auc, "popularity AUC": sample_split.popularity_auc, "gain": sample_split.gain}
    counts: Row = {"chosen on": sample_split.selection_users, "measured on": sample_split.n_users}
    return _attack(row) | measured | counts


def _attack(row: AttackCell) -> Row:
    return {
        "attack": row.attack,
        "sees": row.tap,
        "game": row.game,
        "scope": row.scope,
        "membership": row.membership,
        "rounds": " ".join(map(str, row.rounds)),
        "AUC": row.users,
        **_spread("AUC", row.auc),
        "TPR at 1 %": None if row.tpr_at_1pct is None else row.tpr_at_1pct.mean,
        "popularity AUC": row.popularity_auc,
        "gain": row.gain,
        "highest AUC": None if row.ceiling is None else row.ceiling.auc,
    }


def _coin(report: AuditReport) -> PaperTable:
    pairs = [(cell, best) for cell in protected_cells(report) if (best := inclusion_attack(cell.attacks)) is not None]
    rows: list[Row] = [
        _about(cell)
        | _chosen(best)
        | {
            "claimed epsilon": best.ceiling.epsilon if best.ceiling else math.inf,
            "claimed delta": best.ceiling.delta if best.ceiling else None,
            "beaten": bool(best.ceiling and best.ceiling.beaten),
        }
        for cell, best in pairs
    ]
    printed = ("method", "setting", "attack", "AUC", "TPR at 1 %", "claimed epsilon", "highest AUC")
    caption = "The game of randomised inclusion: the strongest attack, and what the claim allows for one interaction."
    return PaperTable("inclusion", caption, rows, 3, printed)


def _measured(report: AuditReport) -> PaperTable:
    rows = [
        _about(cell)
        | {
            "audited": row.audited,
            "estimator": row.estimator,
            "kind": row.kind,
            "sees": row.tap,
            "measured": row.value,
            "lo": row.lo,
            "hi": row.hi,
            "confidence": row.confidence,
            "delta": row.delta,
            "unit": row.unit,
            "neighbours": row.neighbours,
            "trials": row.trials,
            "claimed": row.accounted,
            "placebo floor": row.placebo,
            "assumes": row.assumes,
            "consistent": row.consistent,
        }
        for cell in protected_cells(report)
        for row in cell.empirical
    ]
    printed = ("method", "setting", "audited", "kind", "measured", "placebo floor", "claimed")
    return PaperTable("measured", "Epsilon measured, next to epsilon claimed for the same unit.", rows, 4, printed)


def _slices(report: AuditReport) -> PaperTable:
    rows = [
        _about(cell)
        | {
            "attack": row.attack,
            "sees": row.tap,
            "game": row.game,
            "by": part.by,
            "tenth": part.group + 1,
            "from": part.lowest,
            "to": part.highest,
            "users": part.n_users,
            "members": part.n_members,
            "AUC": part.auc,
            "popularity AUC": part.popularity_auc,
        }
        for cell in protected_cells(report)
        for row in cell.attacks
        if row.chosen and row.tap in PROTECTED_TAPS
        for part in row.slices
    ]
    printed = ("method", "setting", "game", "by", "tenth", "AUC", "popularity AUC")
    return PaperTable("tenths", "The strongest attacks by tenths of items and of people.", rows, 4, printed)


def _attributes(report: AuditReport) -> PaperTable:
    rows = [
        _about(cell)
        | {
            "attribute": row.attribute,
            "classes": row.classes,
            "evidence": row.evidence,
            "sees": row.tap or "nobody",
            "AUC": row.auc,
            "balanced accuracy": row.balanced_accuracy,
            "largest class": row.majority,
            "people": row.n_users,
        }
        for cell in protected_cells(report)
        for row in cell.attributes
    ]
    printed = ("method", "setting", "attribute", "evidence", "AUC", "balanced accuracy", "largest class")
    return PaperTable("attributes", "Cross-validated guesses at attributes of people.", rows, 4, printed)


def _cost(report: AuditReport) -> PaperTable:
    rows: list[Row] = [
        _about(cell)
        | {
            "bytes up": cell.cost.up_bytes_per_client_round,
            "bytes down": cell.cost.down_bytes_per_client_round,
            "training s": cell.cost.train_s,
            "privacy s": cell.cost.privacy_s,
            "attacks s": cell.cost.attack_s,
            "processor s": cell.cost.cpu_s,
            "memory bytes": cell.cost.peak_rss_bytes,
            "clipped": cell.cost.clipped_fraction,
        }
        for cell in report.aggregates
    ]
    printed = ("method", "setting", "bytes up", "bytes down", "training s", "privacy s")
    return PaperTable("cost", "Bytes of one client in one round, and seconds of one run.", rows, 2, printed)


def _flat(row: Row) -> Iterator[tuple[str, str | float | int]]:
    """Columns of a CSV row: an interval is three of them."""
    for name, value in row.items():
        if isinstance(value, Interval):
            yield from ((name, value.value), (f"{name} lo", value.lo), (f"{name} hi", value.hi))
        else:
            yield name, "" if value is None else value


def _printed(value: Value) -> str:
    if value is None:
        return "--"
    if isinstance(value, Interval):
        return f"{formatting.share(value.value)} ({formatting.share(value.lo)}–{formatting.share(value.hi)})"  # noqa: RUF001
    if isinstance(value, bool | str):
        return str(value)
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
