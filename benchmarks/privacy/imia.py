"""IMIA and simpler attacks: F1 of finding the items that a Fed-NCF client trained on among the rows it moved.

    python -m benchmarks.privacy.imia

MovieLens-100K, leave-one-out, unprotected; neural collaborative filtering on a private user vector, four negatives
for each positive, local Adam. Two settings:

    small     vectors of 16 from N(0, 0.1), head (8, 8), 20 steps of 2e-3, the last of eight rounds of 256 clients
    released  vectors of 64 from N(0, 1), head (64, 32), 20 steps of 1e-3, the first round, as the code of IMIA is set
              (Yuan et al., WWW 2023); that code takes 20 epochs of minibatches, and ours whole histories in every step

A user's candidates are the touched rows: its items and its sampled negatives, one item in five. F1 takes as many of the
highest scores as the user has items, so it is precision and recall too; a guess at random gives 0.2. Means over users
with 95 % bootstrap intervals. IMIA starts from a newcomer's user vector, as do all attacks that repeat training. To
compare with: the released code gave 0.28 at lambda 0.9 and 0.69 at 0.2, on nine users. Results go to
`benchmarks/results/imia.json`. One process, one thread.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attacks import ServerView
from attacks.membership import DeltaScore, Imia, PopularityGuesser, PublicScore, RankOneSign, TwoWorld
from attacks.membership.attack import UploadAttack
from attacks.metrics import user_mean
from attacks.views import Scores, upload_support
from benchmarks import harness
from privfed.audit.attack_runs.attack_run import MembershipGames, views
from privfed.audit.attack_runs.training_oracles import build_training_oracle
from privfed.data import SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, AUDITED = "ml-100k", 200
ATTACKS: tuple[UploadAttack, ...] = (
    PopularityGuesser(),
    Imia(0.9),
    Imia(0.5),
    Imia(0.2),
    PublicScore(),
    DeltaScore(),
    TwoWorld(),
    RankOneSign(),
)
NCF: dict[str, Any] = {
    "name": "hetefedrec",
    "base": "ncf",
    "variant": "all_small",
    "inner": False,
    "item_bias": False,
    "local_optimiser": "adam",
    "user_optimiser": "adam",
    "user_l2": 0.0,
    "steps": 20,
    "aggregation": "contributors",
    "head_aggregation": "contributors",
    "server_optimiser": "average",
}


@dataclass(frozen=True)
class Setting:
    """A model and when it is looked at.

    Attributes:
        width, hidden: of vectors and head.
        scale: standard deviation of initial vectors.
        lr: of the clients' Adam.
        rounds: trained, the last of which is attacked.
    """

    width: int
    hidden: tuple[int, ...]
    scale: float
    lr: float
    rounds: int

    @property
    def method(self) -> dict[str, Any]:
        """As a method's settings; with one size for all, HeteFedRec is Fed-NCF."""
        rates = dict.fromkeys(("lr_user", "lr_items", "lr_heads"), self.lr)
        scales = dict.fromkeys(("initial_scale", "initial_user_scale"), self.scale)
        return NCF | rates | scales | {"widths": [self.width], "shares": [1.0], "hidden": list(self.hidden)}


SETTINGS = {"small": Setting(16, (8, 8), 0.1, 2e-3, 8), "released": Setting(64, (64, 32), 1.0, 1e-3, 1)}


def f1_at_true_count(
    scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
) -> Float64[np.ndarray, "users"]:
    """Share of each user's highest scored candidates, as many as there are members, that are members; NaN without."""
    order = np.argsort(np.where(candidates, -scores, np.inf), axis=1, kind="stable")
    found = np.take_along_axis(members & candidates, order, axis=1)
    many = (members & candidates).sum(axis=1)
    hits = (found & (np.arange(found.shape[1]) < many[:, None])).sum(axis=1)
    return np.where(many > 0, hits / np.maximum(many, 1), np.nan)


def measured(setting: Setting, seed: int) -> dict[str, Any]:
    """Train, look at the last round, and say what every attack found."""
    config = ExperimentConfig(
        data=DATA,
        method=setting.method,
        privacy=PrivacyPlan.parse("none:sampling.kind=fixed,sampling.size=256"),
        protocol=Protocol(k=(20,)),
        rounds=setting.rounds,
        seed=seed,
        evaluate_every=setting.rounds,
        taps=TapConfig(users=AUDITED, rounds=(setting.rounds - 1,), training_oracles=True),
    )
    experiment = Experiment(config, split(load(DATA), SplitSpec()))
    result = experiment.run(parts=("test",))
    games, transcript = MembershipGames.from_experiment(experiment), result.transcript
    uploads = transcript.joined("wire")
    oracle = build_training_oracle(experiment, "wire", uploads, transcript.joined("message"))
    if experiment.item_blocks is None or oracle is None:
        raise ValueError(f"{config.method_name} has no training oracle; choose a method that trains in one step")
    (view,) = views(uploads, games.users, experiment.item_blocks)
    knowledge = replace(games.knowledge, oracle=oracle)
    here, rows = view.present(), {}
    for attack in ATTACKS:
        started = time.process_time()
        scores = attack.score(view, knowledge)
        seconds = time.process_time() - started
        rows[attack.name] = _summary(scores, games.games[0].members, view, here) | {"cpu_s": round(seconds, 2)}
    recall = {metric.slug: round(metric.value, 4) for metric in result.test.metrics if metric.name == "recall"}
    return {"users": int(here.sum()), "round": setting.rounds, "utility": recall, "f1": rows}


def _summary(
    scores: Scores, members: Bool[np.ndarray, "users items"], view: ServerView, here: Bool[np.ndarray, "users"]
) -> dict[str, Any]:
    touched = upload_support(view).rows & here[:, None]
    f1 = user_mean(f1_at_true_count(scores, members, touched))
    return {"f1": round(f1.value, 3), "lo": round(f1.lo, 3), "hi": round(f1.hi, 3)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both settings and write what was found."""
    parser = harness.parser(__file__, __doc__, seed=0)
    options = harness.parse(parser, arguments)
    found = {name: measured(setting, options.seed) for name, setting in SETTINGS.items()}
    record = harness.Record("imia", options, {}, anew=True)
    record.results = {"data": DATA, "seed": options.seed} | found
    record.save()
    for name, one in found.items():
        print(f"{name}: {one['users']} users, round {one['round']}, {one['utility']}")
        for attack, row in one["f1"].items():
            print(f"  {attack:20} F1 {row['f1']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}]  {row['cpu_s']} s")


if __name__ == "__main__":
    main()
