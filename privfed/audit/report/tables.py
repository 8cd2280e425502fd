"""runs.csv: one row per run, with the numbers that people sort and plot by."""

from pathlib import Path

import pandas as pd

from privfed.audit.report.aggregates import rate_at
from privfed.audit.report.headline import PROTECTED_TAPS, inclusion_attack, measured
from privfed.audit.report.records import POPULARITY, AuditReport, ReportError, Run


def runs_table(report: AuditReport) -> pd.DataFrame:
    """One row per run.

    Ranking metrics are those of the test part. `auc_max` is the highest AUC of any attack but the popularity
    guess behind the mechanism, over all games and candidates; `attack`, `tap`, `game`, `scope` and
    `attack_rounds` say which it was, and `tpr_1pct` and `auc_gain` belong to that same attack. `auc_inclusion` is the
    highest where inclusion bits decided and `auc_ceiling` what the claim allows there; `eps_lb` and `eps_hat` are the
    highest measured lower bound and estimate of epsilon, for the unit beside them. An infinite epsilon is the string
    "inf".
    """
    metrics = list(
        dict.fromkeys(f"{row.name}@{row.k}" for run in report.runs for row in run.utility if row.part == "test")
    )
    rows = [_row(run, str(report.dataset.get("name")), metrics) for run in report.runs]
    return pd.DataFrame(rows)


def write_runs(report: AuditReport, path: Path) -> None:
    """Write `runs_table` as CSV, empty cells where nothing was measured.

    Raises:
        ReportError: the path cannot be written.
    """
    try:
        runs_table(report).to_csv(path, index=False, lineterminator="\n")
    except OSError as error:
        msg = f"cannot write runs to {path}: {error.strerror}; choose a folder that exists and is writable"
        raise ReportError(msg) from error


def _row(run: Run, dataset: str, metrics: list[str]) -> dict[str, object]:
    utility = {f"{row.name}@{row.k}": row.value for row in run.utility if row.part == "test"}
    claim = run.guarantee
    return {
        "method": run.method,
        "dataset": dataset,
        "setting": run.setting.slug,
        "seed": run.seed,
        "rounds": run.rounds,
        **{name: utility.get(name) for name in metrics},
        "eps": claim.epsilon if claim.finite else "inf",
        "delta": claim.delta,
        "unit": claim.unit,
        "neighbours": claim.neighbours,
        "trust": claim.trust,
        "accountant": claim.accountant,
        **_strongest_attack(run),
        **_inclusion_game(run),
        **_measured_epsilons(run),
        "up_bytes": run.comm.up_bytes_per_client_round,
        "down_bytes": run.comm.down_bytes_per_client_round,
        "train_s": run.wall.train_s,
        "privacy_s": run.wall.privacy_s,
        "attack_s": run.wall.attack_s,
        "cpu_s": run.wall.cpu_s,
        "peak_rss_bytes": run.peak_rss_bytes,
    }


def _strongest_attack(run: Run) -> dict[str, object]:
    rivals = [row for row in run.attacks if row.tap in PROTECTED_TAPS and row.attack != POPULARITY]
    worst = max(rivals, key=lambda row: row.auc.value, default=None)
    return {
        "auc_max": worst and worst.auc.value,
        "tpr_1pct": worst and rate_at(worst, 0.01),
        "auc_gain": worst and worst.gain.value,
        "attack": worst and worst.attack,
        "tap": worst and worst.tap,
        "game": worst and worst.game,
        "scope": worst and worst.scope,
        "attack_rounds": worst and " ".join(map(str, worst.rounds)),
    }


def _inclusion_game(run: Run) -> dict[str, object]:
    row = inclusion_attack(run.attacks)
    return {"auc_inclusion": row and row.auc.value, "auc_ceiling": row and row.ceiling and row.ceiling.auc}


def _measured_epsilons(run: Run) -> dict[str, object]:
    bound, estimate = measured(run, "lower bound"), measured(run, "estimate")
    return {
        "eps_lb": bound and bound.value,
        "eps_lb_unit": bound and bound.unit,
        "eps_hat": estimate and estimate.value,
        "eps_hat_unit": estimate and estimate.unit,
    }
