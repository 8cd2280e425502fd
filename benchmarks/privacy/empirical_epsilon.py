"""What the estimators of `attacks` make of mechanisms whose epsilon is known.

    python -m benchmarks.privacy.empirical_epsilon

Five tables, those of `docs/explanation/empirical_epsilon.md`: two inputs, one run, one-shot canaries, how often each
bound lies above the truth, and how the one-shot estimates scatter. Delta is 1e-5 for Gaussian noise and 0 for the
rest, confidence 95 %. One process, one thread, about a minute, no data. Results go to
`benchmarks/results/empirical_epsilon.json`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from scipy.special import expit

from attacks.empirical import (
    CanaryGuesses,
    CredibleBound,
    LowerBound,
    bayesian_epsilon,
    clopper_pearson_epsilon,
    count_guesses,
    epsilon_from_mu,
    gaussian_pair_epsilon,
    gdp_epsilon,
    mu_from_epsilon,
    one_run_epsilon,
    one_run_gdp_epsilon,
    one_shot_epsilon,
    one_shot_lower_bound,
    placebo_floor,
)
from benchmarks import harness

DELTA, REPEATS, PADDED_PLANS = 1e-5, 20, 500

TwoInputs = tuple[np.ndarray, np.ndarray]
Cells = tuple[object, ...]
"""Of one row of a table; the first row has the names of the columns."""


def laplace(rng: np.random.Generator, epsilon: float, n: int) -> TwoInputs:
    """A sum that is 1 or 0, with Laplace noise."""
    return rng.laplace(1, 1 / epsilon, n), rng.laplace(0, 1 / epsilon, n)


def gaussian(rng: np.random.Generator, mu: float, n: int) -> TwoInputs:
    """A sum that is mu or 0, with Gaussian noise."""
    return rng.normal(mu, 1, n), rng.normal(0, 1, n)


def guessed(rng: np.random.Generator, noise: np.ndarray, strength: float, share: float) -> CanaryGuesses:
    """Inclusion bits for as many canaries as there is noise, and guesses at the highest scores."""
    included = rng.random(len(noise)) < 0.5
    return count_guesses(strength * included + noise, included, guess_in=int(share * len(noise)))


def shown(cell: object) -> str:
    """A cell of a table; numbers to two digits."""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def mean(bound: Callable[[], float]) -> float:
    """Over the repeats."""
    return float(np.mean([bound() for _ in range(REPEATS)]))


Estimator = Callable[..., LowerBound | CredibleBound]
PURE: dict[str, Estimator] = {
    "Clopper-Pearson, fixed threshold": partial(clopper_pearson_epsilon, threshold=1.0),
    "Clopper-Pearson, 12 rates": clopper_pearson_epsilon,
    "Bayesian, fixed threshold": partial(bayesian_epsilon, threshold=1.0),
}
"""Estimators of a pure epsilon from draws on two inputs."""


def of_laplace(rng: np.random.Generator, estimator: Estimator, epsilon: float, n: int) -> float:
    """Estimate of a Laplace mechanism on two inputs."""
    return estimator(*laplace(rng, epsilon, n)).epsilon


def of_gaussian(rng: np.random.Generator, estimator: Estimator, mu: float, n: int) -> float:
    """Estimate of a Gaussian mechanism on two inputs."""
    return estimator(*gaussian(rng, mu, n)).epsilon


def of_response(rng: np.random.Generator, epsilon: float, m: int) -> float:
    """Bound from one run of randomised response on m canaries, all of them guessed."""
    return one_run_epsilon(CanaryGuesses(m, m, int(rng.binomial(m, expit(epsilon))))).epsilon


def of_noise(rng: np.random.Generator, epsilon: float, m: int) -> float:
    """Bound from one run with Laplace noise on m canaries, a quarter of them guessed."""
    return one_run_epsilon(guessed(rng, rng.laplace(0, 1 / epsilon, m), 1, 0.25)).epsilon


def of_normal(rng: np.random.Generator, estimator: Estimator, mu: float, m: int, share: float) -> float:
    """Bound from one run with Gaussian noise on m canaries, a share of them guessed."""
    return estimator(guessed(rng, rng.normal(size=m), mu, share), delta=DELTA).epsilon


def of_cosines(rng: np.random.Generator, mu: float) -> float:
    """Bound from the cosines of 200 canaries."""
    return one_shot_lower_bound(rng.normal(mu, 1, 200) / 100, dimensions=10_000, delta=DELTA).epsilon


def two_inputs(rng: np.random.Generator) -> Iterator[Cells]:
    """Draws of a mechanism on two inputs."""
    yield ("noise, true epsilon", "estimator", "n = 500", "2,000", "10,000", "100,000")
    sizes = (500, 2000, 10_000, 100_000)
    for epsilon in (1, 2, 4):
        for name, estimator in PURE.items():
            yield (f"Laplace, {epsilon}", name, *(mean(partial(of_laplace, rng, estimator, epsilon, n)) for n in sizes))
    for epsilon in (1, 2, 4, 8):
        mu = mu_from_epsilon(epsilon, DELTA)
        with_delta: dict[str, Estimator] = {
            "Clopper-Pearson, 12 rates": partial(clopper_pearson_epsilon, delta=DELTA),
            "GDP, fixed threshold": partial(gdp_epsilon, delta=DELTA, threshold=mu / 2),
        }
        for name, estimator in with_delta.items():
            yield (f"Gaussian, {epsilon}", name, *(mean(partial(of_gaussian, rng, estimator, mu, n)) for n in sizes))


def one_run(rng: np.random.Generator) -> Iterator[Cells]:
    """Inclusion bits of one run."""
    yield ("mechanism on each canary", "canaries (guesses)", "estimator", "epsilon 1", "2", "4", "8")
    for m in (100, 1000, 10_000):
        values = [mean(partial(of_response, rng, epsilon, m)) for epsilon in (1, 2, 4)]
        yield ("randomised response", f"{m:,} (all)", "binomial", *values, "")
    for m in (1000, 10_000):
        values = [mean(partial(of_noise, rng, epsilon, m)) for epsilon in (1, 2, 4)]
        yield ("Laplace", f"{m:,} ({m // 4:,})", "binomial", *values, "")
    mus = [mu_from_epsilon(epsilon, DELTA) for epsilon in (1, 2, 4, 8)]
    estimators: dict[str, Estimator] = {"binomial": one_run_epsilon, "GDP": one_run_gdp_epsilon}
    for m in (200, 1000, 4000, 20_000):
        for name, estimator in estimators.items():
            values = [mean(partial(of_normal, rng, estimator, mu, m, 0.05)) for mu in mus]
            yield ("Gaussian", f"{m:,} ({m // 20:,})", name, *values)


def release(rng: np.random.Generator, k: int, d: int, sigma: float) -> np.ndarray:
    """Cosines of k unit directions with their noised sum."""
    directions = rng.standard_normal((k, d), dtype=np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    released = directions.sum(axis=0) + sigma * rng.standard_normal(d, dtype=np.float32)
    cosines: np.ndarray = directions @ released / np.linalg.norm(released)
    return cosines.astype(np.float64)


def one_shot(rng: np.random.Generator) -> Iterator[Cells]:
    """Canary clients in one noised sum."""
    yield (
        "d",
        "canaries",
        "placebo: median",
        "95th percentile",
        "true epsilon",
        "estimate (interval)",
        "bound",
        "note",
    )
    for d, k in ((20_000, 50), (20_000, 200), (20_000, 1000), (2000, 1000)):
        floors = [placebo_floor(k, dimensions=d, delta=DELTA, quantile=q) for q in (0.5, 0.95)]
        for epsilon in (1, 3, 8):
            sigma = 1 / mu_from_epsilon(epsilon, DELTA)
            cosines = release(rng, k, d, sigma)
            found = one_shot_epsilon(cosines, dimensions=d, delta=DELTA, noise_multiplier=sigma)
            bound = one_shot_lower_bound(cosines, dimensions=d, delta=DELTA, noise_multiplier=sigma)
            interval = f"{found.epsilon:.2f} ({found.lo:.2f} to {found.hi:.2f})"
            yield (f"{d:,}", f"{k:,}", *floors, epsilon, interval, bound.epsilon, "too many" if found.note else "")


def scatter(rng: np.random.Generator) -> Iterator[Cells]:
    """Estimates from cosines that are exactly normal."""
    yield (
        "canaries",
        "true epsilon",
        "5th percentile",
        "median",
        "95th percentile",
        f"above the truth in {PADDED_PLANS} audits",
    )
    for k in (200, 1000, 5000):
        for epsilon in (1, 3, 8):
            fits = rng.normal(mu_from_epsilon(epsilon, DELTA), 1, (PADDED_PLANS, k))
            null = np.zeros(PADDED_PLANS), np.ones(PADDED_PLANS)
            estimates = gaussian_pair_epsilon(fits.mean(axis=1), fits.std(axis=1, ddof=1), *null, DELTA)
            ends = np.quantile(estimates, [0.05, 0.5, 0.95]).tolist()
            yield (f"{k:,}", epsilon, *ends, f"{np.mean(estimates > epsilon):.0%}")


def audits(rng: np.random.Generator) -> Iterator[tuple[str, str, float, Callable[[], float]]]:
    """Bounds whose truth is known: estimator, mechanism, truth, one run."""
    for epsilon in (1.0, 3.0):
        for name, estimator in PURE.items():
            law = f"Laplace, {epsilon:g}, 400 samples of each input"
            label = f"{name} (credible)" if name.startswith("Bayesian") else name
            yield label, law, epsilon, partial(of_laplace, rng, estimator, epsilon, 400)
    for mu in (0.3, 1.0):
        truth = epsilon_from_mu(mu, DELTA)
        law = f"Gaussian, {truth:.2f}, 400 samples of each input"
        cuts: dict[str, Estimator] = {
            "GDP, fixed threshold": partial(gdp_epsilon, delta=DELTA, threshold=mu / 2),
            "GDP, 12 rates": partial(gdp_epsilon, delta=DELTA),
        }
        for name, estimator in cuts.items():
            yield name, law, truth, partial(of_gaussian, rng, estimator, mu, 400)
    for epsilon in (1.0, 3.0):
        law = f"randomised response, {epsilon:g}, 300 inclusion bits"
        yield "one run", law, epsilon, partial(of_response, rng, epsilon, 300)
    for mu in (0.5, 2.0):
        truth = epsilon_from_mu(mu, DELTA)
        law = f"Gaussian, {truth:.2f}, 200 inclusion bits"
        yield "one run, GDP", law, truth, partial(of_normal, rng, one_run_gdp_epsilon, mu, 200, 0.2)
        yield "one-shot, exact null", f"Gaussian, {truth:.2f}, 200 canaries", truth, partial(of_cosines, rng, mu)


def coverage(rng: np.random.Generator) -> Iterator[Cells]:
    """How often a bound is too high."""
    yield ("bound", "mechanism, true epsilon, size", f"above the truth in {PADDED_PLANS} runs")
    for name, law, truth, bound in audits(rng):
        yield (name, law, f"{np.mean([bound() > truth for _ in range(PADDED_PLANS)]):.1%}")


TABLES: dict[str, Callable[[np.random.Generator], Iterator[Cells]]] = {
    "two inputs": two_inputs,
    "one run": one_run,
    "one-shot canaries": one_shot,
    "coverage": coverage,
    "scatter": scatter,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every table."""
    options = harness.parse(harness.parser(__file__, __doc__), arguments)
    record = harness.Record("empirical_epsilon", options, {}, anew=True)
    for number, (name, rows) in enumerate(TABLES.items()):
        head, *body = ([shown(cell) for cell in cells] for cells in rows(np.random.default_rng(number)))
        record.put({"head": head, "rows": body}, name)


if __name__ == "__main__":
    main()
