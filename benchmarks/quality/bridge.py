"""The private Gram matrix as the start of other systems, under one budget: which of them gain?

    python -m benchmarks.quality.bridge choose
    python -m benchmarks.quality.bridge table --data ml-100k --seeds 3

A run of `private-gram` and one of another system share a budget, mu^2 = mu_gram^2 + mu_system^2. What the first
publishes starts the second (`privfed.methods.shared.warm_start`), whose rounds put noise on a whole user's updates as
ever.
Variants: the system by itself at the whole budget; started with half or nine tenths of mu^2 in the Gram matrix; started
with all of it, so that the server learns nothing more and devices train what they keep for themselves; the Gram matrix
alone; popularity with and without noise; and, for nothing, a drawn start from which only devices train. Central
Gaussian noise, everybody in every round, 20 rounds, delta = users^-1.1; noise is sized so that the product's accountant
gives at most the target for both runs together, and is asked again afterwards with what both ledgers charged.

Leave-one-out, full ranking of what was not trained on, HR@20 and NDCG@20 on the received model, last round. `choose`
fits on training items and ranks validation items under a seed that `table` does not use: the noise that a step of a
started FedVAE's server may put on a parameter. That search is outside epsilon. By themselves systems keep what was
chosen for them before (`feddae.py`, `hetefedrec.py`), which was larger; FedDAE takes FedVAE's choice, HeteFedRec and
FAIR take a step that was fixed beforehand. `table` fits on training and validation items and
ranks the test items. Intervals are 95 % over users (bootstrap), seeds averaged per user first;
differences are paired by user. One process, one thread; results go to `benchmarks/results/bridge_<part>_<data>.json`.
"""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.paired_runs import PairedRuns
from benchmarks.quality.private_gram import GRAM, PROTOCOL, SPLITS, configured, parts_of, plan
from benchmarks.quality.ranking import by_user
from privfed.data import Split, load
from privfed.evaluation import Part
from privfed.experiment import Experiment
from privfed.federation import Federation, Message, Server
from privfed.methods.shared import warm_start as starting
from privfed.methods.shared.warm_start import GramFactors, Parameters
from privfed.privacy import PrivacyPlan
from privfed.privacy.accounting import account, dp_accounting
from privfed.privacy.composition import Composition
from privfed.setup.config import ExperimentConfig, TapConfig

EPSILONS = (8.0, 1.0)
CHOOSING_DATA, CHOOSING_SEED, ROUNDS, USERS_AT_ONCE = "ml-100k", 99, 20, 256
LARGEST_LR = 1000.0
GRID = (0.027, 0.009, 0.003)
ALONE, UNTOLD = "alone", "drawn start, only devices train"
TRAINED = {ALONE: 0.0, "half in the Gram": 0.5, "nine tenths in the Gram": 0.9}
"""Share of mu^2 that the Gram matrix gets."""


@dataclass(frozen=True)
class System:
    """How a system runs behind noise, and how it starts.

    Attributes:
        clip_norm: joint L2 bound of an upload, where the server has a learning rate.
        alone: settings by itself.
        started: settings where it starts from factors.
        rank: of the factors.
        start: what becomes of the server's state.
        extra_queries: queries of the first round next to training, alone.
        rate: whether the server has a learning rate that follows the noise; without one the clip norm does.
        personal: whether devices keep something that they train.
        sums: whether its server can learn from noisy sums.
        noise: standard deviation that one server step may put on a parameter, alone and started; None takes what was
            chosen for FedVAE.
    """

    clip_norm: float
    alone: dict[str, Any]
    started: dict[str, Any]
    rank: int
    start: Callable[[Mapping[str, torch.Tensor], GramFactors], Parameters]
    extra_queries: int = 0
    rate: bool = True
    personal: bool = True
    sums: bool = True
    noise: tuple[float, float] | None = None


def _targets(state: Mapping[str, torch.Tensor], factors: GramFactors) -> Parameters:
    """GPFedRec's table, for everybody the same."""
    table = starting.one_table(state["items"], factors)
    return {"items": table, "targets": table.expand(len(state["targets"]), -1, -1)}


AUTOENCODER = {"anneal_rounds": ROUNDS, "server_optimiser": "sgd"}
"""As `benchmarks.quality.feddae privacy`."""
NEGATIVES = 4

FEDVAE = System(
    clip_norm=0.01,
    alone={**AUTOENCODER, "latent": 16, "popularity_prior": True},
    started={**AUTOENCODER, "latent": 32},
    rank=32,
    start=starting.autoencoder,
    extra_queries=1,
    personal=False,
)
SYSTEMS = {
    "fedvae": FEDVAE,
    "feddae": replace(FEDVAE, personal=True),
    "hetefedrec": System(
        clip_norm=0.1,
        alone={"server_optimiser": "sgd"},
        started={"server_optimiser": "sgd"},
        rank=64,
        start=partial(starting.nested_tables, negatives=NEGATIVES),
        noise=(0.0047, 0.0012),
    ),
    "fair": System(
        clip_norm=1.0,
        alone={"lr": 1e-2, "proximal": 0.0},
        started={"lr": 1e-2, "proximal": 0.0, "dim": 16},
        rank=16,
        start=starting.neural_factorisation,
        rate=False,
        noise=(0.003, 0.0005),
    ),
    "gpfedrec": System(clip_norm=1.0, alone={}, started={}, rank=31, start=_targets, sums=False),
}


class Headed:
    """A server whose rows outside the head stay where they started: noise there is thrown away, after the release.

    Args:
        server: what it is the server of.
        head: items whose rows may move.
        items: of the catalogue.
    """

    def __init__(self, server: Server, head: torch.Tensor, items: int) -> None:
        self.server = server
        self.outside = torch.ones(items, dtype=torch.bool)
        self.outside[head] = False
        self.start = {n: v for n, v in server.state().items() if v.ndim and len(v) == items}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    def round(self, federation: Federation, t: int) -> None:
        """A round of the server, and rows outside the head back to where they were."""
        self.server.round(federation, t)
        state = self.server.state()
        kept = {n: state[n].clone() for n in self.start}
        for name, value in kept.items():
            value[self.outside] = self.start[name][self.outside]
        self.server.load({**state, **kept})


def total(compositions: list[Composition], delta: float) -> float:
    """Epsilon of several runs on the same users, one after the other."""
    return account(dp_accounting().ComposedDpEvent([c.event() for c in compositions]), delta).epsilon


def multipliers(epsilon: float, users: int, share: float, releases: int) -> tuple[float, float]:
    """Noise multipliers of the Gram matrix and of each release of the system (inf: nothing is asked).

    Args:
        epsilon: both together.
        users: population.
        share: of mu^2 for the Gram matrix.
        releases: of the system.
    """
    dp, delta = dp_accounting(), users**-1.1
    whole = noise_of(plan(epsilon, users))
    while True:
        gram = whole / math.sqrt(share) if share else math.inf
        system = whole * math.sqrt(releases / (1 - share)) if share < 1 else math.inf
        events = [dp.GaussianDpEvent(gram)] if share else []
        events += [dp.SelfComposedDpEvent(dp.GaussianDpEvent(system), releases)] if share < 1 else []
        if account(dp.ComposedDpEvent(events), delta).epsilon <= epsilon:
            return gram, system
        whole *= 1 + 1e-4


def noise_of(privacy: PrivacyPlan) -> float:
    """Noise multiplier of a central plan."""
    multiplier: float = privacy.to_dict()["mechanism"]["noise_multiplier"]
    return multiplier


def central(clip_norm: float, multiplier: float, users: int) -> PrivacyPlan:
    """Central Gaussian noise for everybody in every round."""
    return PrivacyPlan.named("central-gaussian", clip_norm=clip_norm, noise_multiplier=multiplier, delta=users**-1.1)


class Bridge:
    """Runs on one split.

    Args:
        data: its name.
        on: which part is ranked.
    """

    def __init__(self, data: str, on: Part) -> None:
        interactions = load(data)
        self.data, self.on, self.users = data, on, interactions.n_users
        self.parts: Split = parts_of(data, interactions, on)
        self.grams: dict[tuple[float, int], tuple[Message, Composition]] = {}

    def gram(self, multiplier: float, seed: int) -> tuple[Message, Composition]:
        """What the Gram matrix publishes, and what that cost."""
        if (multiplier, seed) not in self.grams:
            experiment = Experiment(configured(self.data, GRAM, central(1.0, multiplier, self.users), seed), self.parts)
            result = experiment.run(parts=())
            self.grams[multiplier, seed] = experiment.server.public(), result.composition
        return self.grams[multiplier, seed]

    def reference(
        self, method: Mapping[str, Any], epsilon: float | None, seed: int
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A method in one round, with or without noise."""
        began = time.process_time()
        experiment = Experiment(configured(self.data, method, plan(epsilon, self.users), seed), self.parts)
        claimed = experiment.run(parts=()).guarantee.epsilon
        return self._row(experiment, epsilon, claimed, began)

    def _row(
        self, experiment: Experiment, epsilon: float | None, claimed: float, began: float
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        users = by_user(experiment, PROTOCOL, ("hr", "ndcg"), part=self.on)
        found = {metric: round(float(values.mean()), 5) for metric, values in users.items()}
        row = {"epsilon": epsilon, "accounted": claimed, "method": experiment.config.method, **found}
        return row | {"cpu_s": round(time.process_time() - began, 1)}, users

    def system(
        self, name: str, epsilon: float, share: float | None, noise: float, seed: int, *, train: bool = True
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A system, by itself or started from a Gram matrix.

        Args:
            name: of the system.
            epsilon: of everything.
            share: of mu^2 for the Gram matrix; 0 is the system by itself, 1 leaves nothing for sums, so that only
                devices train, and None spends nothing at all.
            noise: standard deviation that one server step may put on a parameter.
            seed: of both runs.
            train: whether anybody trains; if not, only the Gram matrix's share is spent.
        """
        began, how = time.process_time(), SYSTEMS[name]
        summed = train and share is not None and share < 1
        settings, privacy, gram = dict(how.started if share else how.alone), PrivacyPlan.named("none"), math.inf
        if share is not None:
            gram, each = multipliers(epsilon, self.users, share, ROUNDS + (0 if share else how.extra_queries))
        if summed:
            clip_norm = how.clip_norm if how.rate else noise * self.users / each
            privacy = central(clip_norm, each, self.users)
            if how.rate:
                settings["server_lr"] = min(LARGEST_LR, noise / (each * clip_norm / self.users))
        config = ExperimentConfig(
            data=self.data, split=SPLITS[self.data], method={"name": name, **settings}, privacy=privacy,
            protocol=PROTOCOL, rounds=ROUNDS, seed=seed, taps=TapConfig(places=()), fidelity="analytic",
        )  # fmt: skip
        experiment, spent = Experiment(config, self.parts), []
        if share:
            message, composition = self.gram(gram, seed)
            spent.append(composition)
            factors, server = GramFactors.from_message(message, how.rank), experiment.server
            state = server.state()
            server.load({**state, **how.start(state, factors)})
            experiment.server = Headed(server, factors.head, len(factors.vectors))
        if summed:
            spent.append(experiment.run(parts=()).composition)
        elif train:
            devices_alone(experiment)
        return self._row(experiment, epsilon, total(spent, self.users**-1.1), began)


def devices_alone(experiment: Experiment) -> None:
    """Rounds in which devices train what they keep for themselves, and nothing is sent."""
    everybody = torch.arange(experiment.n_users)
    for t in range(ROUNDS):
        for users in torch.split(everybody, USERS_AT_ONCE):
            experiment.rehearse(users, t, experiment.server.schema)
            experiment.clients.commit()


def choose(data: str, options: argparse.Namespace) -> None:
    """The noise of a server step, by validation NDCG, of FedVAE alone and started."""
    record, bridge = harness.Record(f"bridge_choose_{data}", options, []), Bridge(data, "valid")
    for epsilon, (variant, share), noise in product(EPSILONS, TRAINED.items(), GRID):
        row = {"epsilon": epsilon, "variant": variant, "noise": noise}
        if record.has(**row):
            continue
        found, _ = bridge.system("fedvae", epsilon, share, noise, CHOOSING_SEED)
        record.add(row | {key: found[key] for key in ("hr", "ndcg", "cpu_s")})


def table(name: str, options: argparse.Namespace) -> None:
    """Every variant of a system, and what it is to be compared with; then differences by user."""
    data, seeds, how = options.data, options.seeds, SYSTEMS[name]
    done, bridge = PairedRuns(f"bridge_{data}_{name}", options), Bridge(data, "test")
    choices = harness.results(f"bridge_choose_{CHOOSING_DATA}", options.out)
    pairs = []

    def run(variant: str, seed: int, measured: Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]]) -> None:
        if not done.has(variant, seed):
            found, users = measured()
            done.add({"variant": variant, "seed": seed, **found}, users["ndcg"])

    run("popularity", 0, partial(bridge.reference, {"name": "popularity"}, None, 0))
    if how.personal:
        for seed in range(seeds):
            run(UNTOLD, seed, partial(bridge.system, name, 0.0, None, 0.0, seed))
    for seed, epsilon in product(range(seeds), EPSILONS):
        at = f"epsilon {epsilon:g}"
        run(f"DP popularity, {at}", seed, partial(bridge.reference, {**GRAM, "popularity_share": 1.0}, epsilon, seed))
        run(f"the Gram alone, {at}", seed, partial(bridge.reference, GRAM, epsilon, seed))
        variants = {"started, nobody trains": partial(bridge.system, share=1.0, noise=0.0, train=False)}
        if how.personal:
            variants["started, only devices train"] = partial(bridge.system, share=1.0, noise=0.0)
        for variant, share in TRAINED.items() if how.sums else ():
            noise = chosen(choices, epsilon, variant) if how.noise is None else how.noise[share > 0]
            variants[variant if variant == ALONE else f"started, {variant}"] = partial(
                bridge.system, share=share, noise=noise
            )
            if share:
                untrained = partial(bridge.system, share=share, noise=noise, train=False)
                variants[f"started, {variant}, before training"] = untrained
        for variant, measured in variants.items():
            run(f"{variant}, {at}", seed, partial(measured, name, epsilon, seed=seed))
            others = (f"{ALONE}, {at}", f"the Gram alone, {at}", UNTOLD)
            pairs += [(f"{variant}, {at}", other) for other in others if not other.startswith(f"{variant}, ")]
            pairs += [(f"{variant}, {at}", f"{variant}, before training, {at}")]
    done.compare(dict.fromkeys(pairs))


def chosen(choices: list[dict[str, Any]], epsilon: float, variant: str) -> float:
    """The noise of a step with the best validation NDCG."""
    best = max((c for c in choices if (c["epsilon"], c["variant"]) == (epsilon, variant)), key=lambda c: c["ndcg"])
    return float(best["noise"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part."""
    parser = harness.parser(__file__, __doc__, parts=("choose", "table"), data="ml-100k", seeds=3)
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS), help="to start (default: all)")
    options = harness.parse(parser, arguments)
    if options.part == "choose":
        choose(CHOOSING_DATA, options)
        return
    for name in options.systems:
        table(name, options)


if __name__ == "__main__":
    main()
