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
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import privfed
from privfed.api.data import Data
from privfed.evaluation import UNCOUNTED, Protocol

Setting = dict[str, Any]
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

    data, console = privfed.load(options.data), Console()
    columns = ("devices and mechanism", "epsilon", "NDCG@20", "kB up", "kB down", "best attack")
    table = Table(*columns, title=f"fair on {options.data}, {options.rounds} rounds")
    with Progress(console=console, transient=True) as bar:
        for label, setting in bar.track({"popularity, no training": {}, **settings(options, data)}.items()):
            run = trained(options, data, setting)
            traffic = max(run.costs.client_rounds, 1) * 1e3
            table.add_row(
                label,
                f"{run.guarantee.epsilon:.2f}",
                f"{run.test.metric('ndcg', 20).value:.3f}",
                f"{run.costs.up_bytes / traffic:,.0f}",
                f"{run.costs.down_bytes / traffic:,.0f}",
                strongest(run),
            )
    console.print(table)
    kind = "synthetic data" if data.card.synthetic else data.name
    console.print(f"[dim]{kind}; seed {options.seed}; {run.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print("[dim]Epsilon is infinite where exact sums are opened: a sum without noise bounds nothing.")


def settings(options: argparse.Namespace, data: Data) -> dict[str, Setting]:
    """Label -> how fair is run."""
    cohort = f"sampling.kind=fixed,sampling.size={min(options.cohort, data.n_users)}"
    tiers = {"scheme": options.scheme}
    in_tiers = {**tiers, "placement": "tier"}
    by_budget = {"budgets": options.budgets, "interactions": data.n_items // 2}
    unprotected, summed = f"none:{cohort}", f"secure-sum:clip_norm=10,{cohort}"
    variants: dict[str, Setting] = {
        "everybody 1x": {"variant": "fedavg", "privacy": unprotected},
        options.scheme: {**tiers, "privacy": unprotected},
        f"{options.scheme}, tier by tier": {**in_tiers, "privacy": unprotected},
        "budgets of memory": {**by_budget, "privacy": unprotected},
        f"{options.scheme}, secure sum": {**tiers, "privacy": summed},
        f"{options.scheme}, secure sum tier by tier": {**in_tiers, "privacy": f"{summed},blocks=held"},
    }
    noised = f"central-gaussian:clip_norm={CLIP_NORM}"
    for epsilon in options.epsilons:
        label = f"{options.scheme}, central Gaussian {epsilon:g}"
        variants[label] = {**tiers, "privacy": noised, "epsilon": epsilon}
    return variants


def trained(options: argparse.Namespace, data: Data, setting: Setting) -> privfed.Run:
    """One run, tapped in its last round where uploads or sums are seen; nothing set is popularity."""
    rounds = options.rounds if setting else 1
    return privfed.run(
        "fair" if setting else "popularity",
        data,
        rounds=rounds,
        seed=options.seed,
        protocol=Protocol(state="received"),
        options={"evaluate_every": rounds, "fidelity": "analytic", "taps": {"rounds": [rounds - 1]}},
        **setting,
    )


def strongest(run: privfed.Run) -> str:
    """The best attack on what was seen of uploads or sums."""
    rows = run.attack()
    seen = rows["seen_by"].isin(["what one client sends", "the sum over clients"])
    rows = rows[seen & (rows["game"] == "trained vs never seen") & rows["items"].str.startswith("all items")]
    if rows.empty:
        return "-"
    best = rows.iloc[0]
    return f"{best['auc']:.2f} {best['attack']} ({best['seen_by']})"


if __name__ == "__main__":
    main()
