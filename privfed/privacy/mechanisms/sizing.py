"""What a mechanism has to know to size its noise for the epsilon of a whole run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from privfed.contracts import Clipped


@dataclass(frozen=True, slots=True)
class NoiseTarget:
    """An epsilon that no user may exceed, and what a run releases about the user it releases most about.

    Attributes:
        epsilon, delta: of the whole run.
        uploads: uploads of that user.
        whole_uploads: their number with every upload counted by the share of the squared clip norm that it may use.
        rounds: rounds of the run.
        round_share: sum of these shares over the queries of one round.
        rate: rate of the Poisson sampling that amplifies; None where nothing does.
        uniform: whether every upload may use the whole clip norm.
        known_size: whether the number of coordinates of an upload is known, on which rounding depends.
    """

    epsilon: float
    delta: float
    uploads: int
    whole_uploads: float
    rounds: int
    round_share: float
    rate: float | None
    uniform: bool
    known_size: bool

    def multiplier(self, releases: int, rate: float = 1.0) -> float:
        """Noise multiplier with which so many Gaussian releases, sampled at this rate, cost `epsilon`."""
        from privfed.privacy.gaussian_budget import solve_gaussian

        return solve_gaussian(self.epsilon, releases, rate, self.delta, thorough=False).budget.noise_multiplier

    def unsampled_multiplier(self) -> float:
        """Noise multiplier for all uploads of the run; without sampling, releases of unequal shares add up in mu^2."""
        return self.multiplier(self.uploads) if self.uniform else self.multiplier(1) * math.sqrt(self.whole_uploads)

    def amplified_multiplier(self, rate: float) -> float:
        """Noise multiplier for rounds sampled at `rate`, the queries of a round being one release together."""
        return self.multiplier(self.rounds, rate) * math.sqrt(self.round_share)


@dataclass(frozen=True, slots=True)
class SizedNoise:
    """Settings of a mechanism that meet a target.

    Attributes:
        fields: names of settings and their values.
        exact: whether these meet the target as they are; otherwise they are a first guess for a single setting, and a
            search goes on until the accountants agree.
    """

    fields: Mapping[str, float]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """What the open settings of a mechanism are chosen by.

    Attributes:
        epsilon: total that no user may exceed in the whole run, for which noise is sized; None where noise was given.
        clip: who chooses the clip norm: whoever wrote the plan, the method's default, or the norms of the run itself.
        clipped: what the clip norm bounds.
    """

    epsilon: float | None
    clip: Literal["given", "default", "auto"]
    clipped: Clipped | None
