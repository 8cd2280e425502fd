"""Five published recommenders under attack: as they are, as their papers protect them, and behind sound budgets.

    python examples/attack_evaluation.py                                       # generated data, some minutes
    python examples/attack_evaluation.py --data ml-100k --rounds 40 --seeds 3 --out audits/five

Every method runs four times per seed: at its published settings, unprotected and with what its paper (or, where the
paper has nothing, the paper that attacks it) puts on; and at settings that suit noise, with that of its best sound
mechanism sized for a total epsilon of 8 and of 1. The local encoders of FedDAE share their deeper layers here, as whole
ones take 7 GiB.
Sums are noised by the clients inside a secure sum wherever the method needs no more than sums. GPFedRec needs single
uploads, so each client adds all of the noise. DFMR uploads whole numbers that no noise covers: randomised response
bounds what its rows say, and the epsilon of the run stays infinite.

Of ratings, those of 4 and 5 are what is recommended and attacked, and lower ones are views, which only DFMR uses. A
killed audit goes on where it stopped when the same command is given again. The page is OUT/index.html.
"""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from privfed.audit.config import AuditConfig, Variant
from privfed.audit.grid import audit_steps, run_audit
from privfed.cli.show_audit import audit_table, statement_lines
from privfed.data import Interactions, SplitSpec, behaviours_from_ratings, load
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup import method_settings
from privfed.setup.config import AuditTapConfig, ExperimentConfig

TARGET = SplitSpec(target="buy")
BUDGETS = (8.0, 1.0)
PRIVATE: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "hetefedrec": ({"server_optimiser": "sgd"}, {"clip": 0.1, "step_noise": 0.0047, "largest_lr": 20.0}),
    "feddae": (
        {"latent": 16, "local_lr": 1e-3, "popularity_prior": True, "anneal_rounds": 30, "server_optimiser": "sgd"},
        {"clip": 0.01, "step_noise": 0.027, "largest_lr": 1000.0},
    ),
}
"""Settings under a budget, as in the example of the method: the server's rate follows the noise."""


def main() -> None:
    """Run the grid and print its findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic-funnel", help="a data set with ratings, or with views and buys")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--users", type=int, default=100, help="audited users")
    parser.add_argument(
        "--workers", type=int, help="processes; FedDAE as published takes 14 GiB in each (default: cores)"
    )
    parser.add_argument("--out", type=Path, default=Path("audits/five"))
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    if interactions.behaviour is None:
        interactions = behaviours_from_ratings(interactions, min_per_item=1)
    config = AuditConfig(
        data=options.data,
        split=TARGET,
        variants=variants(interactions, options.rounds),
        rounds=options.rounds,
        seeds=tuple(range(options.seeds)),
        protocol=Protocol(state="received"),
        evaluate_every=options.rounds,
        taps=AuditTapConfig(users=options.users),
        attributes=interactions.attributes is not None,
        fidelity="analytic",
    )
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=audit_steps(config.cells()))
        report = run_audit(
            config,
            interactions,
            options.out,
            workers=options.workers,
            progress=lambda sign: bar.update(task, completed=sign.done_steps, description=sign.cell),
        )
    for line in statement_lines(report, synthetic=interactions.card.synthetic):
        console.print(line)
    console.print(audit_table(report, synthetic=interactions.card.synthetic))
    console.print(f"The page: {options.out / 'index.html'}")


def variants(interactions: Interactions, rounds: int) -> tuple[Variant, ...]:
    """Every method unprotected, as published, and behind sound budgets."""
    users = interactions.n_users
    lasting: dict[str, Any] = {"delta": users**-1.1}
    distributed = {**lasting, "noise_multiplier": 1.0, "n_min_honest": users // 2}
    none, sums = PrivacyPlan.named("none"), PrivacyPlan.named("secure-sum", clip_norm=10.0)
    published = {name: method_settings(f"{name}:published") for name in ("hetefedrec", "fair", "gpfedrec", "dfmr")}
    feddae = method_settings("feddae:published", local_encoder="sparse_first_layer")
    tiers: dict[str, Any] = {"name": "fair", "scheme": "1x-4x"}
    grid: list[tuple[dict[str, Any], PrivacyPlan]] = [
        (published["hetefedrec"], none),
        (
            published["hetefedrec"],
            PrivacyPlan.named("published-noise", law="gaussian", scale=1e-3**0.5),
        ),
        (published["fair"], none),
        (published["fair"], sums),
        (published["gpfedrec"], none),
        (published["gpfedrec"], PrivacyPlan.named("published-noise", scale=0.3)),
        (feddae, none),
        (feddae, PrivacyPlan.named("published-noise", law="gaussian", scale=1e-3)),
        (published["dfmr"], none),
        (published["dfmr"], PrivacyPlan.parse("shared-sum:padding.kind=fake_items,padding.rho=1")),
    ]
    for epsilon in BUDGETS:
        for name, (settings, rule) in PRIVATE.items():
            plan = PrivacyPlan.named("distributed-gaussian", clip_norm=rule["clip"], **distributed)
            sized = for_budget({"name": name, **settings}, plan, epsilon, interactions, rounds)
            noise = sized.mechanism.sum_deviation(users) / users
            rate = min(rule["largest_lr"], rule["step_noise"] / noise)
            grid.append(({"name": name, **settings, "server_lr": rate}, sized))
        plan = PrivacyPlan.named("distributed-gaussian", clip_norm=0.1, **distributed)
        grid.append((tiers, for_budget(tiers, plan, epsilon, interactions, rounds)))
        plan = PrivacyPlan.named("local-gaussian", clip_norm=0.1, noise_multiplier=1.0, **lasting)
        grid.append(({"name": "gpfedrec"}, for_budget({"name": "gpfedrec"}, plan, epsilon, interactions, rounds)))
        words = f"shared-sum:padding.kind=randomised_response,padding.epsilon={epsilon:g}"
        grid.append(({"name": "dfmr"}, PrivacyPlan.parse(words)))
    return tuple(Variant(method=method, privacy=plan) for method, plan in grid)


def for_budget(
    method: dict[str, Any], plan: PrivacyPlan, epsilon: float, interactions: Interactions, rounds: int
) -> PrivacyPlan:
    """The plan with noise for `epsilon` over the whole run, in an upload of the method's size."""
    config = ExperimentConfig(method=method, split=TARGET, rounds=rounds)
    experiment = Experiment.on(config, interactions)
    return plan_for_target(
        plan,
        epsilon,
        rounds,
        interactions.n_users,
        extra_queries=experiment.registered.training.extra_queries(config.settings()),
        coordinates=sum(block.size for block in experiment.server.schema.values()),
    )


if __name__ == "__main__":
    main()
