"""Gender and age from what a federation sees: some 1,200 people of MovieLens-1M, under every kind of mechanism.

    python -m benchmarks.privacy.attributes

Each variant trains three rounds, every client in one with probability 0.2, and looks at the last one, which has the
same clients in all variants. The adversary knows the attribute of three in four of them and guesses the others' from
one kind of evidence: their item rows as sent, the items that the membership attack recovers from these, or the blocks
without item rows. True interactions, their number alone and what a device keeps are baselines. Under central noise it
is the unprotected update (`raw`) that is read, because the trusted server has it. A secure sum shows nothing of a
single person; what a device keeps is all there is. Results go to `benchmarks/results/attributes.json`. One process, one
thread, under 4 GiB.
"""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from privfed.audit.attack_runs.attributes import attack_attributes
from privfed.audit.report.records import AttributeRow
from privfed.data import SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, RATE, ROUNDS = "ml-1m", 0.2, 3
NONE, PUBLISHED, LAPLACE = "none", "published-noise", "local-laplace:epsilon0=8,clip_norm=1"
CENTRAL, SECURE = "central-gaussian:clip_norm=1,noise_multiplier=1", "secure-sum:clip_norm=10"
METHODS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "FedNCF": ({"name": "fedncf"}, (NONE, PUBLISHED, LAPLACE, CENTRAL, SECURE)),
    "HeteFedRec, published, means": (
        method_settings("hetefedrec:published", aggregation="contributors", head_aggregation="contributors"),
        (NONE, PUBLISHED),
    ),
    "GPFedRec": ({"name": "gpfedrec", "dim": 16}, (NONE, PUBLISHED, LAPLACE)),
    "FedVAE": ({"name": "fedvae", "latent": 16}, (NONE, PUBLISHED, LAPLACE, CENTRAL)),
}
TAPS = {CENTRAL: ("raw",), SECURE: ("sum",)}
AUDITED = 1200
"""Users of whom there is no upload to look at, only what their devices keep."""


def rounded(row: AttributeRow) -> dict[str, Any]:
    """A row as it is kept."""
    numbers = {
        name: [round(float(end), 4) for end in (interval.value, interval.lo, interval.hi)]
        for name, interval in (("auc", row.auc), ("balanced_accuracy", row.balanced_accuracy))
    }
    about = {"attribute": row.attribute, "classes": row.classes, "evidence": row.evidence, "tap": row.tap}
    return about | numbers | {"majority": round(float(row.majority), 4), "n_users": row.n_users}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, tap and guess in every variant."""
    parser = harness.parser(__file__, __doc__, only=[])
    options = harness.parse(parser, arguments)
    parts = split(load(DATA), SplitSpec(kind="published"))
    record = harness.Record("attributes", options, [])
    for method, (settings, plans) in METHODS.items():
        for plan in plans:
            if record.has(method=method, plan=plan) or not harness.chosen(method, options.only):
                continue
            words = f"{plan}{',' if ':' in plan else ':'}sampling.kind=poisson,sampling.rate={RATE}"
            config = ExperimentConfig(
                data=DATA,
                split=parts.spec,
                method=settings,
                privacy=PrivacyPlan.parse(words),
                protocol=Protocol(state="received"),
                rounds=ROUNDS,
                evaluate_every=ROUNDS,
                taps=TapConfig(
                    places=TAPS.get(plan, ("wire",)),
                    users=AUDITED if plan == SECURE else parts.train.n_users,
                    rounds=(ROUNDS - 1,),
                ),
            )
            print(method, words, flush=True)
            record.add({"method": method, "plan": plan} | run(Experiment(config, parts), baselines=plan == NONE))


def run(experiment: Experiment, *, baselines: bool) -> dict[str, Any]:
    """One variant: rows, what could not be guessed and why, and the cost."""
    result = experiment.run(parts=("test",))
    seen = {tap: result.transcript.joined(tap) for tap in ("raw", "wire", "sum")}
    result.transcript.observations.clear()
    started = time.process_time()
    found = attack_attributes(experiment, seen.__getitem__, baselines=baselines)
    return {
        "rows": [rounded(row) for row in found.rows],
        "not_run": [f"{left.what}: {left.why}" for left in found.not_run],
        "train_cpu_s": round(result.cpu_seconds, 1),
        "attack_cpu_s": round(time.process_time() - started, 1),
        "peak_gib": round(harness.peak_mib() / 2**10, 2),
    }


if __name__ == "__main__":
    main()
