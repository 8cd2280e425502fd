"""GPFedRec behind local Laplace noise: what each privacy budget costs, and what an attack still finds.

    python examples/gpfedrec_laplace.py                       # synthetic data, a minute
    python examples/gpfedrec_laplace.py --data ml-100k --rounds 40

Every budget clips an upload to the same L1 norm; the noise then follows from the budget. The table shows total epsilon
over the run for a user who takes part in every round.
"""

import argparse

from rich.console import Console
from rich.table import Table

import privfed
from privfed.evaluation import UNCOUNTED

BUDGETS = {
    "unprotected": "none",
    "published noise (0.3, unclipped)": "published-noise:scale=0.3",
    "epsilon 8 per upload": "local-laplace:epsilon0=8,clip_norm=1",
    "epsilon 1 per upload": "local-laplace:epsilon0=1,clip_norm=1",
}


def main() -> None:
    """Train once per budget and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    data, console = privfed.load(options.data), Console()
    table = Table("mechanism", "epsilon (run)", "HR@10", "NDCG@10", "sign attack AUC", title=options.data)
    table.add_row("popularity, no training", "inf", *quality(privfed.run("popularity", data, seed=options.seed)), "")
    for name, plan in BUDGETS.items():
        with console.status(f"{name}: {options.rounds} rounds"):
            run = privfed.run("gpfedrec", data, privacy=plan, rounds=options.rounds, seed=options.seed)
            table.add_row(name, f"{run.guarantee.epsilon:.1f}", *quality(run), f"{sign_attack(run):.2f}")
    console.print(table)
    console.print(f"[dim]{data.name}{' (synthetic)' if data.card.synthetic else ''}; seed {options.seed}")
    console.print(f"[dim]{run.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")


def quality(run: privfed.Run) -> list[str]:
    """HR and NDCG at 10, as text."""
    values = run.metrics.set_index(["metric", "k"])["value"]
    return [f"{values.loc[(name, 10)]:.3f}" for name in ("HR", "NDCG")]


def sign_attack(run: privfed.Run) -> float:
    """AUC of the strongest sign attack on what one client sends, over all items."""
    rows = run.attack()
    seen = (rows["seen_by"] == "what one client sends") & (rows["items"] == "all items")
    return float(rows[seen & rows["attack"].str.contains("rank-1 sign")]["auc"].max())


if __name__ == "__main__":
    main()
