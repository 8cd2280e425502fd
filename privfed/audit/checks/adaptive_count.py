"""The noise on the count behind an adaptive clip norm: as much of it as is paid for.

A run draws one such number a round, too few to tell half the noise from all of it. The guard of the run is asked for
some hundred rounds more, in each of which exactly half of the members are within the clip norm.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from scipy import stats

from privfed.audit.report.records import Check
from privfed.contracts import Block
from privfed.experiment import Experiment, RunResult
from privfed.federation import Cohort
from privfed.guards import ServerGuard
from privfed.privacy import Ledger

P_VALUE = 1e-9
_ROUNDS, _MEMBERS, _STEP, _BLOCK = 200, 100, "count", "nothing"
_WIDE, _SLACK = 1e3, 0.985


def check_adaptive_count(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Deviation of the count's noise, where the plan adapts the clip norm."""
    plan, population = experiment.config.privacy, experiment.n_users
    adaptive, clip = plan.mechanism.adaptive_clip, plan.mechanism.clip
    if adaptive is None or clip is None or not math.isfinite(result.guarantee.epsilon):
        return
    guard, noise = ServerGuard(plan, Ledger(plan, population), experiment.streams), list[float]()
    # So many are expected that no noise reaches the ends of a share.
    expected = _WIDE * max(adaptive.count_noise, 1.0)
    for t in range(_ROUNDS):
        sums, schema = {_BLOCK: torch.zeros(1, dtype=torch.float64)}, {_BLOCK: Block((1,))}
        guard.clip_norms[_STEP] = clip.norm
        cohort = Cohort(t, t, plan.sampling.kind, expected)
        guard.add_noise_(sums, cohort, _STEP, 0, schema, members=_MEMBERS, within=_MEMBERS // 2)
        share = adaptive.quantile - math.log(guard.clip_norms[_STEP] / clip.norm) / adaptive.rate_in(t)
        noise.append((share - 0.5) * expected / adaptive.count_noise)
    squares = float(np.square(noise).sum())
    few, equal = stats.chi2.cdf(squares / _SLACK**2, _ROUNDS), len(np.unique(np.round(noise, 3))) < _ROUNDS // 2
    yield Check(
        name="noise on the count of an adaptive clip",
        passed=bool(few > P_VALUE) and not equal,
        detail=f"of {_ROUNDS} counts that the guard was asked for, the noise has {math.sqrt(squares / _ROUNDS):.3f} of "
        f"the deviation that is paid for" + (", and it repeats" if equal else ""),
    )
