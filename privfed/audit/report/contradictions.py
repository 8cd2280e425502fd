"""When an audit's numbers deny what it claims, or when it lacks what would make them mean something.

Each rule yields one sentence per offence. Of measured epsilons only a lower bound can deny a
claim; an estimate may lie above the truth, and what it says is a caveat (`statements`).
However many attacks are held against ceilings, those of a report raise a false alarm in about 2.5 % of the reports
whose claims hold; each lower bound on epsilon has the confidence that its sentence says.
"""

import math
from collections.abc import Iterator
from functools import partial

from attacks.membership import DecoderBias, RankOneSign, RowSupport
from attacks.supports import InSupport
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.ceilings import comparisons, excesses, has_ceiling
from privfed.audit.report.headline import MAIN_GAMES, is_unprotected
from privfed.audit.report.records import (
    POPULARITY,
    AttackRow,
    AuditReport,
    Contradiction,
    Run,
)
from privfed.privacy.errors import PlanError
from privfed.privacy.plan import PrivacyPlan

POSITIVE_CONTROL_AUC = 0.9
_CONTROLS = (RankOneSign.name, DecoderBias.name, RowSupport.name, InSupport.name)
"""Attacks that read unprotected uploads: tables with sampled negatives, autoencoders, plain rows, names of rows."""


def find_contradictions(report: AuditReport) -> list[Contradiction]:
    """Every contradiction, run by run and then of the whole report; empty when all is consistent."""
    bounded = [(run, row) for run in report.runs for row in run.attacks if has_ceiling(row, run.guarantee)]
    beaten = partial(_beaten_ceiling, among=sum(comparisons(row) for _, row in bounded))
    contradictions = [offence for run in report.runs for rule in (*_RULES, beaten) for offence in rule(run)]
    contradictions += _no_popularity_method(report)
    contradictions += [
        Contradiction(rule="self_check", text=f"The audit's own check '{check.name}' failed: {check.detail}.")
        for check in report.self_checks
        if not check.passed
    ]
    return contradictions


def _offence(run: Run, rule: str, text: str) -> Contradiction:
    where = f"{formatting.method_name(run.method)}, {formatting.setting(run.setting)}, seed {run.seed}"
    return Contradiction(rule=rule, text=f"{where}: {text}.", method=run.method, setting=run.setting.slug)


def _claim_without_mechanism(run: Run) -> Iterator[Contradiction]:
    """A finite epsilon whose plan cannot give one."""
    if not run.guarantee.finite:
        return
    claim = f"epsilon = {formatting.epsilon(run.guarantee.epsilon)} is claimed, but"
    try:
        mechanism = PrivacyPlan.from_dict(run.plan).mechanism
    except PlanError as error:
        yield _offence(run, "unreadable_plan", f"{claim} the plan cannot be read ({error})")
        return
    if mechanism.unbounded_reason is None:
        return
    if mechanism.clip is None:
        yield _offence(run, "no_clip", f"{claim} the plan has no clip, so one person's influence is unbounded")
    if mechanism.noise is None:
        yield _offence(run, "no_noise", f"{claim} the plan adds no noise, so what is released is exact")
    if mechanism.clip and mechanism.noise:
        yield _offence(run, "unsound_plan", f"{claim} {mechanism.unbounded_reason}")


def _nonsense_epsilon(run: Run) -> Iterator[Contradiction]:
    """An epsilon that is no number, zero for a release, or infinite for no stated reason."""
    value = run.guarantee.epsilon
    if not value >= 0:
        yield _offence(run, "nonsense_epsilon", f"epsilon = {value} is claimed; it is a number of at least 0")
    if value == 0 and run.guarantee.rounds_counted > 0:
        yield _offence(run, "nonsense_epsilon", "epsilon = 0 is claimed although something was released")
    if value == math.inf and not run.guarantee.reason_if_inf:
        yield _offence(run, "no_reason", "epsilon is infinite and no reason is given")


def _beaten_ceiling(run: Run, among: int) -> Iterator[Contradiction]:
    """A game of inclusion bits won by more than the claim allows, intervals and the number of them considered."""
    for row in run.attacks:
        if has_ceiling(row, run.guarantee) and (beyond := excesses(row, run.guarantee, among)):
            claim = f"the ceiling of epsilon = {formatting.epsilon(run.guarantee.epsilon)}"
            text = f"{row.attack} beats {claim} even at the lower end of its interval: {beyond[0]}"
            yield _offence(run, "beaten_ceiling", text)


def _exceeded_claim(run: Run) -> Iterator[Contradiction]:
    """A measured lower bound above what is claimed for the same unit."""
    for row in run.empirical:
        if row.kind == "lower bound" and (row.value > row.accounted or not row.consistent):
            yield _offence(
                run,
                "exceeded_claim",
                f"epsilon of {row.audited} is at least {formatting.epsilon(row.value)} with {100 * row.confidence:g} % "
                f"confidence ({row.estimator}), and only {formatting.epsilon(row.accounted)} is claimed",
            )


def _failed_check(run: Run) -> Iterator[Contradiction]:
    """A check of the run against its claim that did not pass."""
    for check in run.checks:
        if not check.passed:
            yield _offence(run, "failed_check", f"{check.name}: {check.detail.rstrip('.')}")


def _no_popularity_attack(run: Run) -> Iterator[Contradiction]:
    """Attacks whose view, game and candidates lack the popularity guesser that gives them meaning."""
    views = grouped(run.attacks, lambda row: (row.tap, row.game, row.scope))
    for (tap, game, scope), rows in views.items():
        if all(row.attack != POPULARITY for row in rows):
            text = f"attacks at '{tap}' ({game}, {scope}) have no popularity row to compare with"
            yield _offence(run, "no_popularity_attack", text)


def _failed_positive_control(run: Run) -> Iterator[Contradiction]:
    """An unprotected upload that no attack reads: the attacks are broken, not the upload safe."""
    if run.method == POPULARITY:
        return
    rows = [row for row in run.attacks if _is_control(run, row)]
    best = max((row.auc.value for row in rows), default=None)
    if best is not None and best < POSITIVE_CONTROL_AUC:
        yield _offence(
            run,
            "positive_control",
            f"the best attack on unprotected uploads reaches AUC {formatting.share(best)} where at least "
            f"{POSITIVE_CONTROL_AUC} is expected, so it is broken and low scores elsewhere mean nothing",
        )


def _is_control(run: Run, row: AttackRow) -> bool:
    noisy_inside = run.guarantee.unit == "interaction"
    unprotected = (row.tap == "raw" and not noisy_inside) or (
        row.tap in ("wire", "support") and is_unprotected(run.plan)
    )
    return unprotected and row.attack in _CONTROLS and row.game in MAIN_GAMES


def _no_popularity_method(report: AuditReport) -> list[Contradiction]:
    """Metrics that were measured for a method and not for the popularity recommender."""

    def keys(runs: list[Run]) -> set[tuple[str, str, int]]:
        return {(row.part, row.name, row.k) for run in runs for row in run.utility}

    missing = keys([run for run in report.runs if run.method != POPULARITY])
    missing -= keys([run for run in report.runs if run.method == POPULARITY])
    if not missing:
        return []
    names = formatting.listed([f"{formatting.metric(name, k)} ({part})" for part, name, k in sorted(missing)])
    text = f"The popularity recommender was not measured by {names}: those numbers have nothing to stand beside."
    return [Contradiction(rule="no_popularity_method", text=text)]


_RULES = (
    _claim_without_mechanism,
    _nonsense_epsilon,
    _exceeded_claim,
    _failed_check,
    _no_popularity_attack,
    _failed_positive_control,
)
