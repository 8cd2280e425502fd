"""The folder of a run: its claim is believed only as far as its ledger bears it out."""

import math
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from attacks.evaluation import ALL_ITEMS
from privfed.audit.report import formatting
from privfed.audit.report.headline import PROTECTED_TAPS, chosen, in_main_game, inclusion_attack
from privfed.audit.report.records import POPULARITY, AttackRow, GuaranteeRow, Interval, LinkRow, SupportLeak
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import (
    MU_OF_NOTHING,
    MU_OF_OTHERS,
    PLACES,
    Attack,
    Datum,
    Evidence,
    GroupValue,
    LedgerHead,
    Utility,
    cited,
)
from privfed.dossier.ledgers import read_ledger
from privfed.dossier.reading import FileRead, read, read_if_there
from privfed.evaluation import Metric
from privfed.experiment.folder import (
    CHARGES,
    EVALUATION,
    FORMAT,
    GUARANTEE,
    METRICS,
    EvaluationRecord,
    FolderRecord,
)
from privfed.experiment.record_file import RECORD
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.privacy.gaussian_dp import GaussianDp

ATTACKS = "attacks.json"
_ROUNDING = 1e-3
_SEEDED = (
    "Noise, sampling and first parameters of this simulation follow from the seed {seed}, addressed by user and round"
)


class AttackFile(BaseModel):
    """What `privfed attack` writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan: str
    attacks: list[AttackRow]
    links: list[LinkRow] = []
    support: SupportLeak | None = None


def run_evidence(folder: Path) -> Evidence:
    """What the folder of a finished run says.

    Raises:
        DossierError: it is damaged, not finished, or its guarantee is not what its ledger bears out.
    """
    record_file = read(folder, RECORD)
    record = record_file.record(FolderRecord)
    if record.format != FORMAT:
        raise DossierError(f"{folder} was written in format {record.format}, and {FORMAT} is read: use that version")
    if not (folder / GUARANTEE).exists():
        raise DossierError(f"the run in {folder} is not finished: let 'privfed run --out {folder} --resume' go on")
    files = {file.name: file for name in (GUARANTEE, CHARGES) for file in [read(folder, name)]}
    files |= {
        file.name: file for name in (METRICS, EVALUATION, ATTACKS) if (file := read_if_there(folder, name)) is not None
    }
    ledger = read_ledger(files[CHARGES])
    claim = files[GUARANTEE].record(GuaranteeRow)
    require_borne_out(claim, ledger, str(folder / GUARANTEE))
    try:
        plan = PrivacyPlan.from_dict(record.config.get("privacy") or {})  # type: ignore[arg-type]
    except (PlanError, TypeError) as error:
        raise DossierError(f"{RECORD} of {folder} holds no privacy plan: {error}") from error
    if plan != ledger.plan:
        raise DossierError(f"{CHARGES} of {folder} is of another plan than {RECORD}: the two are not of one run")
    _require_own(record, ledger, folder)
    evaluation, attacks = files.get(EVALUATION), files.get(ATTACKS)
    measured = None if evaluation is None else evaluation.record(EvaluationRecord)
    found = None if attacks is None else attacks.record(AttackFile)
    if measured is not None and (measured.run, measured.data.get("sha256")) != (ledger.run, record.data_sha256):
        raise DossierError(f"{EVALUATION} of {folder} is of another run or other data: bring back the run's own")
    if found is not None and found.plan != plan.name:
        raise DossierError(f"{ATTACKS} of {folder} is about another plan: let 'privfed attack {folder}' write it again")
    method = record.config.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    gaussian = GaussianDp.from_composition(ledger.composition())
    source = cited(files[CHARGES], "entries", copied=False)
    return Evidence(
        kind="run",
        folder=folder,
        name=f"{name} on {record.config.get('data')}",
        files={RECORD: record_file} | {key: file for key, file in files.items() if key != CHARGES},
        version=Datum(record.privfed, cited(record_file, "privfed")),
        when=Datum(date_of(files[CHARGES]), cited(files[CHARGES], "time of the last change", copied=False)),
        method=Datum(str(name), cited(record_file, "config.method.name")),
        plan=Datum(plan_words(plan), cited(record_file, "config.privacy")),
        settings=Datum(plan.to_dict(), cited(record_file, "config.privacy")),
        data=None if measured is None or evaluation is None else Datum(measured.data, cited(evaluation, "data")),
        split=None if measured is None or evaluation is None else Datum(measured.split, cited(evaluation, "split")),
        protocol=None
        if measured is None or evaluation is None
        else Datum(measured.protocol, cited(evaluation, "protocol")),
        guarantee=Datum(claim, cited(files[GUARANTEE], "epsilon, delta, unit, neighbours, trust")),
        mu=None if gaussian is None else Datum(gaussian.mu, source),
        mu_missing="" if gaussian else MU_OF_NOTHING if not claim.finite else MU_OF_OTHERS,
        ledger=Datum(LedgerHead(ledger.head, len(ledger.entries), ledger.population), source),
        releases=Datum(releases_of(ledger), source),
        randomness=Datum(_SEEDED.format(seed=record.config.get("seed")), cited(record_file, "config.seed")),
        utility=() if measured is None or evaluation is None else _utility(measured, evaluation),
        utility_groups=None if measured is None or evaluation is None else _groups(measured, evaluation),
        strongest=None if found is None or attacks is None else strongest_in(found.attacks, attacks),
        chosen_at={} if found is None or attacks is None else chosen_in(found.attacks, attacks),
        attacks=() if found is None or attacks is None else attacks_in(found.attacks, attacks),
        inclusion=None if found is None or attacks is None else strongest_in(found.attacks, attacks, randomised=True),
        links=()
        if found is None or attacks is None
        else tuple(Datum(row, cited(attacks, f"links[{number}]")) for number, row in enumerate(found.links)),
        support=None
        if found is None or attacks is None or found.support is None
        else Datum(found.support, cited(attacks, "support")),
        clipped=None
        if measured is None or evaluation is None or measured.clipped_fraction is None
        else Datum(measured.clipped_fraction, cited(evaluation, "clipped_fraction")),
        seeds=Datum(1, cited(record_file, "config.seed")),
    )


def plan_words(plan: PrivacyPlan) -> str:
    """A plan by its name; "none" is called what it is."""
    return "no privacy mechanism" if plan.name == "none" else plan.name


def _require_own(record: FolderRecord, ledger: Ledger, folder: Path) -> None:
    """Return quietly where a ledger is of the run that a record describes, as far as its method is installed here.

    Raises:
        DossierError: it is of another run, of which less may have been released.
    """
    try:
        own = record.experiment().digest()
    except ValueError:
        return
    if ledger.run != own:
        raise DossierError(f"{CHARGES} of {folder} belongs to another run than {RECORD}: bring back the run's own")


def require_borne_out(claim: GuaranteeRow, ledger: Ledger, where: str) -> None:
    """Return quietly where a claim is no better than what the ledger bears out.

    Raises:
        DossierError: it is.
    """
    own = ledger.guarantee()
    same = (claim.delta, claim.unit, claim.neighbours, claim.trust) == (
        own.delta,
        own.unit,
        own.neighbours,
        own.trust,
    )
    bounded = claim.finite and math.isfinite(own.epsilon)
    if same and (not claim.finite or (bounded and claim.epsilon >= own.epsilon * (1 - _ROUNDING))):
        return
    raise DossierError(
        f"{where} claims epsilon = {claim.epsilon:.4g} at delta = {claim.delta:g} for one {claim.unit} and its ledger "
        f"bears out {own.epsilon:.4g} at {own.delta:g} for one {own.unit}: no dossier says more than the ledger"
    )


def date_of(file: FileRead) -> str:
    """Day on which a file was last written."""
    return datetime.fromtimestamp(file.modified, UTC).date().isoformat()


def attacks_in(rows: list[AttackRow], file: FileRead) -> tuple[Datum[Attack], ...]:
    """Every attack on all items beyond the device itself, over all audited people."""
    return tuple(
        Datum(
            Attack(row.attack, row.tap, row.game, row.auc, row.popularity_auc, row.gain, len(row.rounds), row.unit),
            cited(file, f"attacks[{number}]"),
        )
        for number, row in enumerate(rows)
        if row.attack != POPULARITY and row.tap != "raw" and row.scope.startswith(ALL_ITEMS)
    )


def strongest_in(rows: list[AttackRow], file: FileRead, *, randomised: bool = False) -> Datum[Attack] | None:
    """The attack behind the mechanism that was strongest on one half of the people, as the other half measures it."""
    protected = [row for row in rows if row.tap in PROTECTED_TAPS]
    return _measured(inclusion_attack(protected) if randomised else chosen(in_main_game(protected)), rows, file)


def chosen_in(rows: list[AttackRow], file: FileRead) -> dict[str, Datum[Attack]]:
    """The same for every place."""
    found = {
        place: _measured(chosen(in_main_game([row for row in rows if is_there(row.tap, len(row.rounds))])), rows, file)
        for place, is_there in PLACES.items()
    }
    return {place: one for place, one in found.items() if one is not None}


def _measured(best: AttackRow | None, rows: list[AttackRow], file: FileRead) -> Datum[Attack] | None:
    if best is None or best.sample_split is None:
        return None
    half = best.sample_split
    attack = Attack(
        best.attack, best.tap, best.game, half.auc, half.popularity_auc, half.gain, len(best.rounds), best.unit
    )
    return Datum(attack, cited(file, f"attacks[{rows.index(best)}].sample_split"))


def releases_of(ledger: Ledger) -> tuple[str, ...]:
    """What was released, a line each, and why nothing bounds it where nothing does."""
    composition = ledger.composition()
    return tuple(f"{release.count} x {release}" for release in composition.releases) + tuple(
        f"no bound: {why}" for why in composition.reasons
    )


def _utility(record: EvaluationRecord, file: FileRead) -> tuple[Datum[Utility], ...]:
    paired = f"ndcg@{min(record.test.protocol.k, default=0)}"
    popular = {} if record.popularity is None else {one.slug: one for one in record.popularity.metrics}
    return tuple(
        Datum(
            Utility(
                formatting.metric(one.name, one.k) if one.k else one.slug.upper(),
                _interval(one),
                _interval(popular[one.slug]) if one.slug in popular else None,
                Interval.model_validate(record.gain.model_dump()) if record.gain and one.slug == paired else None,
                record.test.mu is not None,
            ),
            cited(file, f"test.metrics[{number}]"),
        )
        for number, one in enumerate(record.test.metrics)
    )


def _groups(record: EvaluationRecord, file: FileRead) -> Datum[tuple[GroupValue, ...]] | None:
    beyond = record.test.beyond
    if beyond is None or not beyond.by_activity:
        return None
    values = tuple(
        GroupValue(f"tenth {number} by activity", _interval(one))
        for number, one in enumerate(beyond.by_activity, start=1)
    )
    return Datum(values, cited(file, "test.beyond.by_activity"))


def _interval(metric: Metric) -> Interval:
    return Interval(value=metric.value, lo=metric.lo, hi=metric.hi)
