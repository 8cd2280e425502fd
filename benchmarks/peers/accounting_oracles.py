"""Epsilons of the product's accounting against oracles that share no code with it, on 20 random settings.

    python -m benchmarks.peers.accounting_oracles          # then `python -m benchmarks.tables`

Gaussian noise without sampling has a closed form (Balle and Wang 2018, Theorem 8). For everything else an oracle
computes the distribution of the privacy loss by itself: from the distribution function of the loss of one release, on a
grid, rounded up and rounded down, composed by numpy's FFT, in both directions of adding and removing. The truth lies
between the two. No oracle uses dp_accounting, Opacus or privfed; only scipy's normal distribution and numpy.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from benchmarks import harness
from privfed.privacy.accounting import account
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Gaussian, Laplace

Loss = tuple[np.ndarray, int]
"""Probabilities of whole steps of the grid, and the step of the first."""


# Oracles --------------------------------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of a Gaussian mechanism whose means are `mu` deviations apart, at `epsilon`."""
    far = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
    return float(ndtr(mu / 2 - epsilon / mu)) - far


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Its inverse."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return float(brentq(lambda e: gaussian_delta(mu, e) - delta, 0.0, mu * mu / 2 + 40 * mu, xtol=1e-12))


def laplace_loss(epsilon0: float) -> tuple[Callable[[np.ndarray], np.ndarray], float, float]:
    """Distribution function of the loss of one Laplace release, and the ends of its support."""

    def below(loss: np.ndarray) -> np.ndarray:
        inside = 0.5 * np.exp((np.minimum(loss, epsilon0) - epsilon0) / 2)
        return np.where(loss >= epsilon0, 1.0, np.where(loss < -epsilon0, 0.0, inside))

    return below, -epsilon0, epsilon0


def sampled_losses(z: float, q: float) -> list[tuple[Callable[[np.ndarray], np.ndarray], float, float]]:
    """The same of a Gaussian of deviation z that takes the user in with probability q: removed, and added."""
    reach = z * 9.0 + 1.0

    def loss_at(x: float) -> float:
        return float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + (2 * x - 1) / (2 * z * z)))

    def x_of(loss: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log(np.maximum(np.exp(loss) - (1 - q), 0.0)) - math.log(q)
        return z * z * inner + 0.5

    def removed(loss: np.ndarray) -> np.ndarray:
        x = x_of(loss)
        return (1 - q) * ndtr(x / z) + q * ndtr((x - 1) / z)

    def added(loss: np.ndarray) -> np.ndarray:
        return ndtr(-x_of(-loss) / z)

    low, high = loss_at(-reach), loss_at(reach + 1.0)
    return [(removed, low, high), (added, -high, -low)]


def on_grid(
    below: Callable[[np.ndarray], np.ndarray], low: float, high: float, step: float, *, up: bool
) -> tuple[np.ndarray, int]:
    """The loss in whole steps, rounded up or down; mass outside the ends goes to them."""
    first, last = math.floor(low / step) - 1, math.ceil(high / step) + 1
    edges = np.arange(first, last + 1) * step
    mass = np.diff(below(edges))
    mass[0] += below(edges[:1])[0]
    mass[-1] += 1.0 - below(edges[-1:])[0]
    return mass, first + 1 if up else first


def composed(parts: list[tuple[Loss, int]], step: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and values of the sum of independent losses."""
    length = sum((len(mass) - 1) * count for (mass, _), count in parts) + 1
    means = sum(count * float(mass @ (np.arange(len(mass)) + first)) for (mass, first), count in parts)
    spread = math.sqrt(sum(count * _variance(mass) for (mass, _), count in parts))
    size = 1 << math.ceil(math.log2(min(length, max(60 * spread + 2 * max(len(m) for (m, _), _ in parts), 1024))))
    total = np.ones(size // 2 + 1, np.complex128)
    for (mass, _), count in parts:
        total *= np.fft.rfft(_folded(mass, size)) ** count
    wrapped = np.fft.irfft(total, size)
    first = sum(start * count for (_, start), count in parts)
    # The sum is known up to whole turns of the circle: the turn is the one that has its mean in the middle.
    centre = round(means) - size // 2
    places = np.arange(size) + centre
    return wrapped[(places - first) % size], places * step


def _folded(mass: np.ndarray, size: int) -> np.ndarray:
    padded = np.zeros(-(-len(mass) // size) * size)
    padded[: len(mass)] = mass
    return padded.reshape(-1, size).sum(0)


def _variance(mass: np.ndarray) -> float:
    places = np.arange(len(mass))
    mean = mass @ places
    return float(mass @ (places - mean) ** 2)


def epsilon_of(mass: np.ndarray, losses: np.ndarray, delta: float) -> float:
    """Smallest epsilon whose hockey-stick divergence is at most delta."""

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float(np.maximum(mass[above], 0.0) @ -np.expm1(epsilon - losses[above])) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(losses[-1]), xtol=1e-10))


def convolved(releases: list[dict[str, Any]], delta: float) -> tuple[float, float]:
    """Bounds of epsilon from below and above, by numerical composition of privacy losses."""
    bounds = []
    for up in (False, True):
        found = []
        for direction in (0, 1):
            kinds = []
            for release in releases:
                if release["kind"] == "laplace":
                    loss = laplace_loss(release["epsilon0"])
                else:
                    loss = sampled_losses(release["z"], release.get("rate", 1.0))[direction]
                kinds.append((loss, release["times"]))
            step = max((high - low) for (_, low, high), _ in kinds) / 2**17
            step = min(step, 1e-3 / max(sum(times for _, times in kinds), 1) * 4)
            step = max(step, sum((high - low) * times for (_, low, high), times in kinds) / 2**25)
            parts = [(on_grid(*loss, step, up=up), times) for loss, times in kinds]
            found.append(epsilon_of(*composed(parts, step), delta))
        bounds.append(max(found))
    return bounds[0], bounds[1]


# Settings -------------------------------------------------------------------------------------------------------------


def settings(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """20 random settings: five Gaussian, five Laplace, six sampled, four of several kinds."""

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    def delta() -> float:
        return float(f"{10 ** rng.uniform(-7, -4):.2g}")

    for _ in range(5):
        times = int(rng.integers(1, 300))
        yield {"delta": delta(), "releases": [{"kind": "gaussian", "z": between(1, 60), "times": times}]}
    for _ in range(5):
        times = int(rng.integers(1, 100))
        yield {"delta": delta(), "releases": [{"kind": "laplace", "epsilon0": between(0.05, 2), "times": times}]}
    for _ in range(6):
        release = {"kind": "gaussian", "z": between(0.7, 6), "times": int(rng.integers(5, 200))}
        yield {"delta": delta(), "releases": [release | {"rate": between(0.01, 0.5)}]}
    for kinds in (("gaussian", "laplace"), ("gaussian", "gaussian"), ("laplace", "laplace"), ("sampled", "sampled")):
        releases = []
        for kind in kinds:
            times = int(rng.integers(2, 40))
            if kind == "laplace":
                releases.append({"kind": "laplace", "epsilon0": between(0.05, 1), "times": times})
            else:
                sampled = {"rate": between(0.05, 0.5)} if kind == "sampled" else {}
                releases.append({"kind": "gaussian", "z": between(2, 20), "times": times} | sampled)
        yield {"delta": delta(), "releases": releases}


def product(setting: dict[str, Any]) -> Any:
    """What privfed's accounting says."""
    releases = tuple(
        Releases(
            Laplace(scale_over_sensitivity=1 / r["epsilon0"])
            if r["kind"] == "laplace"
            else Gaussian(noise_multiplier=r["z"]),
            r["times"],
            r.get("rate"),
        )
        for r in setting["releases"]
    )
    return account(Composition(releases).event(), setting["delta"])


def oracle(setting: dict[str, Any]) -> tuple[str, float, float]:
    """Which oracle speaks, and the bounds between which it puts epsilon."""
    releases = setting["releases"]
    if all(r["kind"] == "gaussian" and "rate" not in r for r in releases):
        mu = math.sqrt(sum(r["times"] / r["z"] ** 2 for r in releases))
        epsilon = gaussian_epsilon(mu, setting["delta"])
        return "closed form", epsilon, epsilon
    low, high = convolved(releases, setting["delta"])
    return "convolution", low, high


def compared(setting: dict[str, Any]) -> dict[str, Any]:
    """One row: the product's epsilon and the oracle's."""
    claim, started = product(setting), time.process_time()
    kind, low, high = oracle(setting)
    return setting | {
        "accountant": claim.accountant,
        "epsilon": claim.epsilon,
        "oracle": kind,
        "oracle_low": low,
        "oracle_high": high,
        "oracle_cpu_s": time.process_time() - started,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every setting."""
    options = harness.parse(harness.parser(__file__, __doc__, seed=20), arguments)
    record = harness.Record("accounting_oracles", options, {}, anew=True)
    record.results = {"seed": options.seed, "settings": []}
    for setting in settings(np.random.default_rng(options.seed)):
        record.results["settings"].append(compared(setting))
    record.save()


if __name__ == "__main__":
    main()
