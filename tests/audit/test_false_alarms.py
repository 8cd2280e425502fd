"""However many rows an audit has, noise raises an alarm in no more of the audits than it says."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t

from attacks.attributes import infer_attribute
from attacks.metrics.estimate import Estimate, user_mean
from privfed.audit.report.ceilings import inclusion_auc_ceiling, wider
from privfed.audit.report.contradictions import find_contradictions
from privfed.audit.report.headline import attribute_guess
from privfed.audit.report.records import AttackRow, Interval

AUDITS, ROWS, USERS, RESAMPLES = 300, 30, 50, 200
ALLOWED = 0.025
MOST = ALLOWED + 3 * (ALLOWED * (1 - ALLOWED) / AUDITS) ** 0.5
"""Above it is a rate of 2.5 % in one of a thousand tests like this one, and this one is always the same."""


def intervals(truth: float, rng: np.random.Generator) -> list[Interval]:
    """Measured means of noise around the truth, with the audit's own bootstrap."""
    values = rng.normal(truth, 0.2, (ROWS, USERS))
    seed = int(rng.integers(1 << 30))
    found: list[Estimate] = [user_mean(row, resamples=RESAMPLES, seed=seed) for row in values]
    return [Interval(value=one.value, lo=one.lo, hi=one.hi) for one in found]


def test_wider_is_bonferronis() -> None:
    assert wider(1, 50) == 1
    assert wider(40, 10**6) == pytest.approx(t.isf(ALLOWED / 40, 54) / t.isf(ALLOWED, 54), rel=1e-3)
    assert wider(40, 30) > wider(40, 60) > wider(20, 60) > 1


def test_attacks_as_strong_as_the_claim_allows_deny_it_no_more_often_than_stated(make: SimpleNamespace) -> None:
    rng = np.random.default_rng(0)
    claim = make.guarantee("local_laplace", epsilon=0.1)
    ceiling = inclusion_auc_ceiling(claim)
    popularity = make.run("popularity", "none", 0)
    plain = make.attack("canary", 0.5, [1], tap="wire", game="inclusion", membership="randomised", tpr_at_fpr=[])
    plain = plain.model_copy(update={"n_users": USERS})
    template = make.report([popularity, make.run("gpfedrec", "local_laplace", 0, guarantee=claim, attacks=[plain])])

    def denied(row: AttackRow, aucs: list[Interval]) -> bool:
        attacks = [row.model_copy(update={"auc": auc}) for auc in aucs]
        run = template.runs[-1].model_copy(update={"attacks": attacks})
        found = find_contradictions(template.model_copy(update={"runs": [popularity, run]}))
        return any(one.rule == "beaten_ceiling" for one in found)

    measured = [intervals(ceiling, rng) for _ in range(AUDITS)]
    alarms = np.mean([denied(plain, aucs) for aucs in measured])
    uncorrected = np.mean([max(auc.lo for auc in aucs) > ceiling for aucs in measured])
    assert uncorrected > 0.4
    assert alarms <= MOST
    assert denied(plain, [Interval(value=0.95, lo=0.9, hi=0.98), *measured[0][1:]])


def test_noise_guesses_no_attribute_more_often_than_stated(make: SimpleNamespace) -> None:
    rng = np.random.default_rng(1)
    cell = make.report([make.run("popularity", "none", 0), make.full("gpfedrec", "local_laplace", 0)]).aggregates[-1]
    like = next(row for row in cell.attributes if row.tap is not None).model_copy(update={"n_users": USERS})

    def best(aucs: list[Interval]) -> Interval:
        rows = [like.model_copy(update={"auc": auc, "evidence": f"kind {n}"}) for n, auc in enumerate(aucs)]
        seen, _ = attribute_guess(cell.model_copy(update={"attributes": rows}), like.attribute)
        assert seen is not None
        return seen.auc

    measured = [intervals(0.5, rng) for _ in range(AUDITS)]
    assert np.mean([max(auc.lo for auc in aucs) > 0.5 for aucs in measured]) > 0.4
    assert np.mean([best(aucs).lo > 0.5 for aucs in measured]) <= MOST
    assert best([Interval(value=0.9, lo=0.85, hi=0.94), *measured[0]]).lo > 0.5


def test_classifiers_of_pure_noise_find_nothing() -> None:
    """The intervals themselves: six kinds of evidence without information, twelve times."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(12):
        labels = rng.integers(2, size=80)
        found = [infer_attribute(rng.normal(size=(80, 3)), labels, seed=0).auc for _ in range(6)]
        best = max(found, key=lambda auc: auc.value)
        alarms += best.value - (best.value - best.lo) * wider(6, 80) > 0.5
    assert alarms <= 2
