"""`privfed.budget`: the noise that a total epsilon needs, or the epsilon of some noise; needs no torch."""

from dataclasses import dataclass

from privfed.api.errors import UseError
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.configuring import configure
from privfed.privacy.gaussian_budget import GaussianBudget, gaussian_budget, solve_gaussian
from privfed.privacy.gaussian_placement import PlacedTrust, Placement
from privfed.privacy.statements import odds

_STEPS = 80


@dataclass(frozen=True, slots=True)
class NoiseBudget:
    """What noise costs and buys.

    Attributes:
        epsilon: total of one user over all rounds.
        delta: probability with which it may fail.
        noise_multiplier: standard deviation of the noise over the clip norm: on the sum of a round under central and
            distributed trust, on each upload under local trust.
        mu: of the Gaussian mechanism that has the same epsilon at delta: the whole run is as hard to see through as one
            number with noise of standard deviation 1 / mu.
        rounds, users, rate, trust: of the run.
        accountant: how epsilon was computed.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    mu: float
    rounds: int
    users: int
    rate: float
    trust: PlacedTrust
    accountant: str

    @property
    def meaning(self) -> str:
        """What the epsilon means, in odds."""
        return (
            f"whatever is concluded from one user's data, its odds change by at most a factor of {odds(self.epsilon)}, "
            f"except with probability {self.delta:.2g}"
        )

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:.4g} at delta {self.delta:.2g}: noise multiplier {self.noise_multiplier:g} over "
            f"{self.rounds:,} round{'s' * (self.rounds != 1)}, {self.trust} trust (mu {self.mu:.3g}); {self.meaning}"
        )


def budget(
    *,
    users: int,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    rounds: int = 1,
    rate: float = 1.0,
    delta: float | None = None,
    trust: str = "central",
    honest: int | None = None,
) -> NoiseBudget:
    """The Gaussian noise that keeps everybody at `epsilon` over a run, or the epsilon of a noise multiplier.

    Args:
        users: users of the federation.
        epsilon: total that no user may exceed.
        noise_multiplier: instead of epsilon, standard deviation of the noise over the clip norm.
        rounds: rounds of the run, one query each.
        rate: probability with which each user secretly takes part in a round.
        delta: probability with which epsilon may fail; by default users^-1.1.
        trust: who adds the noise: "central", "distributed" or "local".
        honest: with distributed trust, honest clients that remain in every round; by default half of the cohort.

    Raises:
        ValueError: a value out of range, or both or neither of epsilon and noise_multiplier.

    Example:
        >>> import privfed
        >>> needed = privfed.budget(epsilon=8, users=943, rounds=100, rate=0.1)
        >>> needed.noise_multiplier
        0.8022
        >>> round(privfed.budget(noise_multiplier=needed.noise_multiplier, users=943, rounds=100, rate=0.1).epsilon, 1)
        8.0
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise UseError("budget goes from epsilon to noise or back: give either epsilon or noise_multiplier")
    placement = configure(Placement, {"trust": trust, "clients": users, "rate": rate, "honest": honest})
    delta = users**-1.1 if delta is None else delta
    accounted = _accounted(placement, epsilon, noise_multiplier, rounds, delta)
    return NoiseBudget(
        epsilon=accounted.epsilon,
        delta=delta,
        noise_multiplier=accounted.noise_multiplier * placement.sensitivity,
        mu=_mu(accounted.epsilon, delta),
        rounds=rounds,
        users=users,
        rate=rate,
        trust=placement.trust,
        accountant=accounted.accountant,
    )


def _accounted(
    placement: Placement, epsilon: float | None, noise_multiplier: float | None, rounds: int, delta: float
) -> GaussianBudget:
    rate = placement.accounted_rate
    if noise_multiplier is not None:
        return gaussian_budget(noise_multiplier / placement.sensitivity, rounds, rate, delta, thorough=False)
    return solve_gaussian(float(epsilon or 0), rounds, rate, delta, thorough=False).budget


def _mu(epsilon: float, delta: float) -> float:
    """The mu whose Gaussian mechanism has this epsilon at delta, by bisection."""
    low, high = 0.0, 1.0
    while gaussian_epsilon(high, delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, delta) < epsilon else (low, middle)
    return high
