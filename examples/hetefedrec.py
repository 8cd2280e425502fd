"""HeteFedRec: clients with models of three sizes, and what secure sums and budgets do to quality and to an attacker.

    python examples/hetefedrec.py                                 # synthetic data, about four minutes
    python examples/hetefedrec.py --data ml-100k --rounds 40
    python examples/hetefedrec.py --epsilons 1 8 --base ncf

The first rows train unprotected: as published, and as this package's default does it. Under a secure sum only
totals are seen; with "held" blocks a client sends no more than its model holds, and the server sees its size. Below
them, noise is sized backwards from the budget: epsilon is the total over the run for any one user, whichever model it
has. One joint clip covers all blocks of a client, means divide by public numbers only. The server's learning rate
follows the noise, so that one step puts about the same noise on a parameter whatever the budget.

Attack: the best AUC of training items against items never seen, over all items, on what is seen in the last round (one
upload, or the sum with the user in it); popularity guesses without looking.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from privfed.audit.attack_runs.attack_run import attack_trained
from privfed.data import Interactions, load
from privfed.evaluation import UNCOUNTED, Protocol
from privfed.experiment import Experiment, RunResult
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig, TapConfig

Variant = tuple[Mapping[str, Any], PrivacyPlan]
CLIP_NORM, STEP_NOISE, LARGEST_LR = 0.1, 0.0047, 20.0


def main() -> None:
    """Train once per mechanism and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--base", default="lightgcn", choices=("ncf", "lightgcn"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 8], help="budgets besides infinity")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    columns = ("mechanism", "trust", "epsilon", "NDCG@20", "kB up", "best attack")
    table = Table(*columns, title=f"hetefedrec on {options.data}, {options.rounds} rounds")
    variants: dict[str, Variant] = {"popularity, no training": ({"name": "popularity"}, PrivacyPlan.named("none"))}
    variants |= mechanisms(options, interactions)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=len(variants) * options.rounds)
        for label, (method, plan) in variants.items():
            bar.update(task, description=label)
            experiment = Experiment.on(configured(options, method, plan), interactions)
            result = experiment.run(progress=lambda *_: bar.advance(task), parts=("test",))
            table.add_row(
                label,
                result.guarantee.trust,
                f"{result.guarantee.epsilon:.2f}",
                f"{result.test.metric('ndcg', 20).value:.3f}",
                f"{result.costs.up_bytes / max(result.costs.client_rounds, 1) / 1e3:,.0f}",
                strongest(experiment, result, options.rounds),
            )
    console.print(table)
    kind = "synthetic data" if interactions.card.synthetic else interactions.card.name
    console.print(f"[dim]{kind}; seed {options.seed}; {result.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print("[dim]Epsilon is infinite where exact sums are opened: a sum without noise bounds nothing.")


def mechanisms(options: argparse.Namespace, interactions: Interactions) -> dict[str, Variant]:
    """Label -> method and plan."""
    published = method_settings("hetefedrec:published", base=options.base)
    default = {"name": "hetefedrec", "base": options.base}
    secure = {"clip_norm": 10.0}
    variants: dict[str, Variant] = {
        "as published": (published, PrivacyPlan.named("none")),
        "default": (default, PrivacyPlan.named("none")),
        "secure sum": (default, PrivacyPlan.named("secure-sum", **secure)),
        "secure sum, held blocks": (default, PrivacyPlan.named("secure-sum", **secure, blocks="held")),
    }
    users = interactions.n_users
    fields: dict[str, Any] = {"clip_norm": CLIP_NORM, "noise_multiplier": 1.0, "delta": users**-1.1}
    trusts = {
        "central": PrivacyPlan.named("central-gaussian", **fields),
        "distributed": PrivacyPlan.named("distributed-gaussian", **fields, n_min_honest=users // 2),
    }
    for trust, plan in trusts.items():
        for epsilon in options.epsilons:
            sized = plan_for_target(
                plan, epsilon, options.rounds, users, coordinates=upload_size(options, interactions)
            )
            noise = sized.mechanism.sum_deviation(users) / users
            private = {"server_optimiser": "sgd", "server_lr": min(LARGEST_LR, STEP_NOISE / noise)}
            variants[f"{trust} Gaussian, epsilon {epsilon:g}"] = {**default, **private}, sized
    return variants


def upload_size(options: argparse.Namespace, interactions: Interactions) -> int:
    """Numbers in one upload of the largest model, all blocks together."""
    experiment = Experiment.on(
        configured(options, {"name": "hetefedrec", "base": options.base}, PrivacyPlan.named("none")), interactions
    )
    return sum(block.size for block in experiment.server.schema.values())


def configured(options: argparse.Namespace, method: Mapping[str, Any], plan: PrivacyPlan) -> ExperimentConfig:
    """One run, tapped in its last round where uploads or sums are seen."""
    rounds = 1 if method["name"] == "popularity" else options.rounds
    return ExperimentConfig(
        data=options.data,
        method=dict(method),
        privacy=plan,
        protocol=Protocol(state="received"),
        rounds=rounds,
        seed=options.seed,
        evaluate_every=rounds,
        fidelity="analytic",
        taps=TapConfig(places=("wire",), rounds=(rounds - 1,)),
    )


def strongest(experiment: Experiment, result: RunResult, rounds: int) -> str:
    """The best attack on what was seen of uploads or sums."""
    rows = [
        row
        for row in attack_trained(experiment, result.transcript.joined, rounds)
        if row.tap in ("wire", "sum") and row.game == "trained vs never seen" and row.scope == "all items"
    ]
    if not rows:
        return "-"
    best = max(rows, key=lambda row: row.auc.value)
    return f"{best.auc.value:.2f} {best.attack} ({best.tap})"


if __name__ == "__main__":
    main()
