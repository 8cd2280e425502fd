"""Attacks on the implementation: noise as numbers in a machine, not as a law on the real line.

Distinguishers give one number per value or row; tests give a p-value that holds whatever was uploaded. Both read only
released values. See docs/explanation/attacks/implementation.md.
"""

from attacks.implementation.claimed_noise import ClaimedNoise, NoiseTest
from attacks.implementation.float_noise import FloatNoise
from attacks.implementation.named_rows import NamedRows, intersect_rounds
from attacks.implementation.noise_size import small_values
from attacks.implementation.repeated_noise import correlated_uploads, repeated_differences, repeated_windows
from attacks.implementation.value_bits import UntouchedBits, off_grid, repeated_values, spare_bits

__all__ = [
    "ClaimedNoise",
    "FloatNoise",
    "NamedRows",
    "NoiseTest",
    "UntouchedBits",
    "correlated_uploads",
    "intersect_rounds",
    "off_grid",
    "repeated_differences",
    "repeated_values",
    "repeated_windows",
    "small_values",
    "spare_bits",
]
