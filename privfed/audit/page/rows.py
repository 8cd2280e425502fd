"""The tables of the page, line by line, with their small print.

Simple tables are lists of cells, each a value with notes below it; the tables of utility and of attacks keep their
numbers and are laid out by their templates.
"""

from typing import Any

from attacks.empirical import tpr_ceiling
from privfed.audit.page.charts import colour_of
from privfed.audit.report import formatting
from privfed.audit.report.ceilings import too_weak_to_test
from privfed.audit.report.headline import inclusion_attack, main_utility, metrics_on_test, protected_cells
from privfed.audit.report.records import (
    POPULARITY,
    AttackCell,
    AuditReport,
    Cell,
    EmpiricalRow,
    GuaranteeRow,
    Interval,
    UtilityCell,
)
from privfed.audit.report.support_sentences import columns as leak_columns
from privfed.setup.controls import CONTROLS as CONTROL_NAMES

Line = dict[str, Any]
CellText = tuple[str, ...]
"""A value, and the notes below it."""

LISTS = ("Catalogue shown", "Popularity lift")
COST = ("Sent", "Received", "Training", "Privacy layer", "Attacks", "Processor", "Memory", "Uploads clipped")
MEASURED = ("What", "How", "Measured", "Claimed", "Verdict")
INCLUSION = ("Attack", "Sees", "AUC", "Highest possible", "TPR at 1 %", "Highest there", "Verdict")
CONTROLS = ("Control", "Metric", "Of the control", "Gain of the method")
LINKS = ("Seen", "Named again", "By chance", "AUC", "Uploads compared by")
ATTRIBUTES = ("Attribute", "Guessed from", "AUC", "Balanced accuracy", "Largest class")


def title(report: AuditReport, cell: Cell) -> Line:
    """What every line starts with."""
    method = formatting.method_name(cell.method)
    is_baseline = cell.method == POPULARITY
    return {
        "name": f"{method} (no personal model)" if is_baseline else f"{method}, {formatting.setting(cell.setting)}",
        "colour": None if is_baseline else colour_of(report, cell),
        "baseline": is_baseline,
    }


def utility(report: AuditReport) -> list[Line]:
    """Every test metric of every cell, a line for each state of the model."""
    rows = []
    for cell in report.aggregates:
        test = [row for row in cell.utility if row.part == "test"]
        for state in dict.fromkeys(row.state for row in test):
            values: dict[tuple[str, int], UtilityCell] = {(r.name, r.k): r for r in test if r.state == state}
            rows.append(
                title(report, cell)
                | {
                    "state": "one list for all"
                    if cell.method == POPULARITY
                    else formatting.named(formatting.STATES, state),
                    "values": [values.get(metric) for metric in metrics_on_test(report)],
                    "lists": _lists(cell),
                }
            )
    return rows


def _lists(cell: Cell) -> tuple[CellText, CellText]:
    """What is recommended, whatever its accuracy, under `LISTS`."""
    if cell.lists is None:
        return ("not measured",), ("not measured",)
    lift = cell.lists.popularity_lift
    shown: CellText = ("n/a",) if lift is None else (f"{lift.value:.2f}", f"{lift.lo:.2f} to {lift.hi:.2f}")
    return (formatting.share(cell.lists.coverage),), shown


def controls(report: AuditReport) -> list[Line]:
    """Every control of every cell, and what the method gains over it."""
    return [
        title(report, cell)
        | {
            "cells": [
                (formatting.capital(CONTROL_NAMES[row.control]),),
                (formatting.metric(row.name, row.k),),
                (formatting.share(row.users.value), _range(row.users)),
                (formatting.signed(row.gain.value), _signed_range(row.gain)),
            ]
        }
        for cell in protected_cells(report)
        for row in cell.controls
    ]


def chosen_attack(report: AuditReport, cell: Cell, row: AttackCell) -> Line:
    """One attack on one cell, as it was measured on the users who did not choose it."""
    line = attack(report, cell, row)
    if row.sample_split is None:
        return line
    return line | {"value": row.sample_split.auc.value, "users": row.sample_split.auc, "gain": row.sample_split.gain}


def attack(report: AuditReport, cell: Cell, row: AttackCell) -> Line:
    """One attack on one cell, over all audited users."""
    return title(report, cell) | {
        "baseline": row.attack == POPULARITY,
        "attack": formatting.capital(row.attack),
        "rounds": formatting.rounds(row.rounds),
        "tap": formatting.TAPS[row.tap],
        "game": row.game,
        "scope": row.scope,
        "auc": row.auc,
        "value": row.auc.mean,
        "users": row.users,
        "tpr": formatting.share(row.tpr_at_1pct.mean) if row.tpr_at_1pct else "n/a",
        "gain": row.gain,
    }


def explained(report: AuditReport) -> list[tuple[str, str]]:
    """What each attack does, by its name."""
    explanations: dict[str, str] = {}
    for run in report.runs:
        for row in run.attacks:
            knows = f" Knows beforehand: {formatting.listed(row.knowledge)}." if row.knowledge else ""
            explanations.setdefault(
                row.attack, f"{row.explains} Seen by the {row.adversary}.{knows} {row.note}".strip()
            )
    return [(formatting.capital(name), text) for name, text in explanations.items()]


def leaks(report: AuditReport) -> list[Line]:
    """Utility and what the rows sent give away, for every cell that sends rows or has public histories."""
    rows = []
    for cell in report.aggregates:
        if cell.support is not None:
            best = main_utility(cell)
            quality = ("not measured", "")
            if best is not None:
                quality = formatting.share(best.seeds.mean), formatting.metric(best.name, best.k)
            columns = {"Quality": quality} | leak_columns(cell.support, cell.attacks)
            rows.append(title(report, cell) | {"heads": list(columns), "cells": list(columns.values())})
    return rows


def measured(report: AuditReport) -> list[Line]:
    """Every measured epsilon beside its claim."""
    return [
        title(report, cell)
        | {
            "cells": [
                (formatting.capital(row.audited), formatting.compared(row.neighbours, row.unit)),
                (formatting.capital(row.estimator), f"{row.kind}, seen at: {formatting.TAPS[row.tap]}"),
                (_at_least(row), *_beside(row)),
                (formatting.epsilon(row.accounted),),
                (_verdict(row, cell.guarantee),),
            ]
        }
        for cell in protected_cells(report)
        for row in cell.empirical
    ]


def _at_least(row: EmpiricalRow) -> str:
    return ("≥ " if row.kind != "estimate" else "") + formatting.epsilon(row.value)


def _beside(row: EmpiricalRow) -> CellText:
    notes = [f"{100 * row.confidence:g} %, {formatting.count(row.trials, 'trial')}"]
    if row.lo is not None and row.hi is not None:
        notes.insert(0, f"{formatting.epsilon(row.lo)} – {formatting.epsilon(row.hi)}")  # noqa: RUF001 - a range
    if row.placebo is not None:
        notes.append(f"placebo floor {formatting.epsilon(row.placebo)}")
    if row.largest_deniable is not None:
        notes.append(f"cannot deny claims above {formatting.epsilon(row.largest_deniable)}")
    if row.worst_case:
        notes.append(f"worst case found: {row.worst_case}")
    return tuple(notes)


def _verdict(row: EmpiricalRow, claim: GuaranteeRow) -> str:
    if row.accounted == float("inf"):
        return "outside the claim" if claim.finite else "nothing is claimed"
    if row.value <= row.accounted:
        return "within the claim"
    return "contradicts the claim" if row.kind == "lower bound" else "above the claim; proves nothing"


def inclusion(report: AuditReport) -> list[Line]:
    """The strongest attack of each cell where inclusion bits decided, beside what its claim allows."""
    rows = []
    for cell in protected_cells(report):
        best = inclusion_attack(cell.attacks)
        if best is None or best.sample_split is None:
            continue
        rate = best.tpr_at_1pct
        highest_auc, highest_rate, verdict = "1.000", "1.000", "nothing is claimed"
        if best.ceiling is not None:
            highest_auc = formatting.share(best.ceiling.auc)
            highest_rate = formatting.share(tpr_ceiling(0.01, best.ceiling.epsilon, best.ceiling.delta))
            verdict = "beats the ceiling" if best.ceiling.beaten else "below the ceiling"
            if too_weak_to_test(best.ceiling):
                verdict = "too weak to be tested"
        elif cell.guarantee.finite:
            verdict = "outside the claim"
        rows.append(
            title(report, cell)
            | {
                "cells": [
                    (formatting.capital(best.attack), formatting.rounds(best.rounds)),
                    (formatting.TAPS[best.tap],),
                    (formatting.share(best.sample_split.auc.value), _range(best.sample_split.auc)),
                    (highest_auc,),
                    (formatting.share(rate.mean) if rate else "n/a",),
                    (highest_rate,),
                    (verdict,),
                ]
            }
        )
    return rows


def attributes(report: AuditReport) -> list[Line]:
    """Every guess at an attribute; true histories, which no adversary sees, are a baseline and stand once."""
    rows, baselines = [], set[tuple[str, str]]()
    for cell in protected_cells(report):
        for row in cell.attributes:
            if row.tap is None and (row.attribute, row.evidence) in baselines:
                continue
            start = title(report, cell)
            if row.tap is None:
                baselines.add((row.attribute, row.evidence))
                start |= {"name": "Baseline, seen by nobody", "colour": None, "baseline": True}
            rows.append(
                start
                | {
                    "cells": [
                        (formatting.capital(row.attribute), row.classes),
                        (formatting.capital(row.evidence), formatting.TAPS[row.tap] if row.tap else ""),
                        (formatting.share(row.auc.value), _range(row.auc)),
                        (formatting.share(row.balanced_accuracy.value), _range(row.balanced_accuracy)),
                        (formatting.share(row.majority), formatting.count(row.n_users, "person", "people")),
                    ]
                }
            )
    return sorted(rows, key=lambda line: (line["cells"][0], not line["baseline"]))


def links(report: AuditReport) -> list[Line]:
    """How well people are found again between two rounds, for every cell whose uploads are seen one by one."""
    return [
        title(report, cell)
        | {
            "cells": [
                (formatting.capital(formatting.TAPS[row.tap]), formatting.rounds(row.rounds)),
                (f"{row.accuracy.value:.0%}", f"{row.accuracy.lo:.0%} – {row.accuracy.hi:.0%}"),  # noqa: RUF001 - a range
                (f"{row.chance:.0%}", formatting.count(row.n_users, "person", "people")),
                (formatting.share(row.auc.value), _range(row.auc)),
                (formatting.capital(row.attack),),
            ]
        }
        for cell in protected_cells(report)
        for row in cell.links
    ]


def costs(report: AuditReport) -> list[Line]:
    """Bytes, seconds and memory of every cell."""
    rows = []
    for cell in report.aggregates:
        cost = cell.cost
        clipped = "none" if cost.clipped_fraction is None else f"{cost.clipped_fraction:.0%}"
        values = [
            formatting.volume(cost.up_bytes_per_client_round),
            formatting.volume(cost.down_bytes_per_client_round),
            *(formatting.seconds(s) for s in (cost.train_s, cost.privacy_s, cost.attack_s, cost.cpu_s)),
            formatting.volume(cost.peak_rss_bytes),
            clipped,
        ]
        rows.append(title(report, cell) | {"cells": [(value,) for value in values]})
    return rows


def ledger(report: AuditReport) -> list[Line]:
    """The events that each epsilon was computed from."""
    return [
        title(report, cell) | {"cells": [(line.event,), (formatting.count(line.times, "time"),)]}
        for cell in protected_cells(report)
        for line in cell.ledger
    ]


def provenance(report: AuditReport) -> list[tuple[str, str]]:
    """What it takes to repeat the audit, in short."""
    runs = [run for run in report.runs if run.method != POPULARITY]
    card = report.dataset
    return [
        ("Data set", f"{card.get('name')}" + (f", sha256 {card['sha256']}" if card.get("sha256") else "")),
        ("Seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))),
        ("Rounds", ", ".join(str(n) for n in sorted({run.rounds for run in runs}))),
        (
            "Clients per round",
            ", ".join(dict.fromkeys(f"{run.clients_per_round:g} ({run.sampling})" for run in runs)),
        ),
        ("Configuration", f"sha256 {report.config_sha256}"),
        ("privfed", report.privfed_version),
    ]


def _signed_range(interval: Interval) -> str:
    return f"{formatting.signed(interval.lo)} to {formatting.signed(interval.hi)}"


def _range(interval: Interval) -> str:
    return f"{formatting.share(interval.lo)} – {formatting.share(interval.hi)}"  # noqa: RUF001 - a range
