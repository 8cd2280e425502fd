"""Conversions between mu-GDP and (epsilon, delta) (Dong, Roth & Su, JRSS B 2022)."""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from attacks.empirical._checks import check_gaussian_delta


def delta_from_mu(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Dong, Roth & Su, corollary 1).

    Args:
        mu: L2 sensitivity over the standard deviation of the noise, at least 0.
        epsilon: At least 0.

    Raises:
        ValueError: If mu or epsilon is negative, NaN or infinite.
    """
    if not (0 <= mu < math.inf and 0 <= epsilon < math.inf):
        raise ValueError(f"Got mu={mu} and epsilon={epsilon}; both must be finite and at least 0.")
    if mu == 0:
        return 0.0
    here = float(log_ndtr(mu / 2 - epsilon / mu))
    there = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(here) * -math.expm1(min(0.0, there - here))


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon at which mu-GDP gives `delta`; 0 where delta alone covers it.

    Args:
        mu: At least 0.
        delta: In (0, 1).

    Raises:
        ValueError: If an argument is outside its range.
    """
    check_gaussian_delta(delta)
    if delta_from_mu(mu, 0.0) <= delta:
        return 0.0
    above = 1.01 * mu * (mu / 2 - float(ndtri(delta)))
    return float(brentq(lambda epsilon: delta_from_mu(mu, epsilon) - delta, 0.0, above, xtol=1e-12))


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta).

    Args:
        epsilon: At least 0 and finite.
        delta: In (0, 1).

    Raises:
        ValueError: If an argument is outside its range.
    """
    check_gaussian_delta(delta)
    above = 1.0
    while delta_from_mu(above, epsilon) <= delta:
        above *= 2
    return float(brentq(lambda mu: delta_from_mu(mu, epsilon) - delta, 0.0, above, xtol=1e-12))
