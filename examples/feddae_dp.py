"""FedDAE with clipped, noised updates: what each privacy budget costs under each trust model, and what is still seen.

    python examples/feddae_dp.py                                  # synthetic data, about a minute
    python examples/feddae_dp.py --data ml-100k --rounds 30
    python examples/feddae_dp.py --data ml-1m --method fedvae --epsilons 1 8

Noise is sized backwards from the budget: epsilon is the total over the whole run for any one user. Under central trust
the server adds it, under distributed trust every client adds a share inside a secure sum, under local trust every
client adds all of it. The published noise is shown next to them: without a clip it guarantees nothing, and one upload
shows it.

Settings are fixed beforehand and the same for every budget. Only the server's learning rate follows the noise, so that
one step puts the same noise on a parameter whatever the budget.
"""

import argparse
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from privfed.audit.attack_runs.attack_run import attack
from privfed.data import Interactions, load
from privfed.engines.transcript import Observation
from privfed.evaluation import UNCOUNTED, Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

CLIP_NORM, STEP_NOISE, LARGEST_LR, LOCAL_LR = 0.01, 0.027, 1000.0, 1e-3
Variant = tuple[str, PrivacyPlan, dict[str, Any]]
OPEN: dict[str, Any] = {"latent": 16, "local_lr": LOCAL_LR}
PRIVATE = OPEN | {"popularity_prior": True, "anneal_rounds": 30, "server_optimiser": "sgd"}


def main() -> None:
    """Train once per budget and trust model, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--method", default="feddae", choices=("feddae", "fedvae"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 2, 4, 8, 16], help="budgets besides infinity")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    title = f"{options.method} on {options.data}, {options.rounds} rounds"
    table = Table("mechanism", "trust", "epsilon", "HR@20", "NDCG@20", "best attack on one upload", title=title)
    variants: dict[str, Variant] = {"popularity, no training": ("popularity", PrivacyPlan.named("none"), {})}
    for label, (plan, settings) in mechanisms(options, interactions).items():
        variants[label] = options.method, plan, settings
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=sum(rounds(options, name) for name, _, _ in variants.values()))
        for label, (name, plan, settings) in variants.items():
            bar.update(task, description=label)
            config = ExperimentConfig(
                data=options.data,
                method={"name": name, **settings},
                privacy=plan,
                protocol=Protocol(state="received"),
                rounds=rounds(options, name),
                seed=options.seed,
                evaluate_every=rounds(options, name),
                fidelity="analytic",
                taps=TapConfig(rounds=(rounds(options, name) - 1,)),
            )
            experiment = Experiment.on(config, interactions)
            result = experiment.run(progress=lambda *_: bar.advance(task))
            hr, ndcg = (f"{result.test.metric(metric, 20).value:.3f}" for metric in ("hr", "ndcg"))
            epsilon, trust = f"{result.guarantee.epsilon:.2f}", result.guarantee.trust
            table.add_row(label, trust, epsilon, hr, ndcg, strongest(experiment, result.transcript.joined("wire")))
    console.print(table)
    kind = "synthetic data" if interactions.card.synthetic else interactions.card.name
    console.print(f"[dim]{kind}; seed {options.seed}; {result.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print(
        "[dim]Attacks: AUC of training items against items never seen; 'popularity' guesses without looking. "
        "'-': no single upload is seen, or by a trusted server only."
    )
    console.print(
        "[dim]Clipped variants start from a popularity count and average with SGD; the others do not. Compare them "
        "with 'clip, no noise' and with popularity."
    )


def mechanisms(
    options: argparse.Namespace, interactions: Interactions
) -> dict[str, tuple[PrivacyPlan, dict[str, Any]]]:
    """Label -> plan and settings of the method."""
    users, delta = interactions.n_users, interactions.n_users**-1.1
    fields = {"clip_norm": CLIP_NORM, "noise_multiplier": 1.0, "delta": delta}
    trusts = {
        "central": PrivacyPlan.named("central-gaussian", **fields),
        "distributed": PrivacyPlan.named("distributed-gaussian", **fields, n_min_honest=users // 2),
        "local": PrivacyPlan.named("local-gaussian", **fields),
    }
    variants = {
        "unprotected": (PrivacyPlan.named("none"), OPEN),
        "clip, no noise": (PrivacyPlan.named("secure-sum", clip_norm=CLIP_NORM), {**PRIVATE, "server_lr": LARGEST_LR}),
        "published noise (variance 1), no clip": (
            PrivacyPlan.named("published-noise", law="gaussian", scale=LOCAL_LR),
            {**OPEN, "local_steps": 10},
        ),
    }
    for trust, plan in trusts.items():
        for epsilon in options.epsilons:
            sized = plan_for_target(
                plan, epsilon, options.rounds, users, extra_queries=1, coordinates=upload_size(interactions.n_items)
            )
            noise = sized.mechanism.sum_deviation(users) / users
            settings = {**PRIVATE, "server_lr": min(LARGEST_LR, STEP_NOISE / noise)}
            variants[f"{trust} Gaussian, epsilon {epsilon:g}"] = sized, settings
    return variants


def upload_size(items: int) -> int:
    """Numbers in one upload of the one-layer autoencoder: two weights and their biases."""
    latent = PRIVATE["latent"]
    return int(items * 2 * latent + 2 * latent + latent * items + items)


def rounds(options: argparse.Namespace, name: str) -> int:
    """Popularity counts once; the prior of private runs is one query more, for which their noise is sized."""
    return 1 if name == "popularity" else options.rounds


def strongest(experiment: Experiment, wire: list[Observation]) -> str:
    """The strongest attack on what one client sent in the last round."""
    blocks = experiment.item_blocks
    if not wire or blocks is None:
        return "-"
    rows = attack(wire, "wire", experiment.parts, experiment.audited().numpy(), blocks)
    best = max((row for row in rows if row.game == "trained vs never seen"), key=lambda row: row.auc.value)
    return f"{best.auc.value:.2f} {best.attack}"


if __name__ == "__main__":
    main()
