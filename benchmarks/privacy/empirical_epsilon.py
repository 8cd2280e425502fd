"""What the estimators of `attacks` make of mechanisms whose epsilon is known.

    python -m benchmarks.privacy.empirical_epsilon

Five tables in Markdown, those of `docs/empirical_epsilon.md`: two worlds, one run, one-shot canaries, how often each
bound lies above the truth, and how the one-shot estimates scatter. Delta is 1e-5 for Gaussian noise and 0 for the rest,
confidence 95 %. One process, one thread, about a minute, no data.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import expit

from attacks.empirical import (
    CanaryGuesses,
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

Worlds = tuple[np.ndarray, np.ndarray]


def laplace(rng: np.random.Generator, epsilon: float, n: int) -> Worlds:
    """A sum that is 1 or 0, with Laplace noise."""
    return rng.laplace(1, 1 / epsilon, n), rng.laplace(0, 1 / epsilon, n)


def gaussian(rng: np.random.Generator, mu: float, n: int) -> Worlds:
    """A sum that is mu or 0, with Gaussian noise."""
    return rng.normal(mu, 1, n), rng.normal(0, 1, n)


def guessed(rng: np.random.Generator, noise: np.ndarray, strength: float, share: float) -> CanaryGuesses:
    """Coins for as many canaries as there is noise, and guesses at the highest scores."""
    included = rng.random(len(noise)) < 0.5
    return count_guesses(strength * included + noise, included, guess_in=int(share * len(noise)))


def row(*cells: object) -> None:
    """One line of a table; numbers to two digits."""
    print("|", " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells), "|")


def head(*cells: str) -> None:
    """Its first two."""
    row(*cells)
    print("|" + "---|" * len(cells))


def mean(bound: Callable[[], float]) -> float:
    """Over the repeats."""
    return float(np.mean([bound() for _ in range(REPEATS)]))


def two_worlds(rng: np.random.Generator) -> None:
    """Draws of a mechanism on two inputs."""
    head("noise, true epsilon", "estimator", "n = 500", "2,000", "10,000", "100,000")
    sizes = (500, 2000, 10_000, 100_000)
    for epsilon in (1, 2, 4):
        for name, of in {
            "Clopper-Pearson, fixed cut": lambda run: clopper_pearson_epsilon(*run, threshold=1.0),
            "Clopper-Pearson, 12 rates": lambda run: clopper_pearson_epsilon(*run),
            "Bayesian, fixed cut": lambda run: bayesian_epsilon(*run, threshold=1.0),
        }.items():
            values = [mean(lambda n=n, e=epsilon, of=of: of(laplace(rng, e, n)).epsilon) for n in sizes]
            row(f"Laplace, {epsilon}", name, *values)
    for epsilon in (1, 2, 4, 8):
        mu = mu_from_epsilon(epsilon, DELTA)
        for name, of in {
            "Clopper-Pearson, 12 rates": lambda run: clopper_pearson_epsilon(*run, delta=DELTA),
            "GDP, fixed cut": lambda run, mu=mu: gdp_epsilon(*run, delta=DELTA, threshold=mu / 2),
        }.items():
            values = [mean(lambda n=n, mu=mu, of=of: of(gaussian(rng, mu, n)).epsilon) for n in sizes]
            row(f"Gaussian, {epsilon}", name, *values)


def one_run(rng: np.random.Generator) -> None:
    """Coins of one run."""
    head("mechanism on each canary", "canaries (guesses)", "estimator", "epsilon 1", "2", "4", "8")
    for m in (100, 1000, 10_000):
        values = [
            mean(lambda m=m, e=e: one_run_epsilon(CanaryGuesses(m, m, int(rng.binomial(m, expit(e))))).epsilon)
            for e in (1, 2, 4)
        ]
        row("randomised response", f"{m:,} (all)", "binomial", *values, "")
    for m in (1000, 10_000):
        values = [
            mean(lambda m=m, e=e: one_run_epsilon(guessed(rng, rng.laplace(0, 1 / e, m), 1, 0.25)).epsilon)
            for e in (1, 2, 4)
        ]
        row("Laplace", f"{m:,} ({m // 4:,})", "binomial", *values, "")
    mus = [mu_from_epsilon(e, DELTA) for e in (1, 2, 4, 8)]
    for m in (200, 1000, 4000, 20_000):
        for name, bound in (("binomial", one_run_epsilon), ("GDP", one_run_gdp_epsilon)):
            values = [
                mean(lambda m=m, mu=mu, b=bound: b(guessed(rng, rng.normal(size=m), mu, 0.05), delta=DELTA).epsilon)
                for mu in mus
            ]
            row("Gaussian", f"{m:,} ({m // 20:,})", name, *values)


def release(rng: np.random.Generator, k: int, d: int, sigma: float) -> np.ndarray:
    """Cosines of k unit directions with their noised sum."""
    directions = rng.standard_normal((k, d), dtype=np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    released = directions.sum(axis=0) + sigma * rng.standard_normal(d, dtype=np.float32)
    return (directions @ released / np.linalg.norm(released)).astype(np.float64)


def one_shot(rng: np.random.Generator) -> None:
    """Canary clients in one noised sum."""
    head("d", "canaries", "placebo: median", "95th percentile", "true epsilon", "estimate (interval)", "bound", "note")
    for d, k in ((20_000, 50), (20_000, 200), (20_000, 1000), (2000, 1000)):
        floors = [placebo_floor(k, dimensions=d, delta=DELTA, quantile=q) for q in (0.5, 0.95)]
        for epsilon in (1, 3, 8):
            sigma = 1 / mu_from_epsilon(epsilon, DELTA)
            cosines = release(rng, k, d, sigma)
            how = {"dimensions": d, "delta": DELTA, "noise_multiplier": sigma}
            found, bound = one_shot_epsilon(cosines, **how), one_shot_lower_bound(cosines, **how)
            interval = f"{found.epsilon:.2f} ({found.lo:.2f} to {found.hi:.2f})"
            row(f"{d:,}", f"{k:,}", *floors, epsilon, interval, bound.epsilon, "too many" if found.note else "")


def scatter(rng: np.random.Generator) -> None:
    """Estimates from cosines that are exactly normal."""
    head(
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
            row(f"{k:,}", epsilon, *ends, f"{np.mean(estimates > epsilon):.0%}")


def audits(rng: np.random.Generator) -> Iterator[tuple[str, str, float, Callable[[], float]]]:
    """Bounds whose truth is known: estimator, mechanism, truth, one run."""
    for epsilon in (1.0, 3.0):
        law = f"Laplace, {epsilon:g}, 400 draws a world"
        for name, of in {
            "Clopper-Pearson, fixed cut": lambda run: clopper_pearson_epsilon(*run, threshold=1.0),
            "Clopper-Pearson, 12 rates": lambda run: clopper_pearson_epsilon(*run),
            "Bayesian, fixed cut (credible)": lambda run: bayesian_epsilon(*run, threshold=1.0),
        }.items():
            yield name, law, epsilon, lambda e=epsilon, of=of: of(laplace(rng, e, 400)).epsilon
    for mu in (0.3, 1.0):
        truth = epsilon_from_mu(mu, DELTA)
        law = f"Gaussian, {truth:.2f}, 400 draws a world"
        for name, cut in (("GDP, fixed cut", {"threshold": mu / 2}), ("GDP, 12 rates", {})):
            yield (
                name,
                law,
                truth,
                lambda mu=mu, cut=cut: gdp_epsilon(*gaussian(rng, mu, 400), delta=DELTA, **cut).epsilon,
            )
    for epsilon in (1.0, 3.0):
        law = f"randomised response, {epsilon:g}, 300 coins"
        yield (
            "one run",
            law,
            epsilon,
            lambda e=epsilon: one_run_epsilon(CanaryGuesses(300, 300, int(rng.binomial(300, expit(e))))).epsilon,
        )
    for mu in (0.5, 2.0):
        truth = epsilon_from_mu(mu, DELTA)
        yield (
            "one run, GDP",
            f"Gaussian, {truth:.2f}, 200 coins",
            truth,
            lambda mu=mu: one_run_gdp_epsilon(guessed(rng, rng.normal(size=200), mu, 0.2), delta=DELTA).epsilon,
        )
        yield (
            "one-shot, exact null",
            f"Gaussian, {truth:.2f}, 200 canaries",
            truth,
            lambda mu=mu: one_shot_lower_bound(rng.normal(mu, 1, 200) / 100, dimensions=10_000, delta=DELTA).epsilon,
        )


def coverage(rng: np.random.Generator) -> None:
    """How often a bound is too high."""
    head("bound", "mechanism, true epsilon, size", f"above the truth in {PADDED_PLANS} runs")
    for name, law, truth, bound in audits(rng):
        row(name, law, f"{np.mean([bound() > truth for _ in range(PADDED_PLANS)]):.1%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print every table."""
    harness.parse(harness.parser(__file__, __doc__), arguments)
    for number, table in enumerate((two_worlds, one_run, one_shot, coverage, scatter)):
        print(f"\n{table.__doc__}\n")
        table(np.random.default_rng(number))


if __name__ == "__main__":
    main()
