"""FAIR: devices of unequal memory, one model; what a tier of devices, a secure sum and a budget cost and hide.

    python examples/fair.py                                  # synthetic data, about a minute
    python examples/fair.py --data ml-100k --rounds 60
    python examples/fair.py --budgets 40000 160000 --epsilons 8

Unprotected rows: devices that hold everything, devices of a scheme, and devices within budgets of memory, whose
bytes are those that training really keeps. Then the same devices behind secure sums: in the server's basis everybody is
in one sum; tier by tier uploads are as small as the device's table, every sum is one tier's, and a tier with fewer than
three members is joined to another before anybody trains. Below them noise is sized backwards from the budget: one
joint clip in the orthonormal basis, public denominators, one sum of everybody.

Attack: the best AUC of training items against items never seen, over all items, on what is seen in the last round (one
upload, or the sum with the user in it); popularity guesses without looking. A smaller table protects nobody.
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
from privfed.setup.config import ExperimentConfig, TapConfig

Setting = tuple[Mapping[str, Any], PrivacyPlan]
CLIP_NORM = 1.0


def main() -> None:
    """Train once per setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--scheme", default="1x-4x", help="compressions of the tiers of devices")
    parser.add_argument("--budgets", type=int, nargs="+", default=[40_000, 400_000], help="bytes of memory of devices")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cohort", type=int, default=100, help="clients of a round where nothing is noised")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 8], help="budgets besides infinity")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    columns = ("devices and mechanism", "epsilon", "NDCG@20", "kB up", "kB down", "best attack")
    table = Table(*columns, title=f"fair on {options.data}, {options.rounds} rounds")
    variants: dict[str, Setting] = {"popularity, no training": ({"name": "popularity"}, PrivacyPlan.named("none"))}
    variants |= settings(options, interactions)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=len(variants) * options.rounds)
        for label, (method, plan) in variants.items():
            bar.update(task, description=label)
            experiment = Experiment.on(configured(options, method, plan), interactions)
            result = experiment.run(progress=lambda *_: bar.advance(task), parts=("test",))
            traffic = max(result.costs.client_rounds, 1) * 1e3
            table.add_row(
                label,
                f"{result.guarantee.epsilon:.2f}",
                f"{result.test.metric('ndcg', 20).value:.3f}",
                f"{result.costs.up_bytes / traffic:,.0f}",
                f"{result.costs.down_bytes / traffic:,.0f}",
                strongest(experiment, result, options.rounds),
            )
    console.print(table)
    kind = "synthetic data" if interactions.card.synthetic else interactions.card.name
    console.print(f"[dim]{kind}; seed {options.seed}; {result.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print("[dim]Epsilon is infinite where exact sums are opened: a sum without noise bounds nothing.")


def settings(options: argparse.Namespace, interactions: Interactions) -> dict[str, Setting]:
    """Label -> method and plan."""
    some = {"sampling": {"kind": "fixed", "size": min(options.cohort, interactions.n_users)}}
    tiers = {"name": "fair", "scheme": options.scheme}
    by_budget = {"name": "fair", "budgets": options.budgets, "interactions": interactions.n_items // 2}
    in_tiers = {**tiers, "placement": "tier"}
    held = PrivacyPlan.named("secure-sum", clip_norm=10.0, blocks="held", **some)
    variants: dict[str, Setting] = {
        "everybody 1x": ({"name": "fair", "variant": "fedavg"}, PrivacyPlan.named("none", **some)),
        options.scheme: (tiers, PrivacyPlan.named("none", **some)),
        f"{options.scheme}, tier by tier": (in_tiers, PrivacyPlan.named("none", **some)),
        "budgets of memory": (by_budget, PrivacyPlan.named("none", **some)),
        f"{options.scheme}, secure sum": (tiers, PrivacyPlan.named("secure-sum", clip_norm=10.0, **some)),
        f"{options.scheme}, secure sum tier by tier": (in_tiers, held),
    }
    users = interactions.n_users
    plan = PrivacyPlan.named("central-gaussian", clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=users**-1.1)
    for epsilon in options.epsilons:
        variants[f"{options.scheme}, central Gaussian {epsilon:g}"] = (
            tiers,
            plan_for_target(plan, epsilon, options.rounds, users),
        )
    return variants


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
        if row.tap in ("wire", "sum") and row.game == "trained vs never seen" and row.scope.startswith("all items")
    ]
    if not rows:
        return "-"
    best = max(rows, key=lambda row: row.auc.value)
    return f"{best.auc.value:.2f} {best.attack} ({best.tap})"


if __name__ == "__main__":
    main()
