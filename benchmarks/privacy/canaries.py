"""Claims of the code that runs: the mechanism audit of every plan, and canary clients on MovieLens-100K.

    python -m benchmarks.privacy.canaries [--quick]

Mechanism: one upload of FedNCF (or one sum with it, or one padded item) under every kind of plan; the bound should lie
a few per cent below what is accounted, never above it. Canaries: FedMF and FedVAE, 10 rounds, a trusted server's noise
sized for epsilon 8 and 1, with everybody in every round or each person with probability 0.2; 200 and 1,000 canaries.
`placebo` are as many directions that were never inserted: their bound should be 0. CPU-seconds of one thread; `--quick`
leaves out 1,000 canaries.
"""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attacks.empirical import one_shot_epsilon, one_shot_lower_bound
from benchmarks import harness
from privfed.audit.epsilon.canaries import run_canaries
from privfed.audit.epsilon.claims import run_claim
from privfed.audit.epsilon.mechanism import audit_mechanism
from privfed.audit.report.records import GuaranteeRow
from privfed.data import Interactions, Split, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig

ROUNDS = 10
METHODS: list[dict[str, Any]] = [{"name": "fedmf"}, {"name": "fedvae", "latent": 16}]
SAMPLINGS = ["", ",sampling.kind=poisson,sampling.rate=0.2"]
EPSILONS = [8.0, 1.0]
UNBOUNDED = ["none:release=total", "secure-sum:clip_norm=1"]
MECHANISMS = [
    "local-laplace:clip_norm=1,epsilon0=1",
    "local-laplace:clip_norm=1,epsilon0=2",
    "local-laplace:clip_norm=1,epsilon0=8",
    "local-gaussian:clip_norm=1,noise_multiplier=1",
    "local-gaussian:clip_norm=1,noise_multiplier=4",
    "local-gaussian:clip_norm=1,noise_multiplier=4,clipping=per_block",
    "central-gaussian:clip_norm=1,noise_multiplier=0.5",
    "central-gaussian:clip_norm=1,noise_multiplier=1",
    "central-gaussian:clip_norm=1,noise_multiplier=4",
    "central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.quantile=0.5",
    "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=100",
    "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=100,law=discrete_gaussian",
    "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=800",
    "shared-sum:padding.kind=randomised_response,padding.epsilon=1",
    "shared-sum:padding.kind=randomised_response,padding.epsilon=4",
    "shared-sum:padding.kind=fake_items,padding.rho=1",
    "none",
    "clip:clip_norm=1",
    "published-noise",
    "secure-sum:clip_norm=1",
    "shared-sum",
    "interaction-dpsgd:clip_norm=1,noise_multiplier=1",
]


def mechanisms(data: Interactions) -> list[dict[str, object]]:
    """The audit of every plan's guards."""
    experiment = Experiment.on(ExperimentConfig(method={"name": "fedncf"}), data)
    found = []
    for words in MECHANISMS:
        started = time.process_time()
        rows = audit_mechanism(PrivacyPlan.parse(words), experiment.server.schema, experiment.n_users)
        measured = [
            {
                "audited": row.audited,
                "estimator": row.estimator,
                "bound": round(row.value, 3),
                "accounted": round(row.accounted, 3) if row.accounted < float("inf") else "inf",
                "consistent": row.consistent,
                "trials": row.trials,
            }
            for row in rows
        ]
        line = {"plan": words, "measured": measured, "cpu_s": round(time.process_time() - started, 2)}
        print(json.dumps(line), flush=True)
        found.append(line)
    return found


def canaries(parts: Split, method: Mapping[str, Any], plan: PrivacyPlan, k: int) -> dict[str, object]:
    """One run with canaries, every observable next to its placebo."""
    config = ExperimentConfig(method=dict(method), privacy=plan, rounds=ROUNDS)
    started = time.process_time()
    run = run_canaries(config, parts, k)
    claimed, delta = run_claim(GuaranteeRow.model_validate(run.guarantee.model_dump()), "user")
    reads = []
    estimated = partial(one_shot_epsilon, dimensions=run.dimensions, delta=delta)
    bounded = partial(one_shot_lower_bound, dimensions=run.dimensions, delta=delta)
    for read in run.reads:
        estimate = estimated(read.inserted, noise_multiplier=run.noise)
        reads.append(
            {
                "audited": read.audited,
                "tap": read.tap,
                "estimate": round(estimate.epsilon, 2),
                "interval": [round(estimate.lo, 2), round(estimate.hi, 2)],
                "placebo_floor": round(estimate.placebo, 2),
                "lower_bound": round(bounded(read.inserted).epsilon, 2),
                "placebo_estimate": round(estimated(read.placebo).epsilon, 2),
                "placebo_lower_bound": round(bounded(read.placebo).epsilon, 2),
                "note": estimate.note,
            }
        )
    return {
        "method": method["name"],
        "plan": plan.name,
        "canaries": k,
        "dimensions": run.dimensions,
        "accounted": round(claimed, 3) if claimed < float("inf") else "inf",
        "delta": delta,
        "reads": reads,
        "cpu_s": round(time.process_time() - started, 1),
    }


def plans(population: int) -> list[PrivacyPlan]:
    """A trusted server's noise for every budget and sampling, and sums without noise."""
    base = "central-gaussian:clip_norm=1,noise_multiplier=1"
    sized = [
        plan_for_target(PrivacyPlan.parse(base + sampling), epsilon, ROUNDS, population)
        for sampling in SAMPLINGS
        for epsilon in EPSILONS
    ]
    return [*sized, *map(PrivacyPlan.parse, UNBOUNDED)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything in this process and write `canaries.json`."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--quick", action="store_true", help="leave out 1,000 canaries")
    options = harness.parse(parser, arguments)
    data = load("ml-100k")
    parts = split(data, SplitSpec())
    record = harness.Record("canaries", options, {}, anew=True)
    record.results = {"rounds": ROUNDS, "mechanisms": mechanisms(data)}
    runs: list[dict[str, object]] = []
    for k in (200,) if options.quick else (200, 1000):
        for method in METHODS:
            for plan in plans(parts.train.n_users):
                line = canaries(parts, method, plan, k)
                print(json.dumps(line), flush=True)
                runs.append(line)
    record.results |= {"canaries": runs, "cpu_s": round(time.process_time(), 1)}
    record.save()


if __name__ == "__main__":
    main()
