"""The finest grid on which a noisy sum still fits into a ring.

A finer grid costs bits and gains accuracy, and privacy as well: rounding adds about d/4 to the squared sensitivity.
From a clip of ten times sqrt d steps upwards that is a quarter of a percent, and a finer grid gains little.
"""

from secure_agg.encoding import Ring, required_bits
from secure_agg.errors import RingOverflowError
from secure_agg.noise.laws import Law
from secure_agg.noise.mechanism import DistributedMechanism
from secure_agg.noise.rounding import DEFAULT_BETA, MAX_NORM
from secure_agg.noise.shares import DEFAULT_FAILURE_PROBABILITY
from secure_agg.noise.tables import MAX_STANDARD_DEVIATION


def fit_to_ring(
    ring: Ring,
    noise_multiplier: float,
    *,
    clients: int,
    min_honest: int,
    dimension: int,
    clip: float,
    law: Law = "skellam",
    beta: float = DEFAULT_BETA,
    rotation_seed: bytes | None = None,
    failure_probability: float = DEFAULT_FAILURE_PROBABILITY,
) -> DistributedMechanism:
    """The mechanism with the finest grid for which sum and noise fit the ring, and noise shares the tables.

    Args:
        ring: ring of the sum.
        noise_multiplier: standard deviation of the noise on the sum, divided by the clip.
        clients: maximum number of clients in a sum.
        min_honest: smallest number of honest clients whose shares a released sum can hold.
        dimension: length of a vector.
        clip: maximum L2 norm of a vector.
        law: law of the noise.
        beta: parameter of the conditional rounding.
        rotation_seed: 32 public bytes for a random rotation, `None` for none.
        failure_probability: probability, for each of signal and noise, that its bound does not hold.

    Returns:
        A mechanism within a millionth of the finest grid; any coarser one fits too.

    Raises:
        RingOverflowError: not even a step as wide as the clip fits.
        ConfigurationError: an argument out of its range.
    """

    def with_radius(radius: float) -> DistributedMechanism:
        return DistributedMechanism.from_noise_multiplier(
            noise_multiplier,
            min_honest=min_honest,
            dimension=dimension,
            clip=clip,
            grid=clip / radius,
            law=law,
            beta=beta,
            rotation_seed=rotation_seed,
        )

    def bits(mechanism: DistributedMechanism) -> int:
        return required_bits(
            clients=clients,
            bound=mechanism.coordinate_bound(failure_probability),
            noise_bound=mechanism.noise_bound(clients, failure_probability),
        )

    best = with_radius(1.0)
    if bits(best) > ring.bits:
        raise RingOverflowError(
            f"the sum of {clients} clients with noise of {noise_multiplier:g} times the clip needs {bits(best)} bits "
            f"even on a grid as coarse as the clip, and the ring has {ring.bits}; take a wider ring"
        )
    # Bisection of the radius, the clip in steps, on a logarithmic scale.
    fits, exceeds = 1.0, MAX_NORM / 2.0
    while exceeds / fits > 1.0 + 1e-6:
        middle = (fits * exceeds) ** 0.5
        candidate = with_radius(middle)
        if bits(candidate) <= ring.bits and candidate.noise.client_variance <= MAX_STANDARD_DEVIATION**2:
            fits, best = middle, candidate
        else:
            exceeds = middle
    return best
