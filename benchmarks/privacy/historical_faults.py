"""Faults that users found in shipped differential privacy, each planted in a small mechanism and audited.

    python -m benchmarks.privacy.historical_faults          # then `python -m benchmarks.tables`

What is planted is the fault that the thread of a tracker describes, in a few lines of our own and at a size that an
audit reads in a second; the project's own code of that time is not run. `tests/attacks/test_mechanism.py` plants the
same functions.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attacks.empirical import mu_from_epsilon
from attacks.mechanism import Claim, MechanismReport, audit_mechanism
from benchmarks import harness
from benchmarks.privacy.mechanism_false_alarms import Release, clip

CLAIM = Claim(2.0, 1e-5)
NOISE = 1 / mu_from_epsilon(CLAIM.epsilon, CLAIM.delta)
"""Standard deviation with which a sum of rows of length 1 keeps the claim."""
REPORTED = 70_333.0
"""Epsilon of a round that a downstream of NVFlare read off its stock filter."""


def values_left_by_a_draw(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Values above a noisy threshold are drawn with replacement and noised; those that are not drawn pass clipped."""
    total = clip(rows).sum(axis=0)
    accepted = np.flatnonzero(np.abs(total + generator.laplace(0, 2 / CLAIM.epsilon, len(total))) > 0.1)
    sent = np.zeros_like(total)
    sent[accepted] = total[accepted]
    if len(accepted):
        drawn = generator.choice(accepted, len(accepted))
        sent[drawn] = total[drawn] + generator.laplace(0, 2 / CLAIM.epsilon, len(drawn))
    return np.asarray(sent)


def divided_by_the_batch(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Sum and noise are divided by the true size of the batch."""
    noisy = clip(rows).sum(axis=0) + generator.normal(0, NOISE, rows.shape[1])
    return np.asarray(noisy / max(len(rows), 1))


def divided_by_a_rounded_size(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Sum and noise are divided by half the size of the data set, rounded down, for an expected size of a batch."""
    noisy = clip(rows).sum(axis=0) + generator.normal(0, NOISE, rows.shape[1])
    return np.asarray(noisy / max(len(rows) // 2, 1))


def noised_for_one_round(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A right sum for one round; the claim is that of as many rounds as are run."""
    return np.asarray(clip(rows).sum(axis=0) + generator.normal(0, NOISE, rows.shape[1]))


def noised_value_by_value(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Laplace noise for every value of its own; here few values, each with its share of the reported epsilon."""
    bounded = np.nan_to_num(rows).clip(-1, 1).sum(axis=0)
    return np.asarray(bounded + generator.laplace(0, rows.shape[1] / REPORTED, rows.shape[1]))


@dataclass(frozen=True)
class Fault:
    """A fault as its tracker tells it.

    Attributes:
        subject: Project and number of the thread.
        told: What it tells.
        release: The mechanism in which it is planted.
        claim: What the project's users could believe.
        finding: Subject of the finding that has to name it.
    """

    subject: str
    told: str
    release: Release
    claim: Claim
    finding: str


FAULTS = (
    Fault("NVFlare 343", "values passed a privacy filter without noise", values_left_by_a_draw, CLAIM, "influence"),
    Fault("Opacus 571", "normalised by the size of the batch", divided_by_the_batch, CLAIM, "number of users"),
    Fault("Opacus 819", "by an expected size rounded down", divided_by_a_rounded_size, CLAIM, "number of users"),
    Fault(
        "FL-bench 200",
        "rounds counted once",
        noised_for_one_round,
        Claim(CLAIM.epsilon, CLAIM.delta, steps=20),
        "steps",
    ),
    Fault(
        "FLIP 1145", "epsilon 70,333 in a round of NVFlare's defaults", noised_value_by_value, Claim(0.1), "influence"
    ),
)


def audited(fault: Fault, *, trials: int) -> MechanismReport:
    """The audit of a planted fault, on eight rows of eight numbers."""
    return audit_mechanism(fault.release, fault.claim, trials=trials, extremes=False, budget_seconds=1e6)


def measured(fault: Fault, trials: int) -> dict[str, Any]:
    """A row: what is bounded, and which findings reject the claim."""
    started = time.process_time()
    report = audited(fault, trials=trials)
    return {
        "subject": fault.subject,
        "told": fault.told,
        "planted": fault.release.__name__,
        "claim": asdict(fault.claim),
        "bound": round(min(report.epsilon, 1e9), 3),
        "confidence": report.confidence,
        "caught_by": [found.subject for found in report.findings if found.verdict == "violation"],
        "sentence": report.finding(fault.finding).sentence,
        "cpu_s": round(time.process_time() - started, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Audit every planted fault and write the table's rows."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--trials", type=int, default=2_000, help="fresh trials in each world (default: %(default)s)")
    options = harness.parse(parser, arguments)
    record = harness.Record("historical_faults", options, {}, anew=True)
    record.results = {"reported": REPORTED, "faults": [measured(fault, options.trials) for fault in FAULTS]}
    record.save()
    for row in record.results["faults"]:
        print(
            f"{row['subject']}: epsilon >= {row['bound']:.4g} against {row['claim']['epsilon']:g} ({row['caught_by']})"
        )


if __name__ == "__main__":
    main()
