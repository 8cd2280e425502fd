"""The finest grid on which a noisy sum still fits into a ring.

A finer grid costs bits and buys accuracy, and privacy too: rounding adds to the sensitivity, by about d/4 in its
square. From a clip of ten times sqrt d steps upwards that is a quarter of a percent, and finer gains little.
"""

from secure_agg.encoding import Ring, needed_bits
from secure_agg.errors import HeadroomError
from secure_agg.noise.laws import Law
from secure_agg.noise.mechanism import DistributedMechanism
from secure_agg.noise.rounding import BETA, LONGEST
from secure_agg.noise.shares import FAILURE
from secure_agg.noise.tables import LARGEST_DEVIATION


def fit_to_ring(
    ring: Ring,
    noise_multiplier: float,
    *,
    clients: int,
    min_honest: int,
    dimension: int,
    clip: float,
    law: Law = "skellam",
    beta: float = BETA,
    rotation_seed: bytes | None = None,
    failure: float = FAILURE,
) -> DistributedMechanism:
    """The mechanism of the finest grid for which sum and noise stay inside the ring and shares inside the tables.

    Args:
        ring: where the sum lives.
        noise_multiplier: standard deviation of the noise on the sum over the clip.
        clients: the most that will be added.
        min_honest: smallest number of honest clients whose shares a released sum can hold.
        dimension: length of a vector.
        clip: its largest L2 norm.
        law: of the noise.
        beta: of the conditional rounding.
        rotation_seed: 32 public bytes for a random rotation, `None` for none.
        failure: chance, for each of signal and noise, that head-room does not hold.

    Returns:
        A mechanism within a millionth of the finest grid; any coarser one fits too.

    Raises:
        HeadroomError: not even a step as wide as the clip fits.
        ConfigurationError: an argument out of its range.
    """

    def on(radius: float) -> DistributedMechanism:
        return DistributedMechanism.of_multiplier(
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
        return needed_bits(
            clients=clients, bound=mechanism.coordinate_bound(failure), tail=mechanism.noise_tail(clients, failure)
        )

    best = on(1.0)
    if bits(best) > ring.bits:
        raise HeadroomError(
            f"the sum of {clients} clients with noise of {noise_multiplier:g} times the clip needs {bits(best)} bits "
            f"even on a grid as coarse as the clip, and the ring has {ring.bits}; take a wider ring"
        )
    fits, exceeds = 1.0, LONGEST / 2.0
    while exceeds / fits > 1.0 + 1e-6:
        middle = (fits * exceeds) ** 0.5
        tried = on(middle)
        if bits(tried) <= ring.bits and tried.noise.client_variance <= LARGEST_DEVIATION**2:
            fits, best = middle, tried
        else:
            exceeds = middle
    return best
