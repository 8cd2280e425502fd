"""One Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8): a unit Gaussian and one at distance mu.

Any number of unsampled Gaussian mechanisms of noise multipliers z_i are together the one at mu = sqrt(sum z_i^-2).
"""

import math

import scipy

_ROUNDING = 1e-9


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta at `epsilon`, exactly."""
    kept, lost = scipy.special.log_ndtr(mu / 2 - epsilon / mu), epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu)
    return float(math.exp(kept) * -math.expm1(min(lost - kept, 0.0)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at `delta`, rounded up; inf where mu^2 overflows."""
    enough = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))  # by concentrated differential privacy
    if math.isinf(enough) or gaussian_delta(mu, 0.0) <= delta:
        return enough if math.isinf(enough) else 0.0
    exact = float(scipy.optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, enough))
    return min(exact * (1 + _ROUNDING), enough)
