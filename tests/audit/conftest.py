"""A report like that of a real audit: made-up runs whose numbers resemble those of ML-100K."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from privfed.audit.report.ceilings import has_ceiling, inclusion_auc_ceiling, interaction_level
from privfed.audit.report.conclusions import conclude
from privfed.audit.report.records import (
    AttackRow,
    AttributeRow,
    AuditReport,
    CeilingRow,
    EmpiricalRow,
    GuaranteeRow,
    Interval,
    LedgerLine,
    NotRun,
    ProtocolUsed,
    RateAtFprRow,
    RocRow,
    Run,
    SampleSplitRow,
    SelfCheck,
    Setting,
    SliceRow,
    TimeRow,
    TrafficRow,
    UtilityRow,
    config_sha256,
)

DATA_CHOICES = "Choices made by looking at data spend privacy too, and are not in this ledger."
SETTINGS = {
    "none": Setting(slug="none", name="none"),
    "published_noise": Setting(slug="published_noise", name="published noise (Laplace 0.3, unclipped)"),
    "local_laplace": Setting(slug="local_laplace", name="local Laplace (eps0 = 1 per upload, C = 1)"),
}
PLANS = {
    "none": {"mechanism": {"kind": "unprotected"}},
    "published_noise": {"mechanism": {"kind": "unclipped_noise", "law": "laplace", "scale": 0.3}},
    "local_laplace": {"mechanism": {"kind": "local_laplace", "clip_norm": 1.0, "epsilon0": 1.0}},
}
HR = {"none": 0.712, "published_noise": 0.701, "local_laplace": 0.251, "popularity": 0.452}
NDCG = {"none": 0.428, "published_noise": 0.411, "local_laplace": 0.121, "popularity": 0.252}
SIGN_AUC = {
    "none": {10: 0.995, 40: 0.987},
    "published_noise": {10: 0.747, 40: 0.890},
    "local_laplace": {10: 0.503, 40: 0.498},
}
OTHER_AUC = {
    "row support": {"none": 0.94, "published_noise": 0.5, "local_laplace": 0.5},
    "row norm": {"none": 0.93, "published_noise": 0.61, "local_laplace": 0.502},
    "multi-round vote of rank-1 sign": {"none": 0.999, "published_noise": 0.927, "local_laplace": 0.504},
}
POPULARITY_AUC = {"trained vs never seen": 0.842, "trained vs held-out of the same user": 0.571}


def guarantee(setting: str, **changes: object) -> GuaranteeRow:
    finite = setting == "local_laplace"
    row = {
        "epsilon": 68.3 if finite else math.inf,
        "reason_if_inf": {
            "none": "uploads are released as they are, without clipping and without noise",
            "published_noise": "uploads are not clipped, so no noise scale gives a guarantee",
            "local_laplace": None,
        }[setting],
        "delta": 1e-5,
        "unit": "user",
        "neighbours": "replace_one",
        "trust": {"none": "none", "published_noise": "none", "local_laplace": "local"}[setting],
        "per": "run",
        "rounds_counted": 100,
        "accountant": "PLD (dp-accounting)" if finite else "none",
        "accountant_version": "0.6.0" if finite else "",
        "cross_check": {"RDP (dp-accounting)": 70.8} if finite else {},
        "basic_epsilon": 100.0 if finite else None,
        "assumptions": ["The device clips an upload to L1 norm C = 1 and adds Laplace noise to every coordinate."]
        if finite
        else [],
        "statements": [
            "One upload alone has epsilon 1. Uploads add up: epsilon of a run is not that of a round.",
            DATA_CHOICES,
        ]
        if finite
        else [DATA_CHOICES],
    }
    return GuaranteeRow.model_validate(row | changes)


def about(value: float, half: float) -> Interval:
    return Interval(value=value, lo=value - half, hi=value + half)


def attack_row(attack: str, auc: float, rounds: list[int], *, tap: str = "wire", **changes: object) -> AttackRow:
    """A row whose ROC is that of two normals at the distance that gives this AUC."""
    game = str(changes.get("game", "trained vs never seen"))
    popular = POPULARITY_AUC.get(game, 0.5)
    shift = math.sqrt(2) * stats.norm.ppf(min(auc, 0.9999))
    fpr = np.concatenate([[0.0], np.logspace(-4, 0, 60)])
    tpr = stats.norm.cdf(stats.norm.ppf(fpr) + shift)

    def rate(at: float) -> RateAtFprRow:
        value = float(stats.norm.cdf(stats.norm.ppf(at) + shift))
        return RateAtFprRow(fpr=at, tpr=about(value, 0.02), false_positives=round(at * 150_000))

    row = {
        "attack": attack,
        "observable": "individual item-table uploads of one round",
        "adversary": "server",
        "tap": tap,
        "unit": "interaction",
        "knowledge": ["the pull the server sent"],
        "explains": "Reads something off the upload.",
        "note": "",
        "membership": "natural",
        "game": game,
        "scope": "all items",
        "rounds": rounds,
        "n_users": 100,
        "n_members": 10_000,
        "n_nonmembers": 150_000,
        "auc": Interval(value=auc, lo=auc - 0.008, hi=min(1.0, auc + 0.008)),
        "auc_pooled": about(auc, 0.008),
        "tpr_at_fpr": [rate(0.1), rate(0.01), rate(0.001)],
        "advantage": about(float((tpr - fpr).max()), 0.01),
        "popularity_auc": popular,
        "gain": about(auc - popular, 0.01),
        "roc": RocRow(
            fpr=fpr.tolist(),
            tpr=tpr.tolist(),
            lo=np.maximum(tpr - 0.02, 0).tolist(),
            hi=np.minimum(tpr + 0.02, 1).tolist(),
        ),
    }
    row |= changes
    # As if both groups of the users gave the same numbers.
    auc, gain = Interval.model_validate(row["auc"]), Interval.model_validate(row["gain"])
    sample_split = SampleSplitRow(
        selection_users=50,
        selection_gain=gain.value,
        n_users=50,
        auc=auc,
        popularity_auc=row["popularity_auc"],
        gain=gain,
    )
    return AttackRow.model_validate({"sample_split": sample_split} | row)


def attack_rows(setting: str, shift: float) -> list[AttackRow]:
    rows = []
    for tap in ("raw", "wire"):
        seen = "none" if tap == "raw" else setting
        for game, popular in POPULARITY_AUC.items():
            for number in (10, 40):
                auc = SIGN_AUC[seen][number] + shift
                rows += [
                    attack_row("rank-1 sign", min(auc, 0.999), [number], tap=tap, game=game),
                    attack_row("row norm", OTHER_AUC["row norm"][seen] + shift, [number], tap=tap, game=game),
                    attack_row("row support", OTHER_AUC["row support"][seen], [number], tap=tap, game=game),
                    attack_row("popularity", popular, [number], tap=tap, game=game),
                ]
            rows += [
                attack_row(
                    "multi-round vote of rank-1 sign",
                    OTHER_AUC["multi-round vote of rank-1 sign"][seen],
                    [10, 20, 30, 40],
                    tap=tap,
                    game=game,
                ),
                attack_row("popularity", popular, [10, 20, 30, 40], tap=tap, game=game),
            ]
    return rows


def utility_rows(name: str, shift: float) -> list[UtilityRow]:
    rows = []
    for metric, table, se in (("hr", HR, 0.015), ("ndcg", NDCG, 0.012)):
        value = table[name] + shift
        rows.append(
            UtilityRow(
                part="test",
                round=100,
                state="private",
                name=metric,
                k=10,
                value=value,
                lo=value - 1.96 * se,
                hi=value + 1.96 * se,
                n_users=943,
            )
        )
    return rows


def make_run(method: str, setting: str, seed: int, /, **changes: object) -> Run:
    shift = 0.003 * (seed - 1)
    popular = method == "popularity"
    run = {
        "run_id": f"{method}-{setting}-{seed}",
        "method": method,
        "setting": SETTINGS[setting],
        "plan": PLANS[setting] | {"sampling": {"kind": "all"}, "delta": 1e-5},
        "seed": seed,
        "rounds": 1 if popular else 100,
        "clients_per_round": 943.0,
        "sampling": "all",
        "utility": utility_rows("popularity" if popular else setting, 0.0 if popular else shift),
        "guarantee": guarantee(setting),
        "attacks": [] if popular else attack_rows(setting, shift / 10),
        "comm": TrafficRow(up_bytes_per_client_round=215_296.0, down_bytes_per_client_round=430_592.0),
        "wall": TimeRow(
            train_s=171.0 + seed,
            privacy_s=6.0 if setting != "none" else 0.0,
            attack_s=14.2,
            cpu_s=190.0 + seed,
        ),
        "peak_rss_bytes": 640_000_000,
        "clipped_fraction": 1.0 if setting == "local_laplace" else None,
    }
    return Run.model_validate(run | changes)


def make_report(runs: list[Run], **changes: object) -> AuditReport:
    config = {
        "method": "gpfedrec",
        "data": "ml-100k",
        "rounds": 100,
        "seeds": 3,
        "graph": {"metric": "similarity"},
    }
    report = {
        "created": "2026-11-21T10:00:00+00:00",
        "privfed_version": "0.1.0",
        "environment": {"python": "3.11.2", "torch": "2.13.0", "platform": "Linux", "threads": 1},
        "config": config,
        "config_sha256": config_sha256(config),
        "dataset": {
            "name": "ml-100k",
            "users": 943,
            "items": 1682,
            "distinct_items": 1682,
            "interactions": 100_000,
            "density": 0.063,
            "synthetic": False,
            "split": "The newest interaction of each user is the test item, the next for validation.",
        },
        "protocol": ProtocolUsed(
            settings={
                "candidates": "sampled",
                "n_sampled": 99,
                "negatives": "all",
                "ties": "random",
                "state": "private",
            },
            sentence=(
                "Leave-one-out by time; one held-out item among 99 sampled ones; ties broken at random; "
                "the model evaluated is each person's own, before the server's next tables arrive."
            ),
        ),
        "runs": runs,
        "not_run": [
            NotRun(what="membership by randomised inclusion", why="this audit scores natural membership only"),
            NotRun(
                what="attacks on the sum and on the finished model",
                why="GPFedRec's graph needs individual uploads",
            ),
        ],
        "self_checks": [SelfCheck(name="accountants agree", passed=True, detail="PLD 68.3 is at most RDP 70.8")],
    }
    return conclude(AuditReport.model_validate(report | changes))


SECRET = ("published_noise", "local_laplace", "central_gaussian")
SETTINGS["central_gaussian"] = Setting(slug="central_gaussian", name="central Gaussian (z = 1.1, C = 1), poisson 0.1")
PLANS["central_gaussian"] = {
    "mechanism": {"kind": "central_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.1},
}
CENTRAL = {
    "epsilon": 7.94,
    "reason_if_inf": None,
    "trust": "central",
    "neighbours": "add_or_remove_one",
    "accountant": "PLD (dp-accounting)",
    "accountant_version": "0.6.0",
    "cross_check": {"PRV (Opacus)": 7.95, "RDP (dp-accounting)": 8.6},
}
STRENGTH = {"none": 1.0, "published_noise": 0.8, "local_laplace": 0.02, "central_gaussian": 0.25}
"""How much of a leak is left under each setting, between none and all."""
MODELS = {"fedmf": 0.02, "fedncf": 0.0, "pfedrec": 0.03, "gpfedrec": 0.035, "feddae": -0.02}


def slices(auc: float) -> list[SliceRow]:
    """Rare items are easier to tell where an attack works at all; quiet people too."""
    rows = []
    for by, slope in (("popularity", -0.25), ("activity", -0.12)):
        for group in range(10):
            value = min(0.999, 0.5 + (auc - 0.5) * (1 + slope * (group - 4.5) / 4.5))
            rows.append(
                SliceRow(
                    by=by,
                    group=group,
                    lowest=2.0**group,
                    highest=2.0 ** (group + 1) - 1,
                    n_users=10 if by == "activity" else 100,
                    n_members=1000,
                    auc=Interval(value=value, lo=value - 0.02, hi=min(1.0, value + 0.02)),
                    popularity_auc=0.55 if by == "popularity" else 0.84,
                )
            )
    return rows


def coin_rows(setting: str, claim: GuaranteeRow, tap: str) -> list[AttackRow]:
    """Randomised inclusion: popularity is no better than chance, and a finite claim puts a ceiling on everything."""
    rows = []
    for name, strong in (("multi-round vote of rank-1 sign", 0.49), ("row norm", 0.2), ("popularity", 0.0)):
        changes = {"game": "randomised inclusion", "membership": "randomised", "popularity_auc": 0.5}
        row = attack_row(name, 0.5 + strong * STRENGTH[setting], [10, 20, 30, 40], tap=tap, **changes)
        if has_ceiling(row, claim):
            epsilon, delta = interaction_level(claim)
            ceiling = CeilingRow(epsilon=epsilon, delta=delta, auc=inclusion_auc_ceiling(claim), beaten=False)
            row = row.model_copy(update={"ceiling": ceiling})
        rows.append(row)
    return rows


def empirical_rows(setting: str, claim: GuaranteeRow, tap: str) -> list[EmpiricalRow]:
    strength = STRENGTH[setting]
    of_user = {"unit": "user", "neighbours": "add_or_remove_one", "delta": 1e-5, "confidence": 0.95}
    rows = [
        EmpiricalRow(
            estimator="one run, f-DP",
            kind="lower bound",
            audited="single interactions",
            tap=tap,
            value=4.1 * strength,
            confidence=0.95,
            delta=1e-5,
            unit="interaction",
            neighbours="add_or_remove_one",
            trials=4000,
            accounted=claim.epsilon,
            consistent=True,
        ),
        EmpiricalRow(
            estimator="one-shot canaries",
            kind="estimate",
            audited="whole users",
            tap=tap,
            value=9.0 * strength + 0.6,
            lo=7.5 * strength,
            hi=10.0 * strength + 1.2,
            trials=200,
            accounted=claim.epsilon,
            placebo=1.8,
            assumes="cosines are normal",
            consistent=True,
            **of_user,
        ),
        EmpiricalRow(
            estimator="one-shot canaries, exact null",
            kind="lower bound",
            audited="whole users",
            tap=tap,
            value=3.2 * strength,
            trials=200,
            accounted=claim.epsilon,
            consistent=True,
            **of_user,
        ),
    ]
    if claim.trust == "local":
        rows.append(
            EmpiricalRow(
                estimator="Clopper-Pearson",
                kind="lower bound",
                audited="one upload of the mechanism",
                tap="wire",
                value=0.93,
                confidence=0.95,
                delta=0.0,
                unit="upload",
                neighbours="replace_one",
                trials=10_000,
                accounted=1.0,
                consistent=True,
            )
        )
    return rows


def attribute_rows(setting: str, tap: str) -> list[AttributeRow]:
    rows = []
    for attribute, classes, truth, majority in (
        ("gender", "women and men", 0.80, 0.72),
        ("age", "below and above 35", 0.74, 0.57),
    ):
        for evidence, at, value in (
            ("true interactions", None, truth),
            ("uploads of the item table", tap, 0.5 + (truth - 0.51) * STRENGTH[setting]),
        ):
            rows.append(
                AttributeRow(
                    attribute=attribute,
                    classes=classes,
                    evidence=evidence,
                    tap=at,
                    knowledge=["the attribute of half of the people"],
                    auc=about(value, 0.03),
                    balanced_accuracy=about(0.5 + (value - 0.5) * 0.7, 0.03),
                    majority=majority,
                    n_users=943,
                )
            )
    return rows


def full_run(method: str, setting: str, seed: int) -> Run:
    """A run with everything that schema 2 can hold."""
    central = setting == "central_gaussian"
    seen = "local_laplace" if central else setting
    claim = guarantee(seen, **(CENTRAL if central else {}))
    tap = "sum" if central else "wire"
    attacks = [row for row in attack_rows(seen, 0.0) if not central or row.tap == "raw"]
    if central:
        attacks += [
            attack_row(name, value, [40], tap=tap)
            for name, value in (("rank-1 sign", 0.71), ("row norm", 0.83), ("popularity", 0.842))
        ]
    attacks = [
        row.model_copy(update={"slices": slices(row.auc.value)}) if row.attack != "popularity" else row
        for row in attacks
    ]
    value = {"none": 0.40, "published_noise": 0.37, "local_laplace": 0.12, "central_gaussian": 0.31}[setting]
    value += MODELS[method] + 0.003 * seed
    return make_run(
        method,
        seen,
        seed,
        run_id=f"{method}-{setting}-{seed}",
        setting=SETTINGS[setting],
        plan=PLANS[setting] | {"sampling": {"kind": "all"}, "delta": 1e-5},
        guarantee=claim,
        attacks=attacks + coin_rows(setting, claim, tap),
        empirical=empirical_rows(setting, claim, tap) if setting in SECRET else empirical_rows(setting, claim, tap)[:1],
        attributes=attribute_rows(setting, tap),
        inclusion=4000,
        ledger=[LedgerLine(event="LaplaceDpEvent(noise_multiplier=1.0)", times=100)] if claim.finite else [],
        utility=[
            row.model_copy(update={"value": at, "lo": at - 0.02, "hi": at + 0.02})
            for row, at in zip(utility_rows("none", 0.0), (value + 0.2, value), strict=True)
        ],
    )


@pytest.fixture(scope="session")
def full_report() -> AuditReport:
    """One method with everything measured: attacks, inclusion bits, canaries, attributes, tenths."""
    runs = [make_run("popularity", "none", 0)]
    return make_report(
        runs + [full_run("gpfedrec", setting, 0) for setting in STRENGTH if setting != "central_gaussian"]
    )


@pytest.fixture(scope="session")
def large_report() -> AuditReport:
    """Five methods under four settings."""
    runs = [make_run("popularity", "none", 0)]
    return make_report(runs + [full_run(method, setting, 0) for method in MODELS for setting in STRENGTH])


@pytest.fixture(scope="session")
def report() -> AuditReport:
    runs = [make_run("popularity", "none", seed) for seed in range(3)]
    runs += [
        make_run("gpfedrec", setting, seed)
        for setting in ("none", "published_noise", "local_laplace")
        for seed in range(3)
    ]
    return make_report(runs)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The builders above, for tests that change one thing."""
    return SimpleNamespace(
        run=make_run, full=full_run, report=make_report, attack=attack_row, guarantee=guarantee, slices=slices
    )
