"""Five published systems and `private-gram`: what each recommends, what attacks find, what is guaranteed.

    python examples/attack_evaluation.py --data ml-100k --rounds 40 --seeds 3 --out audits/five
    python -m benchmarks.privacy.five_systems --audit audits/five

The first command audits the five systems; this one runs `private-gram` under the same protocol (ratings of 4 and 5,
newest item of each person tested, 100 audited people, noise in shares of which those of half of the people suffice) at
epsilon 8 and 1, and keeps a row of every run of both, from the audits' `runs.csv`, in
`benchmarks/results/five_systems.json`. The page, the picture and README read that file. Without `--audit` the rows of
the five stay as they are, and those of `private-gram` are measured again.
"""

import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from privfed.audit.config import AuditConfig, Variant
from privfed.audit.grid import run_audit
from privfed.data import Interactions, SplitSpec, behaviours_from_ratings, load
from privfed.evaluation import Protocol
from privfed.privacy import PrivacyPlan
from privfed.setup.config import AuditTapConfig

OWN = "private-gram"
EPSILONS = (8.0, 1.0)
NUMBERS = {"ndcg": "ndcg@10", "epsilon": "eps", "delta": "delta", "auc": "auc", "excess": "auc_excess"}
"""Field of a row -> column of `runs.csv`."""


def rows(audit: Path) -> Iterator[dict[str, Any]]:
    """One row for every run of an audit."""
    with (audit / "runs.csv").open(encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            kept: dict[str, Any] = {name: run[name] for name in ("method", "setting", "trust", "attack", "tap", "game")}
            kept["seed"] = int(run["seed"])
            yield kept | {name: float(run[column]) if run[column] else None for name, column in NUMBERS.items()}


def audit_private_gram(data: str, seeds: int, out: Path) -> None:
    """Audit `private-gram` under the protocol of the five systems."""
    interactions = with_ratings_as_behaviours(load(data))
    users = interactions.n_users
    shared: dict[str, Any] = {"clip_norm": 1.0, "n_min_honest": users // 2, "delta": users**-1.1}
    plans = [PrivacyPlan.named("distributed-gaussian", epsilon=epsilon, **shared) for epsilon in EPSILONS]
    config = AuditConfig(
        data=data,
        split=SplitSpec(target="buy"),
        variants=tuple(Variant(method={"name": OWN}, privacy=plan) for plan in plans),
        rounds=1,
        seeds=tuple(range(seeds)),
        protocol=Protocol(state="received"),
        evaluate_every=1,
        taps=AuditTapConfig(users=100),
        fidelity="analytic",
    )
    run_audit(config, interactions, out)


def with_ratings_as_behaviours(interactions: Interactions) -> Interactions:
    """Ratings of 4 and 5 as what is recommended, as in the audit of the five."""
    return interactions if interactions.behaviour is not None else behaviours_from_ratings(interactions, min_per_item=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the audit of the five, run `private-gram`, and keep both."""
    parser = harness.parser(__file__, __doc__, data="ml-100k", seeds=3)
    parser.add_argument("--audit", type=Path, help="folder of the audit of the five systems")
    options = harness.parse(parser, arguments)
    record = harness.Record("five_systems", options, [], anew=options.audit is not None)
    with tempfile.TemporaryDirectory() as folder:
        audit_private_gram(options.data, options.seeds, Path(folder))
        own = [row for row in rows(Path(folder)) if row["method"] == OWN]
        others = (
            [row for row in record.results if row["method"] != OWN] if options.audit is None else rows(options.audit)
        )
        record.results = [*others, *own]
    record.save()
    print(*map(json.dumps, record.results), sep="\n")


if __name__ == "__main__":
    main()
