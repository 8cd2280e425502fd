"""What an adversary of the implementation would find in a run, as checks: bits, grids, sizes and repeats of noise.

Every check reads what was released (`wire` and `sum` taps, rows named), or has the engine release a few vectors of its
own. None speaks where nothing is claimed. All of them together deny an honest run with a probability below
`MAX_FALSE_ALARM`; each has an equal part of it.
"""

from privfed.audit.checks.implementation.grid import check_grid
from privfed.audit.checks.implementation.inclusion_bits import check_inclusion_bits
from privfed.audit.checks.implementation.named_rows import check_named_rows
from privfed.audit.checks.implementation.noise import check_noise_size, check_repeated_noise
from privfed.audit.checks.implementation.release_game import check_release_bits

IMPLEMENTATION_CHECKS = (
    check_grid,
    check_noise_size,
    check_repeated_noise,
    check_inclusion_bits,
    check_release_bits,
    check_named_rows,
)

__all__ = ["IMPLEMENTATION_CHECKS"]
