"""The audit report as a file format: what an audit measured, claims and does not claim, as JSON.

The schema is the project's own. It names its fields apart from the library's classes, so a file stays
readable when the library moves on, and every file says which `schema_version` it was written in. Numbers that
are not finite are written as the strings "inf", "-inf" and "nan" (JSON has no other way), and read back as
floats; null means "not measured". No user identifier and no single score is ever stored, only summaries.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from privfed.setup.controls import Control

if TYPE_CHECKING:
    from attacks import AttackResult

SCHEMA_VERSION: Literal[3] = 3

POPULARITY = "popularity"
"""Name of the popularity recommender (a method) and of the popularity guesser (an attack)."""

Tap = Literal["raw", "wire", "support", "sum", "model", "scores"]
Record = dict[str, JsonValue]


def _finite_or_word(value: float) -> float | str:
    return value if value - value == 0 else str(value)


Number = Annotated[float, PlainSerializer(_finite_or_word, return_type=float | str, when_used="json")]


class ReportError(ValueError):
    """A report file that cannot be read, or cannot be written, with one sentence that says why."""


class _Row(BaseModel):
    """Base of every record: frozen, and strict about names, so that a misspelt field is found."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Row):
    """A value with the 95 % interval of a bootstrap over users."""

    value: Number
    lo: Number
    hi: Number


class UtilityRow(_Row):
    """One ranking metric, with the part of the data, the round and the model state it belongs to.

    `gain` is the value less that of the popularity recommender, paired by user; null where it was not measured.
    """

    part: Literal["valid", "test"]
    round: int = Field(ge=0)
    state: str
    name: str
    k: int = Field(ge=1)
    value: Number
    lo: Number
    hi: Number
    n_users: int = Field(ge=0)
    gain: Interval | None = None


class ListsRow(_Row):
    """What is recommended, whatever its accuracy.

    Attributes:
        k: Length of the lists.
        coverage: Share of the catalogue that is recommended to somebody.
        popularity_lift: Mean training popularity of what is recommended over that of what is held out; null where
            nobody trained on that.
    """

    k: int
    coverage: Number
    popularity_lift: Interval | None


class ControlRow(_Row):
    """A control beside a run: what it reached, and what the run gains over it.

    Attributes:
        control: Which it is (`privfed.setup.controls`).
        name, k: The metric, on the test part.
        users: Its value for the control.
        gain: The run's value less that of the control, paired by user.
    """

    control: Control
    name: str
    k: int
    users: Interval
    gain: Interval


class SupportClaimRow(_Row):
    """What the rows that a client sends say about one private item, by formula; a bound apart from `epsilon` of a run.

    Attributes:
        padding: What the rows hide among.
        epsilon: For one private item more or less; "inf" where nothing bounds it.
        epsilon_swap: For one private item exchanged for another.
        sentence: The same in words.
    """

    padding: str
    epsilon: Number
    epsilon_swap: Number
    sentence: str


class TierClaimRow(_Row):
    """What is guaranteed to people who chose the same budget; the chosen epsilon is what theirs may not exceed."""

    name: str
    epsilon: Number
    chosen: Number
    weight: Number
    share: Number
    sentence: str


class GuaranteeRow(_Row):
    """What is guaranteed, against whom, and from which assumptions; `epsilon` is "inf" where nothing is.

    `support` is what padding claims of the rows sent; null where no plan shows rows by themselves. `tiers` is there
    where people choose their own epsilon, and `epsilon` then that of the most generous tier.
    """

    epsilon: Number
    reason_if_inf: str | None
    delta: Number
    unit: str
    neighbours: str
    trust: str
    per: str
    rounds_counted: int
    accountant: str
    accountant_version: str
    cross_check: dict[str, Number]
    basic_epsilon: Number | None
    assumptions: list[str]
    statements: list[str]
    support: SupportClaimRow | None = None
    tiers: list[TierClaimRow] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        return {key: value for key, value in fields.items() if key != "tiers" or value}

    @property
    def finite(self) -> bool:
        """Whether any formal guarantee is claimed."""
        return self.epsilon < float("inf")


class RateAtFprRow(_Row):
    """True-positive rate at a fixed false-positive rate; null where too few negatives could resolve it."""

    fpr: Number
    tpr: Interval | None
    false_positives: int


class RocRow(_Row):
    """A pooled ROC curve at no more than some 200 points, both axes ascending, with its pointwise 95 % band."""

    fpr: list[Number]
    tpr: list[Number]
    lo: list[Number] = []
    hi: list[Number] = []

    @model_validator(mode="after")
    def _same_length(self) -> "RocRow":
        if len(self.fpr) != len(self.tpr):
            msg = f"a ROC curve has {len(self.fpr)} false-positive and {len(self.tpr)} true-positive rates"
            raise ValueError(msg)
        if {len(self.lo), len(self.hi)} - {0} and not len(self.lo) == len(self.hi) == len(self.fpr):
            raise ValueError(f"the band of a ROC curve has {len(self.lo)} and {len(self.hi)} ends for {len(self.fpr)}")
        return self


class SampleSplitRow(_Row):
    """An attack on the audited users who choose among attacks, and on the others, who measure the chosen one.

    Attributes:
        selection_users: Number of users to choose on.
        selection_gain: Mean AUC over them, less that of the popularity guesser.
        n_users: Number of users to measure on.
        auc: Over the latter.
        popularity_auc: Of the popularity guesser on the same pairs.
        gain: `auc` less `popularity_auc`, paired by user.
    """

    selection_users: int
    selection_gain: Number
    n_users: int
    auc: Interval
    popularity_auc: Number
    gain: Interval


class SliceRow(_Row):
    """An attack's AUC over a tenth of the items, or of the audited users.

    Attributes:
        by: "popularity" slices the items (non-members of a slice stand against members of the same one), "activity"
            the users, by their number of training items.
        group: 0 for the least popular or least active tenth, up to 9.
        lowest, highest: Popularity of its items or activity of its users.
        popularity_auc: Of the popularity guesser on the same pairs.
    """

    by: Literal["popularity", "activity"]
    group: int = Field(ge=0, le=9)
    lowest: Number
    highest: Number
    n_users: int
    n_members: int
    auc: Interval
    popularity_auc: Number


class CeilingRow(_Row):
    """What the claim of a run allows an attack in a game that inclusion bits decided.

    Attributes:
        epsilon, delta: The claim, for one interaction more or less.
        auc: Highest AUC under them.
        beaten: Whether the attack lies above it even at the lower end of its interval, there or at a small rate.
    """

    epsilon: Number
    delta: Number
    auc: Number
    beaten: bool


class AttackRow(_Row):
    """What one attack recovered at one tap. Members count as 1, so an AUC of 0.5 is chance.

    Attributes:
        tap: Where the adversary listened: before the mechanism (raw), at one client's message (wire), at the names
            of the rows that one client sends (support), at the sum over clients (sum), at the published model (model)
            or at what a device shows its own user (scores).
        rounds: The rounds that its scores are made of, counted from 1.
        membership: "natural" members are people's real items, and say nothing about epsilon; "randomised" ones were
            decided by inclusion bits.
        slices: The same by tenths of items and of users; empty where not measured.
        ceiling: What a finite claim allows; null for natural members and for taps that the claim does not cover.
        sample_split: The same on the two groups of audited users; null where one of them has nobody to measure.
    """

    attack: str
    observable: str
    adversary: str
    knowledge: list[str]
    unit: str
    explains: str
    tap: Tap
    game: str
    scope: str
    note: str
    membership: Literal["natural", "randomised"]
    rounds: list[int]
    n_users: int
    n_members: int
    n_nonmembers: int
    auc: Interval
    auc_pooled: Interval
    tpr_at_fpr: list[RateAtFprRow]
    advantage: Interval
    popularity_auc: Number
    gain: Interval
    roc: RocRow
    slices: list[SliceRow] = []
    ceiling: CeilingRow | None = None
    sample_split: SampleSplitRow | None = None

    @classmethod
    def from_result(cls, result: "AttackResult", *, tap: Tap, rounds_seen: Sequence[int]) -> "AttackRow":
        """The row of a result.

        Args:
            result: What `attacks.measure` returned.
            tap: Where the views came from.
            rounds_seen: Round number of every view, in order. A single-round attack speaks about the last.
        """
        fields = asdict(result)
        for name in ("seconds", "resamples"):
            del fields[name]
        rounds = rounds_seen[-1:] if result.rounds == 1 else rounds_seen
        return cls.model_validate(fields | {"tap": tap, "rounds": list(rounds)})


class CodeLeak(_Row):
    """How much of private user codes was rebuilt from public purchases and public item codes alone.

    Attributes:
        start: Where the guess began.
        bits: Share of bits that are right, mean over users.
        users: Share of users with at least 90 % of their bits right.
        majority: Share of bits that each bit's majority gets right, the floor of `bits`.
        gain: `bits` minus `majority`, paired by user.
        n_bits: Length of a code.
    """

    start: str
    bits: Interval
    users: Interval
    majority: Interval
    gain: Interval
    n_bits: int


class SupportLeak(_Row):
    """What stays visible where values are hidden: which rows a client sends, and what follows from public codes.

    Counts are means over the audited users. What was not measured, or cannot be, is null: all but the claim and the
    codes where nobody sees single clients' rows.

    Attributes:
        claim: What the padding promises of the rows.
        seen_by: Who sees the rows of single clients; null where nobody does.
        private: What the rows may give away.
        n_users: Audited users.
        public_rows: Rows sent that everybody may know.
        private_rows: Rows sent that are private items.
        padding_rows: Rows sent that are neither.
        up_bytes_per_client_round: Bytes that a client sends in a round.
        posterior: Share of private items among the rows sent that are not public, mean over users.
        posterior_expected: The same by formula, from sizes and the padding alone.
        posterior_over_rows: The same share over the rows of all audited users.
        posterior_over_rows_expected: By formula.
        count_exact: Share of users whose number of private items was read off the number of rows.
        count_error: Mean distance of that reading from the truth, in items.
        codes: Rebuilt user codes, by where the guess began; empty for methods without them.
    """

    claim: SupportClaimRow
    seen_by: Literal["aggregators", "server"] | None
    private: Literal["examinations", "training items"]
    n_users: int
    public_rows: Number | None = None
    private_rows: Number | None = None
    padding_rows: Number | None = None
    up_bytes_per_client_round: Number
    posterior: Interval | None = None
    posterior_expected: Number | None = None
    posterior_over_rows: Number | None = None
    posterior_over_rows_expected: Number | None = None
    count_exact: Interval | None = None
    count_error: Interval | None = None
    codes: list[CodeLeak] = []

    @property
    def rebuilt(self) -> CodeLeak | None:
        """The guess at user codes that got most bits right."""
        return max(self.codes, key=lambda code: code.bits.value, default=None)


class EmpiricalRow(_Row):
    """An epsilon that was measured, beside the one that is claimed.

    Attributes:
        estimator: Name of the method.
        kind: A "lower bound" holds with its confidence; an "estimate" may lie above the truth; a "credible bound"
            holds under a prior.
        audited: What was tested, in words: single interactions, whole users, one upload of the mechanism.
        tap: Where the statistic was read.
        value: The epsilon.
        lo, hi: Interval of an estimate; null for bounds.
        confidence: Of a bound or an interval.
        delta: At which it is meant.
        unit: "interaction", "user" or "upload".
        neighbours: Which two worlds are compared.
        trials: Canaries, inclusion bits or draws.
        accounted: What the run claims for the same unit and neighbours; "inf" where it claims nothing.
        placebo: 95th percentile of the estimate for canaries that were never inserted; null where there is none.
        assumes: What must hold besides, or "".
        consistent: Whether the claim survives: a lower bound at or below it.
        largest_deniable: The bound that perfect guesses would have given: no claim above it can be denied so; null
            where it is not known.
        worst_case: What was found to be worst, in words, where it was searched for.
    """

    estimator: str
    kind: Literal["lower bound", "estimate", "credible bound"]
    audited: str
    tap: Tap
    value: Number
    lo: Number | None = None
    hi: Number | None = None
    confidence: Number
    delta: Number
    unit: Literal["interaction", "user", "upload"]
    neighbours: str
    trials: int
    accounted: Number
    placebo: Number | None = None
    assumes: str = ""
    consistent: bool
    largest_deniable: Number | None = None
    worst_case: str = ""


class AttributeRow(_Row):
    """How well a private attribute of a person is guessed from one kind of evidence.

    Attributes:
        attribute: "gender", "age", "occupation".
        classes: What is told apart, in words.
        evidence: What the classifier reads.
        tap: Where that is seen; null for baselines that no adversary sees (true interactions).
        knowledge: What the adversary knows besides.
        auc: Cross-validated, with the interval of a bootstrap over users; mean one-against-rest of several classes.
        balanced_accuracy: Mean recall of the classes.
        majority: Share of the largest class.
        n_users: People classified.
    """

    attribute: str
    classes: str
    evidence: str
    tap: Tap | None
    knowledge: list[str]
    auc: Interval
    balanced_accuracy: Interval
    majority: Number
    n_users: int


class LinkRow(_Row):
    """How well people were found again from their uploads of one round to those of another, as if pseudonyms changed.

    Attributes:
        attack: Whose scores of items say which uploads are alike: the best on the people who choose.
        tap: Where the uploads were seen.
        rounds: The two rounds, counted from 1.
        selection_users: Number of people to choose on.
        n_users: Number of the other people, who are looked for among each other.
        accuracy: Share of them who were named, all being assigned at once.
        auc: That a person's two uploads look more alike than those of two people.
        chance: Share that a random assignment names.
    """

    attack: str
    tap: Tap
    rounds: list[int]
    selection_users: int
    n_users: int
    accuracy: Interval
    auc: Interval
    chance: Number


class TrafficRow(_Row):
    """Bytes that one participating client sends and receives in one round."""

    up_bytes_per_client_round: Number
    down_bytes_per_client_round: Number


class TimeRow(_Row):
    """Seconds of the run: wall time by purpose, and processor time in all."""

    train_s: Number
    privacy_s: Number
    attack_s: Number
    cpu_s: Number


class Setting(_Row):
    """A privacy mechanism as it was configured: a slug for files and a name for people."""

    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    name: str


class LedgerLine(_Row):
    """A privacy event and how many rounds recorded it.

    `squared_mu` is mu^2 of all of them together, which add up over lines; null where no mu describes the noise.
    """

    event: str
    times: int
    squared_mu: Number | None = None


class NotRun(_Row):
    """Something that a reader may expect and that was not done, with the reason."""

    what: str
    why: str


class Check(_Row):
    """One test of what ran against what is claimed for it.

    Attributes:
        name: of the test, in a few words.
        passed: False denies the claim: the audit ends with a contradiction.
        detail: one sentence: what was found, or what the test covered and what it cannot deny.
    """

    name: str
    passed: bool
    detail: str


class Run(_Row):
    """One method under one setting with one seed.

    `our_variant` says how the model differs from the published one that it is named after, where it does. `wire` says
    how closely the wire was simulated, `aborted_rounds` how many rounds were aborted for too few clients. `support` is
    null where no rows are sent behind a hidden sum and no history is public. `inclusion` counts the training
    interactions of audited users that inclusion bits kept or dropped before training. `ledger` holds the events that
    epsilon was computed from, and `not_run` what could not be done to this run. `decisions` are choices that the method
    made by what had been released to it already. `lists` is null where test rankings were not of the whole catalogue.
    """

    run_id: str
    method: str
    our_variant: str | None = None
    setting: Setting
    plan: Record
    seed: int
    rounds: int
    clients_per_round: Number
    sampling: str
    fidelity: str = "exact"
    aborted_rounds: int = 0
    utility: list[UtilityRow]
    lists: ListsRow | None = None
    guarantee: GuaranteeRow
    attacks: list[AttackRow]
    support: SupportLeak | None = None
    empirical: list[EmpiricalRow] = []
    attributes: list[AttributeRow] = []
    links: list[LinkRow] = []
    checks: list[Check] = []
    controls: list[ControlRow] = []
    inclusion: int = 0
    ledger: list[LedgerLine] = []
    not_run: list[NotRun] = []
    comm: TrafficRow
    wall: TimeRow
    peak_rss_bytes: int
    clipped_fraction: Number | None = None
    decisions: dict[str, Number] = {}


class Spread(_Row):
    """A mean over seeds with its range, and a t-interval at 95 % from five seeds on (null below)."""

    mean: Number
    minimum: Number
    maximum: Number
    lo: Number | None
    hi: Number | None
    n_seeds: int


class UtilityCell(_Row):
    """A metric over the seeds of a cell; `users` averages the seeds' bootstrap intervals over users."""

    part: Literal["valid", "test"]
    state: str
    name: str
    k: int
    seeds: Spread
    users: Interval
    gain: Interval | None = None


class AttackCell(_Row):
    """An attack over the seeds of a cell.

    `users`, `gain` and `sample_split` average the seeds' bootstrap intervals over users; `chosen` marks the attack that
    was strongest of its tap and game on the users who choose.
    """

    attack: str
    tap: Tap
    game: str
    scope: str
    rounds: list[int]
    auc: Spread
    users: Interval
    tpr_at_1pct: Spread | None
    popularity_auc: Number
    gain: Interval
    chosen: bool
    membership: Literal["natural", "randomised"] = "natural"
    ceiling: CeilingRow | None = None
    slices: list[SliceRow] = []
    sample_split: SampleSplitRow | None = None


Leak = Literal["everything", "nearly everything", "more than popularity", "no more than popularity"]


class Headline(_Row):
    """The attack that speaks for a setting, chosen on one group of audited users and measured on the other.

    Attributes:
        attack, tap, game, scope, rounds: Which it is.
        auc: On the users who measure, with its 95 % interval over users.
        popularity_auc: Of the popularity guesser on the same pairs.
        excess: `auc` less `popularity_auc`, paired by user: the headline.
        leaks: The same in words.
        candidates: Number of attacks it was chosen from.
        selection_users: Number of users it was chosen on.
        n_users: Number of users it was measured on.
        n_seeds: Number of runs averaged.
    """

    attack: str
    tap: Tap
    game: str
    scope: str
    rounds: list[int]
    auc: Interval
    popularity_auc: Number
    excess: Interval
    leaks: Leak
    candidates: int
    selection_users: int
    n_users: int
    n_seeds: int


class ObserverRow(_Row):
    """Somebody who may look, what they see under this plan, and the strongest attack on that.

    Attributes:
        who: In words, such as "the server" or "somebody who sees the sums".
        taps: Where they look.
        guaranteed: Whether the claim of the setting, if it has one, holds against them. Where it does not, they are
            trusted.
        sees: A sentence on what reaches them.
        headline: The strongest attack there; null where none was measured.
        blind: Whether nothing can be learned there, by construction.
    """

    who: str
    taps: list[Tap]
    guaranteed: bool
    sees: str
    headline: Headline | None = None
    blind: bool = False


class CostRow(_Row):
    """Means over the seeds of a cell."""

    up_bytes_per_client_round: Number
    down_bytes_per_client_round: Number
    train_s: Number
    privacy_s: Number
    attack_s: Number
    cpu_s: Number
    peak_rss_bytes: Number
    clipped_fraction: Number | None


class Cell(_Row):
    """One method under one setting over all its seeds; the guarantee is the weakest that any seed had.

    Of measured epsilons, the highest of the seeds is kept; of attributes, links and slices, means over seeds.
    `headline` is the strongest attack among all that `observers` within the guarantee can see.
    """

    method: str
    setting: Setting
    plan: Record
    n_seeds: int
    guarantee: GuaranteeRow
    utility: list[UtilityCell]
    lists: ListsRow | None = None
    attacks: list[AttackCell]
    support: SupportLeak | None = None
    empirical: list[EmpiricalRow] = []
    attributes: list[AttributeRow] = []
    links: list[LinkRow] = []
    controls: list[ControlRow] = []
    ledger: list[LedgerLine] = []
    cost: CostRow
    headline: Headline | None = None
    observers: list[ObserverRow] = []


class Statement(_Row):
    """A plain sentence or two that the numbers support, and the cell it is about (null: the whole audit).

    `detail` holds the numbers behind it, for those who want them.
    """

    topic: Literal["tested", "attack", "support", "guarantee", "utility", "limit"]
    text: str
    detail: str = ""
    method: str | None = None
    setting: str | None = None


class Contradiction(_Row):
    """A claim that the audit's own numbers deny, in one sentence."""

    rule: str
    text: str
    method: str | None = None
    setting: str | None = None


class SelfCheck(_Row):
    """A check of the audit's own machinery."""

    name: str
    passed: bool
    detail: str


class ProtocolUsed(_Row):
    """How utility was measured: the settings, and the sentence printed with every number."""

    settings: Record
    sentence: str


SELECTION = (
    "The strongest attack of a setting is chosen on about half of the audited users, by its gain over the popularity "
    "guess in the main game on all items, and measured on the other half, so that it is not the luckiest of many. A "
    "user's half is the top bit of a SplitMix64 hash of the user's id: the same for every setting and seed. Intervals "
    "are 95 % bootstraps over users, their ends averaged over seeds."
)
"""How the headline of every setting is made; part of every report."""


class AuditReport(_Row):
    """Everything one audit has to say. `conclude` derives from `runs` what follows from them.

    `selection` says how the headline attack of every setting was chosen; `verdict` and `advice` are a sentence each.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    created: str
    privfed_version: str
    environment: Record
    config: Record
    config_sha256: str
    dataset: Record
    protocol: ProtocolUsed
    selection: str = SELECTION
    verdict: str = ""
    advice: str = ""
    runs: list[Run]
    aggregates: list[Cell] = []
    statements: list[Statement] = []
    contradictions: list[Contradiction] = []
    not_run: list[NotRun] = []
    self_checks: list[SelfCheck] = []


def config_sha256(config: Mapping[str, object]) -> str:
    """Hash of a configuration that does not depend on the order of its keys: 64 hexadecimal digits."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_report(report: AuditReport, path: Path) -> None:
    """Write a report as indented JSON, whole or not at all.

    Raises:
        ReportError: the path cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable"
        raise ReportError(msg) from error


def read_report(path: Path) -> AuditReport:
    """Read a report written by `write_report`.

    Raises:
        ReportError: the file is missing, is not a whole JSON report, or comes from another schema version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read the report {path}: {error.strerror}; expected the report.json of a finished audit"
        raise ReportError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"the report {path} is damaged or cut short ({error}); run the audit again"
        raise ReportError(msg) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int:
        msg = f"{path} is not an audit report: it has no whole-number schema_version; expected a report.json"
        raise ReportError(msg)
    if version != SCHEMA_VERSION:
        age, advice = ("a newer", "update privfed") if version > SCHEMA_VERSION else ("an older", "run the audit again")
        msg = (
            f"the report {path} has schema version {version}, from {age} privfed than this one, "
            f"which reads version {SCHEMA_VERSION}; {advice}"
        )
        raise ReportError(msg)
    try:
        return AuditReport.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the document"
        msg = f"the report {path} is damaged: {where}: {first['msg'].lower()}; run the audit again"
        raise ReportError(msg) from error
