"""How often the audit of a mechanism rejects claims that are true and tight.

    python -m benchmarks.privacy.mechanism_false_alarms --mechanisms 500

Every claim is the smallest that is true of its mechanism, so that a bound which errs upwards rejects it: Gaussian sums
(analytic calibration), single, composed, and wide enough for a bound from one call; Laplace sums; Poisson-subsampled
Gaussian sums, whose claim is the amplified one; two-sided geometric counts; randomised response. Epsilon,
width, number of users and the relation between neighbours vary. What no replay sees gets more trials and larger
epsilons, or its bounds would be near 0 and could reject nothing. The audit states that it rejects at most a share of
0.05 of true claims.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from attacks.empirical import mu_from_epsilon
from attacks.mechanism import ALPHA, Claim, audit_mechanism
from attacks.mechanism.claim import Neighbours
from benchmarks import harness

DELTA = 1e-5
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
NEIGHBOURS: tuple[Neighbours, ...] = ("add_or_remove", "zero_out", "replace")
COUNTED = 4
"""Times as many trials where error rates are all that a bound is made of."""
COUNTED_EPSILONS = (1.0, 2.0, 4.0)
RATE, RATE_DELTA = 0.5, 0.05
"""Of Poisson sampling, with a delta at which what sampling leaves shows in some thousand trials."""
WIDE = 64
"""Coordinates of the sums that one call is read of."""

Release: TypeAlias = Callable[[np.ndarray, np.random.Generator], np.ndarray]
Example: TypeAlias = tuple[Release, Claim, np.ndarray]


def clip(rows: np.ndarray) -> np.ndarray:
    """Finite rows, each of length one at most."""
    finite = np.nan_to_num(rows, nan=0.0, posinf=1e100, neginf=-1e100).clip(-1e100, 1e100)
    return np.asarray(finite / np.maximum(np.linalg.norm(finite, axis=1, keepdims=True), 1.0))


def gaussian(claim: Claim, rows: np.ndarray) -> Example:
    """Sum of clipped rows, and Gaussian noise for exactly the claim."""
    sensitivity = 2.0 if claim.neighbours == "replace" else 1.0
    scale = sensitivity * math.sqrt(claim.steps) / mu_from_epsilon(claim.epsilon, claim.delta)

    def release(inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.asarray(clip(inputs).sum(axis=0) + generator.normal(0, scale, inputs.shape[1]))

    return release, claim, rows


def sampled_epsilon(mu: float, rate: float, delta: float) -> float:
    """Exact epsilon at delta of a unit that moves standard Gaussian noise by mu and is there at a rate."""

    def excess(epsilon: float) -> float:
        # The likelihood ratio of (1 - rate) N(0, 1) + rate N(mu, 1) and N(0, 1) passes e^epsilon here.
        cut = (math.log((math.exp(epsilon) - 1 + rate) / rate) + mu**2 / 2) / mu
        present = (1 - rate) * norm.sf(cut) + rate * norm.sf(cut - mu)
        return float(present - math.exp(epsilon) * norm.sf(cut) - delta)

    return float(brentq(excess, 1e-9, 50.0))


def subsampled(mu: float, neighbours: Neighbours, rows: np.ndarray) -> Example:
    """Sum of clipped rows, each there at a rate, and Gaussian noise, with the epsilon that sampling leaves."""

    def release(inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        here = inputs[generator.random(len(inputs)) < RATE]
        return np.asarray(clip(here).sum(axis=0) + generator.normal(0, 1 / mu, inputs.shape[1]))

    return release, Claim(sampled_epsilon(mu, RATE, RATE_DELTA), RATE_DELTA, neighbours), rows


def laplace(claim: Claim, rows: np.ndarray) -> Example:
    """Sum of rows of L1 norm one at most, and Laplace noise."""
    scale = (2.0 if claim.neighbours == "replace" else 1.0) / claim.epsilon

    def release(inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        bounded = np.nan_to_num(inputs).clip(-1, 1) / inputs.shape[1]
        return np.asarray(bounded.sum(axis=0) + generator.laplace(0, scale, inputs.shape[1]))

    return release, claim, rows


def counts(claim: Claim, categories: np.ndarray) -> Example:
    """Histogram with two-sided geometric noise."""
    stop = -math.expm1(-claim.epsilon / (2.0 if claim.neighbours == "replace" else 1.0))
    bins = int(categories.max()) + 1

    def release(inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        noise = generator.geometric(stop, bins) - generator.geometric(stop, bins)
        return np.asarray(np.bincount(inputs, minlength=bins) + noise)

    return release, claim, categories


def responses(claim: Claim, bits: np.ndarray) -> Example:
    """Randomised response of every user."""
    keep = 1 / (1 + math.exp(-claim.epsilon))

    def release(inputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.where(generator.random(len(inputs)) < keep, inputs, 1 - inputs)

    return release, claim, bits


def mechanism(number: int) -> tuple[str, Example]:
    """The mechanism of a number: its kind, and what an audit takes."""
    generator = np.random.default_rng([26, number])
    epsilon = float(generator.choice(EPSILONS))
    counted = float(generator.choice(COUNTED_EPSILONS))
    neighbours = NEIGHBOURS[int(generator.integers(3))]
    users, width = int(generator.integers(3, 12)), int(generator.integers(1, 17))
    rows = generator.normal(size=(users, width))
    categories = generator.integers(0, 5, size=users)
    kinds: dict[str, Callable[[], Example]] = {
        "Gaussian": lambda: gaussian(Claim(epsilon, DELTA, neighbours), rows),
        "Gaussian, 20 steps": lambda: gaussian(Claim(epsilon, DELTA, neighbours, steps=20), rows),
        "Gaussian, wide": lambda: gaussian(Claim(epsilon, DELTA, neighbours), generator.normal(size=(users, WIDE))),
        # To a sum, a row of zeros is as good as none; one in the place of another has no closed form.
        "subsampled Gaussian": lambda: subsampled(1 + counted / 2, NEIGHBOURS[number // 7 % 2], rows),
        "Laplace": lambda: laplace(Claim(epsilon, 0.0, neighbours), rows),
        "geometric counts": lambda: counts(Claim(counted, 0.0, "replace"), categories),
        "randomised response": lambda: responses(Claim(counted, 0.0, "replace"), categories % 2),
    }
    kind = list(kinds)[number % len(kinds)]
    return kind, kinds[kind]()


def measured(number: int, trials: int) -> dict[str, Any]:
    """What the audit says of one mechanism."""
    kind, (release, claim, rows) = mechanism(number)
    trials *= COUNTED if kind in ("subsampled Gaussian", "geometric counts", "randomised response") else 1
    started = time.process_time()
    report = audit_mechanism(release, claim, inputs=rows, seed=1_000_000 * number, trials=trials, budget_seconds=1e6)
    one_call = [found.epsilon for found in report.findings if found.subject == "one call"]
    return {
        "kind": kind,
        "epsilon": round(claim.epsilon, 4),
        "neighbours": claim.neighbours,
        "bound": round(report.epsilon, 4),
        **({"one_call": round(one_call[0] or 0.0, 4)} if one_call else {}),
        "alarm": report.violated,
        "cpu_s": round(time.process_time() - started, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Audit all of them and write how many were rejected."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--mechanisms", type=int, default=500, help="number of mechanisms (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=1_000, help="fresh trials in each world (default: %(default)s)")
    options = harness.parse(parser, arguments)
    record = harness.Record("mechanism_false_alarms", options, {}, anew=True)
    rows = [measured(number, options.trials) for number in range(options.mechanisms)]
    alarms = [row for row in rows if row["alarm"]]
    record.results = {
        "mechanisms": len(rows),
        "alarms": len(alarms),
        "stated": ALPHA,
        "cpu_s": round(sum(row["cpu_s"] for row in rows), 1),
        "rows": rows,
    }
    record.save()
    print(f"{len(alarms)} of {len(rows)} true claims were rejected; at most {ALPHA:.0%} are allowed.")
    for row in alarms:
        print(f"  {row}")


if __name__ == "__main__":
    main()
