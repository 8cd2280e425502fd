"""runs.csv: one row per run, with the numbers that people sort and plot by."""

from pathlib import Path

import pandas as pd

from privfed.audit.report.aggregates import rate_at
from privfed.audit.report.headline import inclusion_attack, measured, same_attack
from privfed.audit.report.records import AuditReport, Headline, ReportError, Run


def runs_table(report: AuditReport) -> pd.DataFrame:
    """One row per run.

    Ranking metrics are those of the test part. `auc` is that of the attack which speaks for the setting (chosen over
    all seeds on one group of audited users, measured in this run on the others); `auc_popularity` and `auc_excess`
    stand beside it, and `attack`, `tap`, `game`, `scope` and `attack_rounds` say which it was. `tpr_1pct` is its rate
    over all audited users. `auc_inclusion` is that of the strongest attack where inclusion bits decided, and
    `auc_ceiling` what the claim allows there; `eps_lb` and `eps_hat` are the highest measured lower bound and estimate
    of epsilon, for the unit beside them. An infinite epsilon is the string "inf".
    """
    metrics = list(
        dict.fromkeys(f"{row.name}@{row.k}" for run in report.runs for row in run.utility if row.part == "test")
    )
    cells = {(cell.method, cell.setting.slug): cell for cell in report.aggregates}
    rows = [
        _row(run, cells[run.method, run.setting.slug].headline, str(report.dataset.get("name")), metrics)
        for run in report.runs
    ]
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


def _row(run: Run, headline: Headline | None, dataset: str, metrics: list[str]) -> dict[str, object]:
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
        **_headline(run, headline),
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


def _headline(run: Run, headline: Headline | None) -> dict[str, object]:
    row = next((row for row in run.attacks if headline is not None and same_attack(row, headline)), None)
    sample_split = row and row.sample_split
    return {
        "auc": sample_split and sample_split.auc.value,
        "auc_lo": sample_split and sample_split.auc.lo,
        "auc_hi": sample_split and sample_split.auc.hi,
        "auc_popularity": sample_split and sample_split.popularity_auc,
        "auc_excess": sample_split and sample_split.gain.value,
        "tpr_1pct": row and rate_at(row, 0.01),
        "attack": row and row.attack,
        "tap": row and row.tap,
        "game": row and row.game,
        "scope": row and row.scope,
        "attack_rounds": row and " ".join(map(str, row.rounds)),
    }


def _inclusion_game(run: Run) -> dict[str, object]:
    row = inclusion_attack(run.attacks)
    return {
        "auc_inclusion": row and row.sample_split and row.sample_split.auc.value,
        "auc_ceiling": row and row.ceiling and row.ceiling.auc,
    }


def _measured_epsilons(run: Run) -> dict[str, object]:
    bound, estimate = measured(run, "lower bound"), measured(run, "estimate")
    return {
        "eps_lb": bound and bound.value,
        "eps_lb_unit": bound and bound.unit,
        "eps_hat": estimate and estimate.value,
        "eps_hat_unit": estimate and estimate.unit,
    }
