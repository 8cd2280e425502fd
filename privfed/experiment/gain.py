"""What a run gains over recommending the most popular items, paired by user."""

from dataclasses import asdict
from functools import cached_property

import numpy as np

from attacks.metrics import user_mean
from privfed.evaluation import Evaluator, RoundEvaluation
from privfed.evaluation.result import Ratio
from privfed.setup.assembly import Assembly

_USERS_AT_ONCE = 2048


class PopularityGain:
    """Compares evaluated rounds of a run with ranking by training popularity.

    Args:
        assembly: the assembled run.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    def paired(self, evaluated: RoundEvaluation) -> Ratio | None:
        """The main metric on the test part less that of popularity, as was kept with the round or as its users have it.

        None where ratings are predicted, where users are not known one by one, or where others were measured.
        """
        if evaluated.gain is not None or evaluated.by_user is None:
            return evaluated.gain
        name, k, values = evaluated.by_user
        popular = self._popular.by_user(name, k)
        if len(popular) != len(values):
            return None
        return Ratio.model_validate(asdict(user_mean(values - popular, resamples=1000)))

    @cached_property
    def _popular(self) -> Evaluator:
        """What popularity reaches, user by user."""
        assembly = self._assembly
        evaluator = Evaluator(assembly.parts, assembly.config.protocol, "test")
        counts = assembly.trained.train.popularity().astype(np.float32)
        for users in np.array_split(evaluator.users, -(-len(evaluator.users) // _USERS_AT_ONCE)):
            items = evaluator.candidates(users)
            evaluator.add(users, np.broadcast_to(counts, (len(users), len(counts))) if items is None else counts[items])
        return evaluator


def gain_over_popularity(assembly: Assembly, evaluated: RoundEvaluation) -> Ratio | None:
    """What `PopularityGain` finds for one round."""
    return PopularityGain(assembly).paired(evaluated)
