"""What one refresh of `private-gram` costs: bytes and messages are counted, CPU follows rates that were measured.

A device computes what it sends and ranks what it gets; where noise comes in shares, it also draws its share and masks
both sums: time for each number and, for the order of participants, for each person. The server adds up every number of
every person (masks are taken off as it does) and fits the weights, which takes a power of the head. Rates are of one
core of the machine of `private_gram_cost_ml-1m.json` and `private_populations_devices.json`;
`benchmarks.quality.forecast` takes them from there, and a test compares. A phone may be several times slower.
"""

from dataclasses import dataclass

from privfed.methods.private_gram.config import PrivateGramConstants
from privfed.updates import packed_size

OPEN_MS, OPEN_MS_PER_NUMBER = 1.07, 3.22e-6
NOISE_MS, NOISE_MS_PER_NUMBER = 2.78, 2.48e-5
MASKS_MS, MASKS_MS_PER_PERSON, MASKS_MS_PER_NUMBER = 6.39, 1.34e-4, 4.17e-5
ADDING_S, FIT_S, FIT_POWER = 8.82e-10, 2.43e-8, 2.4
_BYTES = 4
"""Of a number in the open, and of an element of a secure sum's ring."""
_MESSAGES, _MASKED_MESSAGES = 2, 8
"""Of a device: an answer to each query; or key, shares of secrets, masked sum and reveal for each."""


@dataclass(frozen=True, slots=True)
class RefreshCosts:
    """Of one refresh.

    Attributes:
        up_bytes, down_bytes: of one device.
        exchanges: messages that a device sends.
        device_cpu_ms, server_cpu_s: one core each.
    """

    up_bytes: int
    down_bytes: int
    exchanges: int
    device_cpu_ms: float
    server_cpu_s: float


def expected_costs(constants: PrivateGramConstants, people: float, items: int, *, shares: bool) -> RefreshCosts:
    """The costs of a refresh.

    Args:
        constants: of the run.
        people: who answer.
        items: of the catalogue.
        shares: whether noise comes in shares, inside masked sums.
    """
    head = constants.head
    numbers = items + packed_size(head) + (head if constants.again else 0)
    cpu = OPEN_MS + OPEN_MS_PER_NUMBER * numbers
    if shares:
        masks = 2 * (MASKS_MS + MASKS_MS_PER_PERSON * people) + MASKS_MS_PER_NUMBER * numbers
        cpu += NOISE_MS + NOISE_MS_PER_NUMBER * numbers + masks
    return RefreshCosts(
        up_bytes=numbers * _BYTES,
        down_bytes=(head**2 + 3 * head + items) * _BYTES,
        exchanges=_MASKED_MESSAGES if shares else _MESSAGES,
        device_cpu_ms=cpu,
        server_cpu_s=ADDING_S * people * numbers + FIT_S * head**FIT_POWER,
    )
