"""Which audited users choose the strongest attack; the others measure it.

The highest of a hundred noisy numbers lies above the truth. So one group of users chooses the attack and another one
measures it. A user's group follows from the user's id alone: it is the same for every setting, seed, place and attack,
so that nobody chooses in one run and measures in another, and settings are measured on the same people.
"""

import numpy as np
from jaxtyping import Bool, Int64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def selection_half(users: Int64[np.ndarray, "users"]) -> Bool[np.ndarray, "users"]:
    """True for users on whom attacks are compared: the top bit of a hash of the id (SplitMix64's finaliser)."""
    word = (users.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _MIX[0]
    word = (word ^ (word >> np.uint64(27))) * _MIX[1]
    half: np.ndarray = (word ^ (word >> np.uint64(31))) >> np.uint64(63) == 1
    return half
