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
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import privfed
from privfed.evaluation import UNCOUNTED, Protocol
from privfed.experiment import Experiment

K = 20
Setting = tuple[str, dict[str, Any]]


def main() -> None:
    """Run every setting once and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 8], help="privacy budgets of a whole user")
    parser.add_argument("--honest", type=float, default=0.9, help="share of users whose own noise counts, last rows")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    data, console = privfed.load(options.data), Console()
    columns = ("epsilon", "NDCG", "recall", "kB up", "head", "tested on it", "users off it")
    table = Table(title=f"private recommendations on {options.data}, {data.n_users:,} users, lists of {K}")
    table.add_column("recommender", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    decided: dict[str, str] = {}
    with Progress(console=console, transient=True) as bar:
        variants = settings(options, data.n_users)
        for label, (method, how) in bar.track(variants.items()):
            fidelity = how.pop("fidelity", "analytic")
            run = privfed.run(
                method,
                data,
                split={"kind": "leave_one_out" if data.split is None else "published"},
                protocol=Protocol(k=(K,), state="received"),
                rounds=1,
                seed=options.seed,
                options={"fidelity": fidelity, "taps": {"places": ()}},
                **how,
            )
            values = run.metrics.set_index("metric")["value"]
            table.add_row(
                label,
                f"{run.guarantee.epsilon:.2f}",
                *(f"{values[name]:.3f}" for name in ("NDCG", "Recall")),
                f"{run.costs.up_bytes / data.n_users / 1e3:,.0f}",
                *reach(run.experiment),
            )
            if "recipes compared" in run.decisions:
                decided[label] = ", ".join(f"{name} {value:.3g}" for name, value in run.decisions.items())
    console.print(table)
    for label, decisions in decided.items():
        console.print(f"[dim]{label}: {decisions}")
    kind = "synthetic data" if data.card.synthetic else data.name
    console.print(f"[dim]{kind}; seed {options.seed}; {run.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print(
        "[dim]Epsilon is for a whole user, add or remove, joint: it bounds what everybody but the user learns."
    )


def settings(options: argparse.Namespace, users: int) -> dict[str, Setting]:
    """Label -> method and how it is run."""
    shares = f"distributed-gaussian:clip_norm=1,n_min_honest={int(options.honest * users)}"
    variants: dict[str, Setting] = {"popularity, no privacy": ("popularity", {}), "EASE, no privacy": ("ease", {})}
    for epsilon in options.epsilons:
        variants |= {
            f"popularity, epsilon {epsilon:g}": ("private-gram", {"epsilon": epsilon, "popularity_share": 1.0}),
            f"metadata only, epsilon {epsilon:g}": ("private-gram", {"epsilon": epsilon, "rank": 0, "select": False}),
            f"private Gram, epsilon {epsilon:g}": ("private-gram", {"epsilon": epsilon}),
        }
    for epsilon in options.epsilons:
        how = {"epsilon": epsilon, "privacy": shares, "fidelity": "exact"}
        variants[f"noise in shares, epsilon {epsilon:g}"] = "private-gram", how
    return variants


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
