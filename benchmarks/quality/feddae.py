"""FedVAE and FedDAE on real data: does personalisation help, why do the paper's widths stall, what does privacy cost.

    python -m benchmarks.quality.feddae personalisation --data ml-100k
    python -m benchmarks.quality.feddae depth --data ml-100k
    python -m benchmarks.quality.feddae privacy --data ml-100k --seeds 3
    python -m benchmarks.quality.feddae gate --data ml-100k --seeds 3

Every part is a fixed list of runs under one protocol: leave-one-out, full ranking, what the user has after receiving
the round's answer, last round (no choice of rounds on any held-out part). Hyper-parameters stand in this file; those
of the private runs were chosen by the validation part of ML-100K under seed 99 (docs/results/papers/feddae.md), and
serve every data set, epsilon and trust model alike. One process, one thread; results go to
`benchmarks/results/feddae_<part>_<data>.json` after every run, and runs found there are not repeated.
"""

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import harness
from privfed.audit.attack_runs.attack_run import attack
from privfed.data import Interactions, load
from privfed.engines.transcript import Observation
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

PROTOCOL = Protocol(state="received")
IN_THE_OPEN = PrivacyPlan.named("none", release="total")

PAPER = {"hidden": [768, 512], "latent": 256, "server_lr": 1e-3}
ONE_LAYER = {"hidden": [], "latent": 64, "server_lr": 1e-2}

PERSONAL = {"name": "feddae", **ONE_LAYER, "personal_lr": 1e-2}
PERSONALISATION = {
    "FedVAE": {"name": "fedvae", **ONE_LAYER},
    "FedDAE, embedding": PERSONAL,
    "FedDAE, own first layer": {**PERSONAL, "local_encoder": "sparse_first_layer"},
    "FedDAE, embedding, forgotten every round": {**PERSONAL, "forget_personal_state": True},
}
LOCAL_STEPS = (1, 5)

DEPTH = {
    "one layer": {"name": "fedvae", **ONE_LAYER},
    "paper's widths": {"name": "fedvae", **PAPER},
    "paper's widths, no KL": {"name": "fedvae", **PAPER, "beta_cap": 0.0},
    "paper's widths, 10 local steps": {"name": "fedvae", **PAPER, "local_steps": 10},
    "paper's widths, server lr 1e-2": {"name": "fedvae", **PAPER, "server_lr": 1e-2},
    "paper's widths, Glorot start": {"name": "fedvae", **PAPER, "initialisation": "xavier"},
    "paper's widths, Glorot start, server lr 3e-3": {
        "name": "fedvae",
        **PAPER,
        "initialisation": "xavier",
        "server_lr": 3e-3,
    },
}
LONG = 100
SHORT = {"paper's widths, 10 local steps": 40}
"""Ten local steps cost ten times as much a round, and what matters shows early."""

GATES = {"the gate": None, "fixed weight .25": 0.25, "fixed weight .5": 0.5, "fixed weight .75": 0.75}
VARIANCES = (0.0, 0.2, 0.5, 0.8, 1.0)
EPSILONS = (1, 2, 4, 8, 16)
PRIVATE_ROUNDS, CLIP_NORM, HONEST_SHARE = 30, 0.01, 0.5
STEP_NOISE, LARGEST_LR = 0.027, 1000.0
"""Noise that one server step may put on a parameter, and the learning rate where noise asks for no smaller one."""
PRIVATE: dict[str, Any] = {
    "latent": 16,
    "popularity_prior": True,
    "anneal_rounds": PRIVATE_ROUNDS,
    "server_optimiser": "sgd",
}
OPEN = {**ONE_LAYER, "latent": 16}
METHODS = ("fedvae", "feddae")


def personalisation(seeds: int) -> Iterator[dict[str, Any]]:
    """Methods at equal compute: the same rounds, and the same local steps per round."""
    for seed, steps, (name, method) in itertools.product(range(seeds), LOCAL_STEPS, PERSONALISATION.items()):
        label = f"{name}, E = {steps}"
        yield {"label": label, "method": {**method, "local_steps": steps}, "rounds": LONG, "seed": seed}


def depth(seeds: int) -> Iterator[dict[str, Any]]:
    """One cause at a time, with a look at the way: depth alone, start, KL, local steps, server learning rate."""
    for seed, (name, method) in itertools.product(range(seeds), DEPTH.items()):
        yield {"label": name, "method": method, "rounds": SHORT.get(name, LONG), "seed": seed, "evaluate_every": 20}


def gate(seeds: int) -> Iterator[dict[str, Any]]:
    """The learned gate and fixed weights, without noise (table 3) and under the published one (table 4)."""
    method = {**PERSONAL, "local_encoder": "sparse_first_layer"}
    for variance, seed, (name, weight) in itertools.product(VARIANCES, range(seeds), GATES.items()):
        yield {
            "label": f"{name}, variance {variance:g}",
            "method": {**method, "fixed_gate": weight},
            "rounds": LONG,
            "seed": seed,
        } | ({"privacy": published(variance)} if variance else {})


def privacy(seeds: int, users: int, items: int) -> Iterator[dict[str, Any]]:
    """Every trust model at every epsilon, and the variants without a guarantee next to them."""
    delta, latent = users**-1.1, PRIVATE["latent"]
    coordinates = (3 * latent + 1) * items + 2 * latent
    fields = {"clip_norm": CLIP_NORM, "noise_multiplier": 1.0, "delta": delta}
    honest = int(HONEST_SHARE * users)
    trusts = {
        "central": (PrivacyPlan.named("central-gaussian", **fields), 1.0),
        "distributed": (
            PrivacyPlan.named("distributed-gaussian", **fields, n_min_honest=honest),
            (users / honest) ** 0.5,
        ),
        "local": (PrivacyPlan.named("local-gaussian", **fields), users**0.5),
    }
    variants = {
        "unprotected": (PrivacyPlan.named("none"), OPEN),
        "clip only": (PrivacyPlan.named("clip", clip_norm=CLIP_NORM, order=2), {**PRIVATE, "server_lr": LARGEST_LR}),
        "published noise, variance 0.2": (published(0.2), {**OPEN, "local_steps": 10}),
        "published noise, variance 1": (published(1.0), {**OPEN, "local_steps": 10}),
    }
    for (trust, (plan, on_sum)), epsilon in itertools.product(trusts.items(), EPSILONS):
        sized = plan_for_target(plan, epsilon, PRIVATE_ROUNDS, users, extra_queries=1, coordinates=coordinates)
        noise = sized.to_dict()["mechanism"]["noise_multiplier"] * CLIP_NORM * on_sum / users
        variants[f"{trust}, epsilon {epsilon}"] = sized, {**PRIVATE, "server_lr": min(LARGEST_LR, STEP_NOISE / noise)}
    for seed, name, (label, (plan, settings)) in itertools.product(range(seeds), METHODS, variants.items()):
        yield {
            "label": f"{name}, {label}",
            "method": {"name": name, **settings} | ({"personal_lr": 1e-2} if name == "feddae" else {}),
            "rounds": PRIVATE_ROUNDS,
            "seed": seed,
            "privacy": plan,
            "taps": TapConfig(users=100, rounds=(9, 19, 29)),
        }


def published(variance: float) -> PrivacyPlan:
    """The paper's noise on the sum of local gradients, which an upload is `local_lr` times."""
    return PrivacyPlan.named("published-noise", law="gaussian", scale=variance**0.5 * 1e-3)


def measure(run: dict[str, Any], data: str, interactions: Interactions) -> dict[str, Any]:
    """Train one run, attack its uploads where single ones were seen, and keep what a table needs."""
    label, rounds = run["label"], run["rounds"]
    settings = {"privacy": IN_THE_OPEN, "taps": TapConfig(places=()), "evaluate_every": rounds} | run
    del settings["label"]
    config = ExperimentConfig(data=data, protocol=PROTOCOL, fidelity="analytic", **settings)
    started = time.process_time()
    experiment = Experiment.on(config, interactions)
    result = experiment.run()
    cpu = time.process_time() - started
    guarantee = result.guarantee.model_dump(mode="json")
    return {
        "label": label,
        "seed": config.seed,
        "rounds": rounds,
        "method": config.method,
        "plan": config.privacy.name,
        "guarantee": {key: guarantee[key] for key in ("epsilon", "delta", "trust", "neighbours", "accountant")},
        "clipped_fraction": result.clipped_fraction,
        "attacks": attacked(experiment, result.transcript.joined("wire")),
        "curve": {
            e.round + 1: {p: {m: r.metric(m, 20).value for m in ("hr", "ndcg")} for p, r in e.results.items()}
            for e in result.history
        },
        "cpu_s": round(cpu, 2),
    }


def attacked(experiment: Experiment, uploads: list[Observation]) -> dict[str, float]:
    """AUC of every attack on what single clients sent: training items against items never seen."""
    blocks = experiment.item_blocks
    if not uploads or blocks is None:
        return {}
    rows = attack(uploads, "wire", experiment.parts, experiment.audited().numpy(), blocks)
    found: dict[str, float] = {}
    for row in rows:
        if row.game == "trained vs never seen" and row.scope == "all items":
            found[row.attack] = max(round(row.auc.value, 4), found.get(row.attack, 0.0))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part, or what is missing of it, and print its table."""
    parts = ("personalisation", "depth", "gate", "privacy")
    parser = harness.parser(__file__, __doc__, parts=parts, data="ml-100k", seeds=1, only=[])
    options = harness.parse(parser, arguments)

    interactions = load(options.data)
    users, items = interactions.n_users, interactions.n_items
    runs = {
        "personalisation": lambda: personalisation(options.seeds),
        "depth": lambda: depth(options.seeds),
        "gate": lambda: gate(options.seeds),
        "privacy": lambda: privacy(options.seeds, users, items),
    }[options.part]()
    record = harness.Record(f"feddae_{options.part}_{options.data}", options, [])
    popularity = {"label": "popularity", "method": {"name": "popularity"}, "rounds": 1, "seed": 0}
    for run in (popularity, *runs):
        wanted = run is popularity or harness.chosen(run["label"], options.only)
        if wanted and not record.has(label=run["label"], seed=run["seed"]):
            record.add(measure(dict(run), options.data, interactions))
    show(record.results)


def show(done: list[dict[str, Any]]) -> None:
    """Print a mean over seeds per label."""
    for label in dict.fromkeys(d["label"] for d in done):
        mine = [d for d in done if d["label"] == label]
        last = [list(d["curve"].values())[-1]["test"] for d in mine]
        hr, ndcg = (statistics.fmean(v[m] for v in last) for m in ("hr", "ndcg"))
        spread = statistics.stdev(v["hr"] for v in last) if len(last) > 1 else float("nan")
        epsilon = mine[0]["guarantee"]["epsilon"]
        seen = max(((auc, name) for d in mine for name, auc in d.get("attacks", {}).items()), default=("", ""))
        print(
            f"{label:42} n={len(mine)} HR@20 {hr:.4f} (sd {spread:.4f}) NDCG@20 {ndcg:.4f} epsilon {epsilon} "
            f"{seen[1]} {seen[0]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
