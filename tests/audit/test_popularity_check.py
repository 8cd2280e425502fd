"""The audit's own arithmetic of popularity equals a loop over users, and what the evaluator says."""

import numpy as np
import pytest

from privfed.audit.checks.popularity import check_popularity, popularity_bounds
from privfed.data import SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig


def by_definition(parts, counts, protocol, part):
    """Means over users, candidates with equal counts behind and ahead of the held-out items."""
    held, known = parts.valid if part == "valid" else parts.test, parts.train.popularity() > 0
    reached = {}
    for user in range(held.n_users):
        own = {*held.items_of(user).tolist()}
        hidden = {*parts.train.items_of(user).tolist()}
        if part == "test" and protocol.when_testing == "valid_left_out":
            hidden |= {*parts.valid.items_of(user).tolist()}
        listed = [item for item in range(parts.train.n_items) if protocol.catalogue == "all" or known[item]]
        own &= {*listed}
        if not own:
            continue
        for side, sign in (("low", 1), ("high", -1)):
            candidates = [item for item in listed if item in own or item not in hidden]
            ranked = sorted(candidates, key=lambda item: (-counts[item], sign * (item in own)))
            places = [place for place, item in enumerate(ranked, 1) if item in own]
            for k in protocol.k:
                hits = [place for place in places if place <= k]
                ideal = sum(1 / np.log2(place + 1) for place in range(1, min(len(own), k) + 1))
                found = {
                    "hr": float(bool(hits)),
                    "recall": len(hits) / len(own),
                    "precision": len(hits) / k,
                    "mrr": 1 / hits[0] if hits else 0.0,
                    "ndcg": sum(1 / np.log2(place + 1) for place in hits) / ideal,
                }
                for name, value in found.items():
                    reached.setdefault((name, k), {}).setdefault(side, []).append(value)
    return {key: (np.mean(sides["low"]), np.mean(sides["high"])) for key, sides in reached.items()}


@pytest.fixture(params=["one item of each", "a tenth of each"])
def parts(request, small_split):
    if request.param == "one item of each":
        return small_split
    return split(load("synthetic-small"), SplitSpec(kind="ratio")).subset(np.arange(40))


@pytest.mark.parametrize("when_testing", ["valid_left_out", "valid_ranked"])
@pytest.mark.parametrize("catalogue", ["all", "trained"])
def test_bounds_are_those_of_a_loop_and_hold_what_is_reported(parts, catalogue, when_testing):
    protocol = Protocol(k=(2, 5), catalogue=catalogue, when_testing=when_testing)
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "popularity"}, protocol=protocol, rounds=1, taps=TapConfig(places=())
    )
    experiment = Experiment(config, parts)
    counts = parts.train.popularity()
    for part in ("valid", "test"):
        found = popularity_bounds(experiment, part)
        wanted = by_definition(parts, counts, protocol, part)
        assert found.keys() == wanted.keys()
        for key, bounds in wanted.items():
            assert found[key] == pytest.approx(bounds)
    [check] = check_popularity(experiment, experiment.run())
    assert check.passed, check.detail
