"""Personal budgets in one sum: what people of a small epsilon gain when others choose a large one.

    python -m benchmarks.quality.personal_budgets --data ml-1m --on valid --seeds 1
    python -m benchmarks.quality.personal_budgets --data ml-1m --seeds 3

`private-gram`, all settings by its rule, behind central Gaussian noise. Everybody chooses an epsilon, independently of
the history: the same for all (1, 2, 4, 8), or 1 for most and 8 for one in five or in two; half at 16 and 32 show where
more budget stops paying. Uploads are weighted by mu, so what there is to learn from should follow from the sum of mu
over people alone, whoever has which part of it; the last rows hold that against mixtures with the same sum. `only ...`
is the alternative without weights: those who chose 8 take part, and everybody else gets recommendations and gives
nothing.

Every variant is measured on all people and on those alone whose epsilon is 1 in a mixture, the same people in every
variant of a seed, which draws choices and noise. Data, splits and parts are those of `benchmarks.quality.private_gram`;
NDCG@20, full ranking; differences are paired by user, seeds averaged per user first (95 %, bootstrap). Results go to
`benchmarks/results/personal_budgets_<part>_<data>.json`; runs found there are not repeated.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.paired_runs import PairedRuns
from benchmarks.quality.private_gram import GRAM, SPLITS, Fitted, configured, parts_of, plan
from privfed.contracts import Block
from privfed.data import load
from privfed.federation import Streams
from privfed.guards.tier_weights import tiers_of
from privfed.privacy import PrivacyPlan
from privfed.privacy.tier_weights import with_tiers
from privfed.privacy.tiers import BudgetTiers

DATA = ("ml-1m", "ml-100k", "lastfm-2k", "tenrec-qba-small")
MIXTURES = {"1 in 5": 0.2, "1 in 2": 0.5}
"""Share of people who choose 8."""
ALL_AT = ("all at 1", "all at 2", "all at 4", "all at 8")


def variants() -> dict[str, BudgetTiers]:
    """Tiers of every variant, all with two names, so that the same people are careful in all of them."""
    made = {name: _tiers(float(name.split()[-1]), float(name.split()[-1]), 0.5) for name in ALL_AT}
    for name, generous in MIXTURES.items():
        made[f"{name} at 8, others at 1"] = _tiers(1, 8, generous)
        made[f"only {name} at 8"] = _tiers(0, 8, generous)
    return made | {f"1 in 2 at {epsilon}, others at 1": _tiers(1, epsilon, 0.5) for epsilon in (16, 32)}


def _tiers(careful: float, generous: float, share: float) -> BudgetTiers:
    return BudgetTiers.model_validate({"careful": (careful, 1 - share), "generous": (generous, share)})


def plan_of(tiers: BudgetTiers, users: int) -> PrivacyPlan:
    """Both queries of a run use shares of one clip norm that add up to 1, so one release is what is sized."""
    bare = plan(tiers.largest, users)
    if tiers.levels[0][1].epsilon == tiers.largest:
        return bare
    return with_tiers(bare, tiers, 1, users, [{"upload": Block((1,))}])


def careful_in(mixture: str, users: np.ndarray, seed: int) -> np.ndarray:
    """Which users choose 1 in a mixture, under a seed."""
    drawn = tiers_of(_tiers(1, 8, MIXTURES[mixture]), Streams.from_seed(seed), torch.from_numpy(users))
    careful: np.ndarray = drawn == 0
    return careful


def at_one(variant: str, mixture: str) -> str:
    """Name of a variant's numbers on the careful people of a mixture."""
    return f"{variant}, on those at 1 of {mixture}"


def pairs(variant: str) -> list[tuple[str, str]]:
    """A variant less its standard, on everybody and on the careful people of either mixture."""
    return [
        (variant, "all at 1"),
        *((at_one(variant, mixture), at_one("all at 1", mixture)) for mixture in MIXTURES),
        *([] if not variant.startswith("only") else [(variant, variant.removeprefix("only ") + ", others at 1")]),
    ]


def measure(runs: PairedRuns, options: Any) -> None:
    """All variants under all seeds that are not there yet."""
    parts = parts_of(options.data, load(options.data), options.on)
    users = parts.train.n_users
    for variant, tiers in variants().items():
        if not harness.chosen(variant, options.only):
            continue
        privacy = plan_of(tiers, users)
        for seed in range(options.seeds):
            if runs.has(variant, seed):
                continue
            fitted = Fitted(configured(options.data, GRAM, privacy, seed), parts)
            ndcg = fitted.by_user(options.on)["ndcg"]
            run: dict[str, Any] = {"variant": variant, "seed": seed, "ndcg": float(ndcg.mean())}
            mechanism: Any = privacy.mechanism
            run |= {"sum_of_mu": privacy.counted(users) / mechanism.noise_multiplier, "people": users}
            run["epsilon"] = {tier.name: tier.epsilon for tier in fitted.guarantee.tiers} or fitted.guarantee.epsilon
            for mixture in MIXTURES:
                careful = careful_in(mixture, fitted.users, seed)
                run[f"ndcg on those at 1 of {mixture}"] = float(ndcg[careful].mean())
                runs.keep(at_one(variant, mixture), seed, np.where(careful, ndcg, np.nan))
            runs.add(run, ndcg)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, then compare."""
    parser = harness.parser(__file__, __doc__, data={"default": "ml-1m", "choices": DATA}, seeds=3, only=[])
    parser.add_argument("--on", choices=("valid", "test"), default="test", help="part to rank (default: %(default)s)")
    options = harness.parse(parser, arguments)
    assert options.data in SPLITS
    runs = PairedRuns(f"personal_budgets_{options.on}_{options.data}", options)
    measure(runs, options)
    runs.compare(pair for variant in list(variants())[1:] for pair in pairs(variant))


if __name__ == "__main__":
    main()
