"""Empirical lower bounds on epsilon: the largest claim that a game denies, with a confidence.

Somebody throws a coin, runs the mechanism on one of two neighbouring inputs, and an attack gives a score. Over many
throws the scores of the two worlds bound its false-positive rate (FPR) and its false-negative rate (FNR) from above,
each by Clopper & Pearson (Biometrika 1934) at alpha / 2. A claim that allows no attack with such rates is wrong.

* `clopper_pearson_epsilon` denies (epsilon, delta), whose trade-off between the rates is two straight lines
  (`attacks.ceilings`; Jagielski, Ullman & Oprea, NeurIPS 2020; Nasr et al., S&P 2021):

      epsilon >= ln((1 - FNR - delta) / FPR)        epsilon >= ln((1 - FPR - delta) / FNR)

* `gdp_epsilon` denies mu-GDP, the trade-off between N(0, 1) and N(mu, 1) (Dong, Roth & Su, JRSS B 2022; as an audit
  Nasr et al., USENIX Security 2023):

      mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)

  and turns mu into epsilon at delta exactly. It says something only where the claim is about Gaussian noise without
  sampling. There the bound is tight, while the two lines touch the Gaussian's curve too deep in its tail to be seen.

Where to cut the scores must not be picked by looking for the largest bound: that alone denied true claims in 6.5 % of
trials at 5 %. Either fix a threshold beforehand, or fix K false-positive rates; the K cuts are then order statistics of
the non-members' scores, and each gets alpha / K (Bonferroni). At such a cut the FPR is Beta distributed with the
parameters that Clopper & Pearson use, and members' scores do not know of it, so both bounds keep their confidence.

Only randomised membership can be used here. Natural members differ from non-members without any training.
"""

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
