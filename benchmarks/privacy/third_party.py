"""Mechanisms of other packages against what these packages claim of them.

    python -m benchmarks.privacy.third_party --environments FOLDER          # then `python -m benchmarks.tables`

Every row is an audit by `attacks.mechanism` of the package's own code through `attacks.mechanism.adapters`, in a
process of the environment that has the package: FOLDER/nvflare, FOLDER/pfl, FOLDER/jax_privacy and FOLDER/opake are
virtual environments with the package over this one's; Flower and Opacus are in this one. Rows that were measured stay.

A claim is the package's own where the row names who makes it, its accountant or documentation, for this setting. Where
nobody does, the claim is what the noise multiplier would give, so that the bound has something to be compared with, and
there is no verdict. NaN and infinity are judged apart from finite numbers.
"""

import dataclasses
import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attacks.mechanism import Claim, MechanismReport, audit_mechanism
from benchmarks import harness

DISTRIBUTIONS = {
    "flower": "flwr",
    "opacus": "opacus",
    "nvflare": "nvflare",
    "pfl": "pfl",
    "jax_privacy": "jax_privacy",
    "opake": "opake",
}
"""Adapter -> distribution."""
HERE = ("flower", "opacus")
"""Adapters whose packages this environment has."""
TRIALS = 300
SECONDS = 240.0
"""Of the wall: a quarter is for the search, and the machine may do other things besides."""


@dataclass(frozen=True)
class Row:
    """An audit.

    Attributes:
        adapter: Of the package.
        mechanism: The package's name of it.
        setting: What was chosen.
        release: Expression that makes the mechanism, of the adapter's functions.
        claim: Expression that makes the claim.
        source: Who claims it; "" if nobody.
        users: Rows of the example.
        width: Numbers of a row.
        options: Further arguments of the audit.
        checked: What reading the package's code says of a fault that was measured.
    """

    adapter: str
    mechanism: str
    setting: str
    release: str
    claim: str
    source: str
    users: int = 3
    width: int = 8
    options: dict[str, Any] = field(default_factory=dict)
    checked: str = ""

    @property
    def name(self) -> str:
        """Name of the row in the file."""
        return f"{DISTRIBUTIONS[self.adapter]} {self.mechanism}, {self.setting}"


ROWS: tuple[Row, ...] = (
    Row(
        "flower",
        "DifferentialPrivacyServerSideFixedClipping",
        "noise multiplier 2",
        "flower.fixed_clipping(2.0)",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "RdpAccountant, with a client's update zeroed",
    ),
    Row(
        "flower",
        "DifferentialPrivacyClientSideFixedClipping",
        "noise multiplier 2, fixedclipping_mod",
        "flower.fixed_clipping(2.0, side='client')",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "RdpAccountant, with a client's update zeroed",
    ),
    Row(
        "flower",
        "DifferentialPrivacyServerSideFixedClipping",
        "noise multiplier 1, 3 clients sampled of a population that one joins",
        "flower.fixed_clipping(1.0, clients=3, accountant=True)",
        "flower.claim(1.0, 4, delta=0.05)",
        "RdpAccountant, add or remove",
        width=1,
        options={"trials": 2_500, "min_users": 3, "extremes": False},
        checked=(
            "whoever joins takes another one's place among a fixed number of clients, which moves the mean by up "
            "to twice what the accountant's add-or-remove relation counts; with an update zeroed instead (first "
            "row) the claim was not rejected"
        ),
    ),
    Row(
        "flower",
        "DifferentialPrivacyServerSideFixedClipping",
        "noise multiplier 2, no accountant, a client says that it has 1,000 examples",
        "flower.fixed_clipping(2.0)",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "",
        checked=(
            "FedAvg weights updates by the examples that clients report, the noise does not know; with an "
            "accountant unequal weights are refused"
        ),
    ),
    Row(
        "flower",
        "DifferentialPrivacyServerSideFixedClipping",
        "noise multiplier 2, no accountant, made for 8 clients while fewer reply",
        "flower.expected_clients(2.0, 8)",
        "flower.claim(2.0, 8)",
        "",
        options={"min_users": 1},
        checked="the wrapper logs a warning and goes on; with an accountant it releases nothing",
    ),
    Row(
        "flower",
        "DifferentialPrivacyServerSideAdaptiveClipping",
        "noise multiplier 2, noise on the count 2",
        "flower.adaptive_clipping(2.0, count_noise=2.0)",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "noise multiplier by Theorem 1 of the paper that it cites",
        checked=(
            "suspected, and too small for this audit: the noise is scaled by the clipping norm after its update, "
            ".86 to .91 of the one that clipped where all are clipped; the number of clipped clients changes by 1"
            " and is accounted for as 1/2; the same holds on the client side"
        ),
    ),
    Row(
        "flower",
        "DifferentialPrivacyClientSideAdaptiveClipping",
        "noise multiplier 2, noise on the count 2, adaptiveclipping_mod",
        "flower.adaptive_clipping(2.0, count_noise=2.0, side='client')",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "noise multiplier by Theorem 1 of the paper that it cites",
    ),
    Row(
        "flower",
        "DifferentialPrivacyClientSideAdaptiveClipping",
        "the same with the metrics of the round",
        "flower.adaptive_clipping(2.0, count_noise=2.0, side='client', metrics=True)",
        "replace(flower.claim(2.0, 3), neighbours='zero_out')",
        "",
        checked=(
            "the mod writes each client's bit into the metrics, which FedAvg averages without noise; Flower's "
            "accountant says that metrics are not included"
        ),
    ),
    Row(
        "flower",
        "LocalDpMod",
        "epsilon 1, sensitivity twice the clipping norm",
        "flower.local_dp(1.0, 1e-5, sensitivity=2.0)",
        "Claim(1.0, 1e-5, 'replace')",
        "its arguments",
        users=1,
    ),
    Row(
        "flower",
        "LocalDpMod",
        "epsilon 1, sensitivity the clipping norm",
        "flower.local_dp(1.0, 1e-5, sensitivity=1.0)",
        "Claim(1.0, 1e-5, 'replace')",
        "",
        users=1,
        checked=("such a sensitivity is for a client that is absent, and not for one that sends anything else"),
    ),
    Row(
        "flower",
        "LocalDpMod",
        "epsilon 20, sensitivity twice the clipping norm",
        "flower.local_dp(20.0, 1e-5, sensitivity=2.0)",
        "Claim(20.0, 1e-5, 'replace')",
        "its arguments",
        users=1,
        checked=(
            "the formula for the noise is the classical one, which is for epsilon below 1; nothing refuses a larger one"
        ),
    ),
    *(
        Row(
            "opacus",
            kind,
            f"noise multiplier 2{more}",
            f"opacus.step(2.0{arguments})",
            "opacus.claim(2.0)",
            "PRVAccountant",
        )
        for kind, more, arguments in (
            ("DPOptimizer", "", ""),
            ("DPPerLayerOptimizer", "", ", clipping='per_layer'"),
            ("DPOptimizerFastGradientClipping", ", ghost clipping", ", clipping='ghost'"),
        )
    ),
    Row(
        "opacus",
        "DPOptimizer",
        "noise multiplier 2, secure_mode, bits of the released numbers",
        "opacus.step(2.0, secure_mode=True)",
        "replace(opacus.claim(2.0), arithmetic='machine')",
        "PRVAccountant; secure_mode is for the bits",
        options={"trials": 600},
    ),
    Row(
        "opacus",
        "AdaClipDPOptimizer",
        "noise multiplier 2, noise on the count 4, any batch from 1 record",
        "opacus.step(2.0, clipping='adaptive')",
        "opacus.claim(2.0)",
        "PRVAccountant, by Theorem 1 of the paper that it cites",
        options={"min_users": 1},
        checked=(
            "suspected, and not measured: the count of unclipped gradients is divided by the true size of the "
            "batch, and changes by 1 where 1/2 is accounted for; an empty batch raises"
        ),
    ),
    Row(
        "opacus",
        "AdaClipDPOptimizer",
        "noise multiplier 2, noise on the count 4, batches of 32 and more",
        "opacus.step(2.0, clipping='adaptive', batch=32)",
        "opacus.claim(2.0)",
        "PRVAccountant, by Theorem 1 of the paper that it cites",
        users=32,
        options={"min_users": 32},
    ),
    Row(
        "nvflare",
        "SVTPrivacy",
        "as it is by default, 100 numbers",
        "nvflare.svt()",
        "nvflare.svt_claim(100)",
        "its own accountant, for one update in place of another",
        users=1,
        width=100,
        options={"extremes": False, "trials": 1_000},
        checked=(
            "its accountant counts 0.1 and 0.1 for each number sent: epsilon 10,000.1 in a round for 1,000,000 "
            "numbers; an update of NaN alone never returned in 10 s"
        ),
    ),
    Row(
        "nvflare",
        "SVTPrivacy",
        "epsilon 1, epsilon_release 1, fraction 0.2, 10 numbers",
        "nvflare.svt(epsilon=1.0, epsilon_release=1.0, fraction=0.2)",
        "nvflare.svt_claim(10, epsilon=1.0, epsilon_release=1.0, fraction=0.2)",
        "its own accountant, for one update in place of another",
        users=1,
        width=10,
        options={"extremes": False, "trials": 2_000},
    ),
    Row(
        "nvflare",
        "SVTPrivacy",
        "the same with a weight without dimensions",
        "nvflare.svt(scalar=True, epsilon=1.0, epsilon_release=1.0, fraction=0.2)",
        "nvflare.svt_claim(10, epsilon=1.0, epsilon_release=1.0, fraction=0.2)",
        "",
        users=1,
        width=10,
        options={"extremes": False},
        checked="weights without dimensions pass as they are, as its ledger notes",
    ),
    Row(
        "nvflare",
        "PercentilePrivacy",
        "as it is by default",
        "nvflare.percentile()",
        "Claim(1.0, 1e-5, 'replace')",
        "",
        users=1,
    ),
    Row(
        "pfl",
        "GaussianMechanism",
        "central, epsilon 2",
        "pfl.gaussian(2.0, 1e-5)",
        "Claim(2.0, 1e-5)",
        "construct_single_iteration",
    ),
    Row(
        "pfl",
        "GaussianMechanism",
        "local, epsilon 2",
        "pfl.local_gaussian(2.0, 1e-5)",
        "Claim(2.0, 1e-5, 'zero_out')",
        "construct_single_iteration, with a user's update zeroed",
        users=1,
    ),
    Row("pfl", "LaplaceMechanism", "central, epsilon 2", "pfl.laplace(2.0)", "Claim(2.0)", "its argument"),
    Row(
        "pfl",
        "JointMechanism",
        "two GaussianMechanism of epsilon 1 each",
        "pfl.joint_gaussian(2.0, 1e-5)",
        "Claim(2.0, 1e-5)",
        "construct_single_iteration of both, added up",
        checked=("add_noise passes one seed to every mechanism, so that all add the same noise up to its scale"),
    ),
    Row(
        "pfl",
        "AdaptiveClippingGaussianMechanism",
        "noise multiplier 2, noise on the indicator 4",
        "pfl.adaptive_clipping(2.0, indicator_noise=4.0)",
        "Claim(1.9931, 1e-5)",
        "noise multiplier by the paper that it cites",
    ),
    *(
        Row(
            "pfl",
            "BandedMatrixFactorizationMechanism",
            f"noise multiplier 2, {rounds} rounds, min_separation {separation}",
            f"pfl.banded(2.0, {rounds}, {separation})",
            f"pfl.banded_claim(2.0, {rounds}, {separation})",
            "PLDPrivacyAccountant of the participations",
            users=1,
            width=2,
            options={"trials": 600},
            checked=checked,
        )
        for rounds, separation, checked in (
            (
                8,
                8,
                "it takes numpy's lower Cholesky factor L of X, for which L L^T = X, as the C of C^T C = X: rows of C "
                "have norm 1 and not columns, and whoever takes part in the first round moves C X by the norm of "
                "its first column, more with more rounds",
            ),
            (8, 2, ""),
        )
    ),
    Row(
        "jax_privacy",
        "clipped_grad, gaussian_privatizer",
        "noise multiplier 2",
        "jax_privacy.step(2.0)",
        "jax_privacy.claim(2.0)",
        "PLD accountant",
    ),
    Row(
        "jax_privacy",
        "clipped_grad, gaussian_privatizer",
        "noise multiplier 2, nan_safe=False",
        "jax_privacy.step(2.0, nan_safe=False)",
        "jax_privacy.claim(2.0)",
        "PLD accountant; without NaN",
    ),
    Row(
        "opake",
        "clipped_grad, gaussian_noise",
        "noise multiplier 2",
        "opake.step(2.0)",
        "opake.claim(2.0)",
        "noise multiplier",
    ),
    *(
        Row(
            "opake",
            "mf_gaussian_noise",
            f"band_mf_strategy of {bands} bands, noise multiplier 2, 6 rounds, min_sep {separation}",
            f"opake.correlated(2.0, 6, {separation}, {bands})",
            f"opake.correlated_claim(2.0, 6, {separation}, {bands})",
            "noise multiplier, at the sensitivity that the strategy names",
            width=2,
            options={"trials": 400},
        )
        for separation, bands in ((3, 3), (1, 3))
    ),
)


def examples(row: Row) -> Any:
    """Small random rows, in the form that the adapter takes."""
    rows = np.random.default_rng(0).normal(size=(row.users, row.width)) / row.width**0.5
    if row.adapter in ("opacus", "opake"):
        return importlib.import_module("torch").from_numpy(rows).float()
    if "examples" in row.setting:
        return {"update": rows, "examples": np.where(np.arange(row.users) == 0, 1_000, 1)}
    return rows.astype(np.float32) if row.adapter == "jax_privacy" else rows


def measured(row: Row) -> dict[str, Any]:
    """The audit of one row, in a process that has the package."""
    adapter = importlib.import_module(f"attacks.mechanism.adapters.{row.adapter}")
    names = {row.adapter: adapter, "Claim": Claim, "replace": dataclasses.replace}
    release, claim = eval(row.release, names), eval(row.claim, names)
    options = {"budget_seconds": SECONDS} | row.options | {"trials": trials(row)}
    started, cpu = time.monotonic(), time.process_time()
    report = audit_mechanism(release, claim, inputs=examples(row), **options)
    seconds = {"seconds": round(time.monotonic() - started, 1), "cpu_s": round(time.process_time() - cpu, 1)}
    distribution = DISTRIBUTIONS[row.adapter]
    described = {"package": distribution, "version": importlib.metadata.version(distribution)}
    described |= {name: getattr(row, name) for name in ("mechanism", "setting", "source")}
    return described | {"claim": dataclasses.asdict(claim)} | judged(row, report) | seconds


def judged(row: Row, report: MechanismReport) -> dict[str, Any]:
    """Bound and verdict of finite numbers, verdict of others, and all findings."""
    finite = [one for one in report.findings if one.subject != "extreme values"]
    bounds = [one for one in finite if one.epsilon is not None]
    best = max(bounds, key=lambda one: one.epsilon or 0.0)
    broken = any(one.verdict == "violation" for one in finite)
    extreme = [one.verdict for one in report.findings if one.subject == "extreme values"]
    return {
        "bound": min(best.epsilon or 0.0, 1e9),
        "method": best.method,
        "confidence": report.confidence,
        "verdict": ("violation" if broken else "not rejected") if row.source else "no claim",
        "extremes": "not tried"
        if row.options.get("extremes") is False
        else "pass"
        if "violation" in extreme
        else "nothing seen",
        "findings": [
            {"subject": one.subject, "verdict": one.verdict, "sentence": one.sentence} for one in report.findings
        ],
        "calls": report.calls,
        "trials": trials(row),
        "unseen": list(report.unseen),
    }


def trials(row: Row) -> int:
    """Fresh trials in each world."""
    return int(row.options.get("trials", TRIALS))


def reproduced(row: Row, claim: dict[str, Any]) -> list[str]:
    """Two lines that audit it again."""
    rows = f"np.random.default_rng(0).normal(size=({row.users}, {row.width})) / {row.width}**0.5"
    if row.adapter in ("opacus", "opake"):
        rows = f"torch.from_numpy({rows}).float()"
    shown = {"inputs": rows, **{name: value for name, value in row.options.items() if name != "trials"}}
    if "examples" in row.setting:
        shown["inputs"] = f'{{"update": {rows}, "examples": np.array({[1_000] + [1] * (row.users - 1)})}}'
    arguments = ", ".join(f"{name}={value}" for name, value in shown.items())
    return [f"release, claim = {row.release}, Claim(**{claim})", f"audit_mechanism(release, claim, {arguments}).text()"]


def python(adapter: str, environments: Path | None) -> Path | None:
    """Interpreter that has the package of an adapter; None if there is none."""
    if adapter in HERE:
        return Path(sys.executable)
    found = None if environments is None else environments / adapter / "bin" / "python"
    return found if found is not None and found.exists() else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every row that is not there yet."""
    parser = harness.parser(__file__, __doc__, only=None)
    parser.add_argument("--environments", type=Path, help="folder of virtual environments, one for each other package")
    parser.add_argument("--row", help="measure this row in this process and print it")
    options = harness.parse(parser, arguments)
    if options.row:
        print(json.dumps(measured(next(row for row in ROWS if row.name == options.row))))
        return
    record = harness.Record("third_party", options, {})
    for row in ROWS:
        interpreter = python(row.adapter, options.environments)
        if interpreter is None or row.name in record.results or not harness.chosen(row.name, options.only):
            continue
        answer = harness.child("benchmarks.privacy.third_party", "--row", row.name, python=interpreter, limit=300)
        record.put(answer, row.name)
    record.results = {row.name: record.results[row.name] for row in ROWS if row.name in record.results}
    for row in ROWS:
        if "claim" in (found := record.results.get(row.name, {})):
            found |= {"reproduction": reproduced(row, found["claim"]), "trials": trials(row)}
    record.save()


if __name__ == "__main__":
    main()
