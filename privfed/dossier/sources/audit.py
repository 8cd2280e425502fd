"""One setting of an audit: a method behind a plan, over all its seeds."""

import math
from collections.abc import Mapping
from pathlib import Path

from attacks.evaluation import ALL_ITEMS
from privfed.audit.publish import PAGE
from privfed.audit.report import formatting
from privfed.audit.report.conclusions import conclude
from privfed.audit.report.headline import (
    attribute_guess,
    chosen,
    in_main_game,
    inclusion_attack,
    popularity_utility,
    protected_cells,
    sliced_attack,
)
from privfed.audit.report.names import short_names
from privfed.audit.report.records import POPULARITY, AttackCell, AttributeRow, AuditReport, Cell, Check, Run
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import (
    MU_OF_NOTHING,
    MU_OF_OTHERS,
    PLACES,
    Attack,
    Datum,
    Evidence,
    GroupValue,
    Utility,
    cited,
)
from privfed.dossier.reading import FileRead, read, read_if_there
from privfed.experiment.record_file import RECORD

REPORT = "report.json"


def audit_evidence(folder: Path, setting: str | None) -> Evidence:
    """What an audit says of one of its settings.

    Args:
        folder: of a finished audit.
        setting: "method:slug of the setting"; None where the audit has a single one.

    Raises:
        DossierError: the report is damaged, or the setting is not one of its.
    """
    file = read(folder, REPORT)
    report = conclude(file.record(AuditReport))
    cells = {f"{cell.method}:{cell.setting.slug}": cell for cell in protected_cells(report)}
    if setting is None and len(cells) != 1:
        raise DossierError(
            f"{folder} audits {len(cells)} settings and a dossier is about one: choose with --setting among "
            f"{', '.join(cells)}"
        )
    name = setting or next(iter(cells))
    if name not in cells:
        raise DossierError(f"{folder} has no setting {name[:100]!r}: choose with --setting among {', '.join(cells)}")
    pages = {one.name: one for key in (PAGE, RECORD) if (one := read_if_there(folder, key)) is not None}
    return _evidence(folder, report, cells[name], file, pages)


def _evidence(folder: Path, report: AuditReport, cell: Cell, file: FileRead, pages: dict[str, FileRead]) -> Evidence:
    at = f"aggregates[{report.aggregates.index(cell)}]"
    runs = [
        (number, run)
        for number, run in enumerate(report.runs)
        if (run.method, run.setting.slug) == (cell.method, cell.setting.slug)
    ]
    squares = [line.squared_mu for line in cell.ledger]
    seeds = ", ".join(str(run.seed) for _, run in runs)
    mu = math.sqrt(math.fsum(square for square in squares if square is not None))
    gaussian = cell.guarantee.finite and bool(squares) and all(square is not None for square in squares)
    units = {row.attack: row.unit for _, run in runs for row in run.attacks}
    return Evidence(
        kind="audit",
        folder=folder,
        name=f"{short_names(report)[cell.method, cell.setting.slug]} on {report.dataset.get('name')}",
        files={file.name: file} | pages,
        version=Datum(report.privfed_version, cited(file, "privfed_version")),
        when=Datum(report.created[:10], cited(file, "created")),
        method=Datum(cell.method, cited(file, f"{at}.method")),
        plan=Datum(formatting.setting(cell.setting), cited(file, f"{at}.setting.name")),
        settings=Datum(cell.plan, cited(file, f"{at}.plan")),
        data=Datum(report.dataset, cited(file, "dataset")),
        split=Datum(str(report.dataset.get("split", "not recorded")), cited(file, "dataset.split")),
        protocol=Datum(report.protocol.sentence, cited(file, "protocol.sentence")),
        guarantee=Datum(cell.guarantee, cited(file, f"{at}.guarantee")),
        mu=Datum(mu, cited(file, f"{at}.ledger")) if gaussian else None,
        mu_missing=""
        if gaussian
        else MU_OF_NOTHING
        if not cell.guarantee.finite
        else f"{MU_OF_OTHERS}, or the report is older than this record",
        releases=Datum(tuple(f"{line.times} x {line.event}" for line in cell.ledger), cited(file, f"{at}.ledger")),
        randomness=Datum(
            f"Noise, sampling and first parameters of these simulations follow from the seeds {seeds}, addressed by "
            "user and round",
            cited(file, "runs[].seed"),
        ),
        machine=Datum(report.environment, cited(file, "environment")),
        utility=_utility(report, cell, file, at),
        leak_groups=_slices(cell, file, at),
        strongest=_headline(cell, file, at, units),
        chosen_at=_chosen(cell, file, at, units),
        attacks=tuple(
            Datum(_attack(row, units), cited(file, f"{at}.attacks[{number}]"))
            for number, row in enumerate(cell.attacks)
            if row.attack != POPULARITY and row.tap != "raw" and row.scope.startswith(ALL_ITEMS)
        ),
        inclusion=_measured(inclusion_attack(cell.attacks), cell, file, at, units),
        empirical=tuple(
            Datum(row, cited(file, f"{at}.empirical[{number}]"))
            for number, row in enumerate(cell.empirical)
            if row.tap != "raw"
        ),
        attributes=_attributes(cell, file, at),
        links=tuple(Datum(row, cited(file, f"{at}.links[{number}]")) for number, row in enumerate(cell.links)),
        observers=tuple(
            Datum(row, cited(file, f"{at}.observers[{number}]")) for number, row in enumerate(cell.observers)
        ),
        support=None if cell.support is None else Datum(cell.support, cited(file, f"{at}.support")),
        checks=_checks(runs, file),
        contradictions=tuple(
            Datum(one.text, cited(file, "contradictions, worked out anew"))
            for one in report.contradictions
            if one.method in (None, cell.method) and one.setting in (None, cell.setting.slug)
        ),
        not_run=tuple(Datum(one, cited(file, f"not_run[{number}]")) for number, one in enumerate(report.not_run)),
        upload_bytes=Datum(cell.cost.up_bytes_per_client_round, cited(file, f"{at}.cost.up_bytes_per_client_round")),
        clipped=None
        if cell.cost.clipped_fraction is None
        else Datum(cell.cost.clipped_fraction, cited(file, f"{at}.cost.clipped_fraction")),
        seeds=Datum(cell.n_seeds, cited(file, f"{at}.n_seeds")),
    )


def _utility(report: AuditReport, cell: Cell, file: FileRead, at: str) -> tuple[Datum[Utility], ...]:
    found = []
    for number, row in enumerate(cell.utility):
        if row.part == "test":
            popular = popularity_utility(report, row)
            utility = Utility(
                formatting.metric(row.name, row.k), row.users, None if popular is None else popular.users, row.gain
            )
            found.append(Datum(utility, cited(file, f"{at}.utility[{number}]")))
    return tuple(found)


def _headline(cell: Cell, file: FileRead, at: str, units: Mapping[str, str]) -> Datum[Attack] | None:
    one = cell.headline
    if one is None:
        return None
    rounds, unit = len(one.rounds), units.get(one.attack, "interaction")
    attack = Attack(one.attack, one.tap, one.game, one.auc, one.popularity_auc, one.excess, rounds, unit)
    return Datum(attack, cited(file, f"{at}.headline"))


def _attack(row: AttackCell, units: Mapping[str, str]) -> Attack:
    rounds, unit = len(row.rounds), units.get(row.attack, "interaction")
    return Attack(row.attack, row.tap, row.game, row.users, row.popularity_auc, row.gain, rounds, unit)


def _chosen(cell: Cell, file: FileRead, at: str, units: Mapping[str, str]) -> dict[str, Datum[Attack]]:
    """The strongest attack at every place, chosen on one half of the people and measured on the other."""
    found = {
        place: _measured(
            chosen(in_main_game([row for row in cell.attacks if is_there(row.tap, len(row.rounds))])),
            cell, file, at, units,
        )
        for place, is_there in PLACES.items()
    }  # fmt: skip
    return {place: one for place, one in found.items() if one is not None}


def _measured(
    row: AttackCell | None, cell: Cell, file: FileRead, at: str, units: Mapping[str, str]
) -> Datum[Attack] | None:
    if row is None or row.sample_split is None:
        return None
    half, unit = row.sample_split, units.get(row.attack, "interaction")
    attack = Attack(row.attack, row.tap, row.game, half.auc, half.popularity_auc, half.gain, len(row.rounds), unit)
    return Datum(attack, cited(file, f"{at}.attacks[{cell.attacks.index(row)}].sample_split"))


def _attributes(cell: Cell, file: FileRead, at: str) -> tuple[Datum[AttributeRow], ...]:
    """The best guess at each attribute, its interval as wide as it takes to hold for every kind of evidence at once."""
    found = []
    for attribute in dict.fromkeys(row.attribute for row in cell.attributes):
        best, _ = attribute_guess(cell, attribute)
        if best is not None:
            same = [(row.attribute, row.evidence, row.tap) for row in cell.attributes]
            number = same.index((best.attribute, best.evidence, best.tap))
            found.append(Datum(best, cited(file, f"{at}.attributes[{number}], widened")))
    return tuple(found)


def _slices(cell: Cell, file: FileRead, at: str) -> Datum[tuple[GroupValue, ...]] | None:
    row = sliced_attack(cell)
    groups = () if row is None else tuple(one for one in row.slices if one.by == "activity")
    if row is None or not groups:
        return None
    values = tuple(GroupValue(f"tenth {one.group + 1} by activity", one.auc) for one in groups)
    return Datum(values, cited(file, f"{at}.attacks[{cell.attacks.index(row)}].slices"))


def _checks(runs: list[tuple[int, Run]], file: FileRead) -> tuple[Datum[Check], ...]:
    """Each check once: of the first seed, or of the first that it fails for."""
    found: dict[str, Datum[Check]] = {}
    for number, run in runs:
        for place, check in enumerate(run.checks):
            if check.name not in found or (found[check.name].value.passed and not check.passed):
                found[check.name] = Datum(check, cited(file, f"runs[{number}].checks[{place}]"))
    return tuple(found.values())
