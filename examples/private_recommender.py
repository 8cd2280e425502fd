"""A recommender that is private by construction and still worth having: what each epsilon buys.

    python examples/private_recommender.py                                   # synthetic data, some seconds
    python examples/private_recommender.py --data ml-100k
    python examples/private_recommender.py --data ml-1m --epsilons 1 2 4 8   # published split if data have one

Every user answers two queries and trains nothing: how popular items are, and which of the popular ones go together
beyond that. Both sums carry Gaussian noise, sized from the budget for a whole user; everything else is computed from
them (`private-gram`). Recommendations are made on the device, from its own whole history, which never leaves it.

Each budget is compared with popularity under the same budget, public metadata scaled by a few private numbers, and what
the lists would be worth to a server that simply had them all (EASE). Read the columns on the right before believing the
ones in the middle: items outside the head are hardly ever recommended ("tested on it": how many tested items are on the
head), and a device with fewer than two items there ("users off it") gets little but popularity. The choices that the
method made by what had been released to it are printed below; they cost nothing more.

The last rows send the same sums through integer noise in shares, as a deployment without a trusted server would.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from privfed.contracts import Fidelity, Schema
from privfed.data import Interactions, SplitSpec, load
from privfed.evaluation import UNCOUNTED, Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

K = 20
Method = Mapping[str, Any]
Setting = tuple[Method, PrivacyPlan, Fidelity]
GRAM: Method = {"name": "private-gram"}


def main() -> None:
    """Run every setting once and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 8], help="privacy budgets of a whole user")
    parser.add_argument("--honest", type=float, default=0.9, help="share of users whose own noise counts, last rows")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    columns = ("epsilon", "NDCG", "recall", "kB up", "head", "tested on it", "users off it")
    table = Table(title=f"private recommendations on {options.data}, {interactions.n_users:,} users, lists of {K}")
    table.add_column("recommender", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    decided: dict[str, str] = {}
    variants = settings(options, interactions)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=len(variants))
        for label, (method, plan, fidelity) in variants.items():
            bar.update(task, description=label)
            experiment = Experiment.on(configured(options, interactions, method, plan, fidelity), interactions)
            result = experiment.run(parts=("test",))
            found = {name: result.test.metric(name, K).value for name in ("ndcg", "recall")}
            table.add_row(
                label,
                f"{result.guarantee.epsilon:.2f}",
                *(f"{value:.3f}" for value in found.values()),
                f"{result.costs.up_bytes / interactions.n_users / 1e3:,.0f}",
                *reach(experiment),
            )
            if "recipes compared" in result.decisions:
                decided[label] = ", ".join(f"{name} {value:.3g}" for name, value in result.decisions.items())
            bar.advance(task)
    console.print(table)
    for label, decisions in decided.items():
        console.print(f"[dim]{label}: {decisions}")
    kind = "synthetic data" if interactions.card.synthetic else interactions.card.name
    console.print(f"[dim]{kind}; seed {options.seed}; {result.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print(
        "[dim]Epsilon is for a whole user, add or remove, joint: it bounds what everybody but the user learns."
    )


def settings(options: argparse.Namespace, interactions: Interactions) -> dict[str, Setting]:
    """Label -> method, plan and fidelity."""
    users = interactions.n_users
    delta = users**-1.1
    central = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=delta)
    shares = PrivacyPlan.named(
        "distributed-gaussian",
        clip_norm=1.0,
        noise_multiplier=1.0,
        delta=delta,
        n_min_honest=int(options.honest * users),
    )
    in_the_open = PrivacyPlan.named("none")
    variants: dict[str, Setting] = {
        "popularity, no privacy": ({"name": "popularity"}, in_the_open, "analytic"),
        "EASE, no privacy": ({"name": "ease"}, in_the_open, "analytic"),
    }
    for epsilon in options.epsilons:
        plan = plan_for_target(central, epsilon, 1, users)
        variants |= {
            f"popularity, epsilon {epsilon:g}": ({**GRAM, "popularity_share": 1.0}, plan, "analytic"),
            f"metadata only, epsilon {epsilon:g}": ({**GRAM, "rank": 0, "select": False}, plan, "analytic"),
            f"private Gram, epsilon {epsilon:g}": (GRAM, plan, "analytic"),
        }
    for epsilon in options.epsilons:
        program = queries(options, interactions, plan_for_target(central, epsilon, 1, users))
        plan = plan_for_target(shares, epsilon, 1, users, program=program)
        variants[f"noise in shares, epsilon {epsilon:g}"] = (GRAM, plan, "exact")
    return variants


def queries(options: argparse.Namespace, interactions: Interactions, plan: PrivacyPlan) -> list[Schema]:
    """The queries of a run under `plan`; noise in shares is sized for them, as rounding depends on their size."""
    experiment = Experiment.on(configured(options, interactions, GRAM, plan, "analytic"), interactions)
    return [query.schema for query in experiment.registered.training.program(experiment.server)]


def configured(
    options: argparse.Namespace, interactions: Interactions, method: Method, plan: PrivacyPlan, fidelity: Fidelity
) -> ExperimentConfig:
    """One run of one round."""
    published = interactions.split is not None
    return ExperimentConfig(
        data=options.data,
        split=SplitSpec(kind="published" if published else "leave_one_out"),
        method=dict(method),
        privacy=plan,
        protocol=Protocol(k=(K,), state="received"),
        rounds=1,
        seed=options.seed,
        fidelity=fidelity,
        taps=TapConfig(places=()),
    )


def reach(experiment: Experiment) -> tuple[str, str, str]:
    """Size of the head, tested items that are on it, and users with fewer than two training items on it."""
    head = experiment.server.state().get("head")
    if head is None or not len(head):
        return "-", "-", "-"
    parts = experiment.parts
    on_head = np.zeros(parts.train.n_items, dtype=bool)
    on_head[head.numpy()] = True
    own = np.bincount(parts.train.owners[on_head[parts.train.items]], minlength=parts.train.n_users)
    return f"{len(head)}", f"{on_head[parts.test.items].mean():.0%}", f"{(own < 2).mean():.0%}"


if __name__ == "__main__":
    main()
