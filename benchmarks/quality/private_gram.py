"""One noisy Gram matrix of items: what it recommends at a given epsilon, through which wire, and what it costs.

    python -m benchmarks.quality.private_gram table --data ml-1m --on valid --seeds 1
    python -m benchmarks.quality.private_gram table --data ml-1m --seeds 3
    python -m benchmarks.quality.private_gram table --data tenrec-qba-small --epsilons 1 8
    python -m benchmarks.quality.private_gram beyond --data ml-1m
    python -m benchmarks.quality.private_gram wire --data ml-100k
    python -m benchmarks.quality.private_gram cost --data ml-1m

`table` fits on training items and ranks the validation items (`--on valid`), or fits on training and validation items
together and ranks the test items (of JD on training items alone, as the study that the rule comes from did). Full
ranking, all items that the user has not trained on. No setting is tried: everything that is not a row's name follows
from the method's rule. Noise is central Gaussian, sized for a whole user (add or remove one) at delta = users^-1.1,
both releases together; *in shares* every device adds a part of it, sized so that `ANSWERING` of them are enough, and
all answer. Intervals are 95 % over users (bootstrap, 1,000), the noise seeds averaged per user. Beside
every row stand what the method decided inside the budget, the share of held-out items that are on the head, of users
with fewer than two items on it, how many different items the lists of 20 hold, and NDCG by length of history.
References without privacy: `benchmarks/quality/references.py`.

`beyond` keeps what accuracy does not say of popularity and of the method at epsilon 1 and 8, with items outside the
head ranked by popularity and, where items are described, by content: how much of the catalogue is listed, how popular
that is beside what is held out, NDCG by tenth of activity, and NDCG of held-out items outside the head, in the whole
ranking and among themselves, next to ranking the same by popularity. Ends of intervals are averaged over noise seeds.

`wire` compares the central noise with shares of integer noise in a secure sum, where every client rounds and adds its
own. `cost` times the server's part of a round and a client's, in CPU-seconds.

One process, one thread; results go to `benchmarks/results/private_gram_<part>_<data>.json` after every row, and rows
found there are not repeated.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.ranking import interval, with_validation
from benchmarks.running import ForwardingFederation, expect, simulation_of
from privfed.contracts import Fidelity, Schema
from privfed.data import Histories, Interactions, Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.evaluation import BeyondAccuracy, Evaluator, Metric, MetricName, Part, Protocol, Ratio
from privfed.experiment import Experiment
from privfed.federation import Call, Cohort, Federation, Message, Total
from privfed.guards.ring_code import RingCode
from privfed.methods.private_gram import PrivateGramClients, PrivateGramServer
from privfed.privacy import Ledger, PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

K = 20
ANSWERING = 0.85
"""Share of the devices whose noise suffices, where noise comes in shares."""
PROTOCOL = Protocol(k=(K,), state="received")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
METRICS: tuple[MetricName, ...] = ("ndcg", "recall", "hr")
GROUPS = (30, 75, 200)
PUBLISHED, BY_TIME = SplitSpec(kind="published"), SplitSpec(kind="leave_one_out")
SPLITS = {
    "ml-1m": PUBLISHED,
    "ml-100k": BY_TIME,
    "amazon-instant-video": BY_TIME,
    "jd-dfmr": SplitSpec(kind="published", target="buy"),
    "lastfm-2k": SplitSpec(kind="ratio", valid_fraction=0.0, test_fraction=0.2),
    "tenrec-qba-small": PUBLISHED,
    "gowalla": PUBLISHED,
}
FIT_ON_TRAIN = {"jd-dfmr"}
MIN_ITEMS = {"amazon-instant-video": 10}
GRAM = {"name": "private-gram"}
_SCORED_AT_ONCE = 256


def rows(epsilons: list[float], described: bool) -> Iterator[tuple[str, dict[str, Any], float | None]]:
    """Label, method and epsilon (None: unprotected) of every row."""
    fixed = {"metadata": False, "select": False, "min_items": 0}
    variants: dict[str, dict[str, Any]] = {
        "without metadata": {"metadata": False},
        "nothing chosen, long": {**fixed, "histories": "long"},
        "nothing chosen, short": {**fixed, "histories": "short"},
    }
    if described:
        reaching = {"with metadata": {}, "with metadata, beyond the head": {"beyond_head": "content"}}
        variants = reaching | {"metadata only": {"rank": 0, "select": False}} | variants
    yield "popularity", {"name": "popularity"}, None
    for name, settings in variants.items():
        yield f"{name}, no noise", {**GRAM, **settings}, None
    for epsilon in epsilons:
        for name, settings in ({"popularity alone": {"popularity_share": 1.0}} | variants).items():
            yield f"{name}, epsilon {epsilon:g}", {**GRAM, **settings}, epsilon
        best = next(iter(variants))
        yield f"{best}, in shares, epsilon {epsilon:g}", {**GRAM, **variants[best]}, epsilon


def parts_of(data: str, interactions: Interactions, on: Part) -> Split:
    """The split, with validation items among the training items where the test is fitted on both."""
    parts = split(interactions, SPLITS[data])
    if on == "valid" or data in FIT_ON_TRAIN or not len(parts.valid):
        return parts
    return with_validation(parts)


def plan(epsilon: float | None, users: int, *, in_shares: bool = False, **more: Any) -> PrivacyPlan:
    """Both queries of a run use shares of one clip norm that add up to 1, so one release is what is sized."""
    if epsilon is None:
        return PrivacyPlan.named("none", release="total")
    if in_shares:
        sized: dict[str, Any] = {"clip_norm": 1.0, "n_min_honest": int(ANSWERING * users), "epsilon": epsilon}
        return PrivacyPlan.named("distributed-gaussian", delta=users**-1.1, **sized, **more)
    open_ended = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=users**-1.1, **more)
    return plan_for_target(open_ended, epsilon, 1, users)


class TimedFederation(ForwardingFederation):
    """A federation that times its clients and sums, so that the rest of a round is the server's."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.client_seconds = 0.0

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Release a sum and add up its CPU-seconds."""
        started = time.process_time()
        released = super().aggregate(step, cohort, message, schema)
        self.client_seconds += time.process_time() - started
        return released


class Fitted:
    """One fitted run.

    Attributes:
        experiment: with both sides after the round.
        guarantee: what the ledger claims.
        server_seconds: CPU-seconds of the server's own part of the round.
        up_bytes: of one client.
    """

    def __init__(self, config: ExperimentConfig, parts: Split) -> None:
        self.experiment = e = Experiment(config, parts)
        ledger = Ledger(e.config.privacy, e.n_users)
        simulation = simulation_of(e, Simulation, ledger=ledger)
        timed, started = TimedFederation(simulation), time.process_time()
        e.server.round(timed, 0)
        self.server_seconds = time.process_time() - started - timed.client_seconds
        self.guarantee, self.up_bytes = ledger.guarantee(), simulation.costs.up_bytes / e.n_users

    def by_user(self, on: Part) -> dict[str, np.ndarray]:
        """Every metric of every user with a held-out item; counts in `recommended` how often each item is listed."""
        e = self.experiment
        evaluator, message = Evaluator(e.parts, PROTOCOL, on), e.server.public()
        self.evaluator = evaluator
        self.users, self.recommended = evaluator.users, np.zeros(e.parts.train.n_items, dtype=np.int64)
        for users in torch.split(torch.from_numpy(evaluator.users), _SCORED_AT_ONCE):
            scores = e.clients.score(users, message.addressed_to(users), None, None)
            evaluator.add(users.numpy(), scores.numpy())
            unseen = scores.clone()
            rows = torch.repeat_interleave(torch.arange(len(users)), torch.from_numpy(e.parts.train.counts[users]))
            unseen[
                rows, torch.from_numpy(np.concatenate([e.parts.train.items_of(user) for user in users.tolist()]))
            ] = -torch.inf
            self.recommended += np.bincount(unseen.topk(K).indices.flatten().numpy(), minlength=len(self.recommended))
        return {name: evaluator.by_user(name, K) for name in METRICS}

    def groups(self, ndcg: np.ndarray) -> dict[str, float]:
        """NDCG of users by how many items they have."""
        lengths = self.experiment.parts.train.counts[self.users]
        edges = [0, *GROUPS, np.inf]
        members = {
            f"under {b:g}" if a == 0 else f"{a:g} and more": (lengths >= a) & (lengths < b) for a, b in pairwise(edges)
        }
        return {name: round(float(ndcg[inside].mean()), 4) for name, inside in members.items() if inside.any()}

    def beyond(self) -> BeyondAccuracy:
        """What the lists of the test part say whatever their accuracy, after `by_user`."""
        found = self.evaluator.result().beyond
        assert found is not None
        return found

    def outside_head(self) -> dict[str, Any]:
        """NDCG of held-out test items outside the head, in the whole ranking and among themselves, and popularity's."""
        e, chosen = self.experiment, self.on_head()
        if chosen is None:
            return {}
        test, popularity = e.parts.test, e.parts.train.popularity().astype(np.float64)
        there = ~chosen[test.items]
        tail = Histories.from_pairs(test.owners[there], test.items[there], test.n_users, test.n_items)
        parts, message = replace(e.parts, test=tail, ratings=None), e.server.public()
        found: dict[str, Any] = {"held_out": len(tail)}
        for name, shift in (("whole", 0.0), ("among themselves", 1.0)):
            # The head is moved below everything else, which leaves the order outside it as it is.
            evaluator = Evaluator(parts, PROTOCOL, "test", np.where(chosen, popularity - 1e9 * shift, popularity))
            for users in torch.split(torch.from_numpy(evaluator.users), _SCORED_AT_ONCE):
                scores = e.clients.score(users, message.addressed_to(users), None, None).numpy()
                lowest = scores.min(axis=1, keepdims=True) - 1
                evaluator.add(users.numpy(), np.where(chosen & (shift > 0), lowest, scores).astype(np.float32))
            result = evaluator.result()
            assert result.popularity is not None
            own = next(metric for metric in result.metrics if metric.name == "ndcg")
            popular = next(metric for metric in result.popularity if metric.name == "ndcg")
            found |= {"people": own.n_users, name: _ends(own), f"{name}, by popularity": _ends(popular)}
        return found

    def on_head(self) -> np.ndarray | None:
        """Which items are on the head; None where there is none."""
        head = self.experiment.server.state().get("head", torch.empty(0))
        if not len(head):
            return None
        chosen = np.zeros(self.experiment.parts.train.n_items, dtype=bool)
        chosen[head.numpy()] = True
        return chosen

    def head(self, on: Part) -> dict[str, float]:
        """How far the head reaches: held-out items on it, and users with fewer than two training items on it."""
        chosen, parts = self.on_head(), self.experiment.parts
        if chosen is None:
            return {}
        held_out = parts.valid if on == "valid" else parts.test
        own = np.bincount(parts.train.owners[chosen[parts.train.items]], minlength=parts.train.n_users)
        return {"held_out_on_head": float(chosen[held_out.items].mean()), "fewer_than_two": float((own < 2).mean())}


def _ends(found: Metric | Ratio) -> list[float]:
    return [found.value, found.lo, found.hi]


def _averaged(found: Sequence[Sequence[float]]) -> list[float]:
    """Values and ends of several seeds, averaged."""
    return [round(float(one), 5) for one in np.mean(np.array(found), axis=0)]


def configured(
    data: str,
    method: Mapping[str, Any],
    privacy: PrivacyPlan,
    seed: int,
    fidelity: Fidelity = "analytic",
    spec: SplitSpec | None = None,
) -> ExperimentConfig:
    """One run, its noise drawn under `seed`."""
    return ExperimentConfig(
        data=data, split=spec or SPLITS[data], method=dict(method), privacy=privacy, protocol=PROTOCOL, rounds=1,
        seed=seed, taps=TapConfig(places=()), fidelity=fidelity,
    )  # fmt: skip


def measured(label: str, configs: list[ExperimentConfig], parts: Split, on: Part) -> dict[str, Any]:
    """A row: runs that differ in their noise, averaged per user."""
    started, found = time.process_time(), []
    runs = []
    for config in configs:
        runs.append(Fitted(config, parts))
        found.append(runs[-1].by_user(on))
    guarantee, server = runs[0].guarantee.model_dump(mode="json"), runs[0].experiment.server
    heads = [run.head(on) for run in runs]
    gram = server if isinstance(server, PrivateGramServer) else None
    return {
        "label": label,
        "on": on,
        "seeds": len(configs),
        "method": configs[0].method,
        "plan": runs[0].experiment.config.privacy.name,
        "guarantee": {key: guarantee[key] for key in ("epsilon", "delta", "trust", "neighbours", "accountant")},
        "constants": {} if gram is None else asdict(gram.constants),
        "metrics": {name: interval(np.mean([f[name] for f in found], 0)) for name in METRICS},
        "by_seed": {name: [round(float(f[name].mean()), 5) for f in found] for name in METRICS},
        "decisions": {} if gram is None else gram.decisions,
        "items_listed": round(float(np.mean([np.count_nonzero(run.recommended) for run in runs]))),
        "ndcg_by_length": runs[0].groups(np.mean([f["ndcg"] for f in found], 0)),
        "head": {name: round(float(np.mean([h[name] for h in heads])), 4) for name in heads[0]},
        "up_bytes": runs[0].up_bytes,
        "server_cpu_s": [round(run.server_seconds, 3) for run in runs],
        "cpu_s": round(time.process_time() - started, 2),
    }


def beyond(options: argparse.Namespace, interactions: Interactions) -> Iterator[tuple[str, Any]]:
    """Popularity, and the method at epsilon 1 and 8 by what orders the items outside the head."""
    parts, users = parts_of(options.data, interactions, "test"), interactions.n_users
    first = Experiment(configured(options.data, GRAM, plan(1.0, users), 0), parts)
    orders = ["popularity"]
    orders += ["content"] if expect(first.server, PrivateGramServer).features is not None else []
    runs: list[tuple[str, dict[str, Any], float | None]] = [("popularity", {"name": "popularity"}, None)]
    runs += [
        (f"epsilon {epsilon:g}, tail by {order}", {**GRAM, "beyond_head": order}, epsilon)
        for epsilon in (1.0, 8.0)
        for order in orders
    ]
    for label, method, epsilon in runs:
        seeds = 1 if epsilon is None else options.seeds
        configs = [configured(options.data, method, plan(epsilon, users), seed) for seed in range(seeds)]
        yield label, lambda configs=configs, label=label: beyond_row(label, configs, parts)


def beyond_row(label: str, configs: list[ExperimentConfig], parts: Split) -> dict[str, Any]:
    """A row of `beyond`."""
    runs = [Fitted(config, parts) for config in configs]
    ndcg = [run.by_user("test")["ndcg"] for run in runs]
    found, outside = [run.beyond() for run in runs], [run.outside_head() for run in runs]
    heads = [chosen for run in runs if (chosen := run.on_head()) is not None]
    return {
        "label": label,
        "on": "test",
        "seeds": len(configs),
        "method": configs[0].method,
        "items": parts.train.n_items,
        "head": round(float(np.mean([chosen.sum() for chosen in heads]))) if heads else 0,
        "ndcg": interval(np.mean(ndcg, 0)),
        "coverage": round(float(np.mean([one.coverage or 0.0 for one in found])), 5),
        "popularity_lift": _averaged([_ends(one.popularity_lift) for one in found if one.popularity_lift]),
        "most_popular_tenth": round(float(np.mean([one.exposure[0] for one in found])), 5),
        "by_activity": [
            _averaged([_ends(one) for one in tenth]) for tenth in zip(*(one.by_activity for one in found), strict=True)
        ],
        "outside_head": {
            name: _averaged([one[name] for one in outside]) if isinstance(value, list) else value
            for name, value in outside[0].items()
        },
    }


def table(options: argparse.Namespace, interactions: Interactions) -> Iterator[tuple[str, Any]]:
    """Rows of the table of one data set."""
    parts = parts_of(options.data, interactions, options.on)
    users = interactions.n_users
    first = Experiment(configured(options.data, GRAM, plan(1.0, users), 0), parts)
    described = expect(first.server, PrivateGramServer).features is not None
    for label, method, epsilon in rows(options.epsilons, described):
        seeds = 1 if epsilon is None else options.seeds
        privacy = plan(epsilon, users, in_shares=", in shares," in label)
        configs = [configured(options.data, method, privacy, seed) for seed in range(seeds)]
        yield label, lambda configs=configs, label=label: measured(label, configs, parts, options.on)


def wire(options: argparse.Namespace, interactions: Interactions) -> Iterator[tuple[str, Any]]:
    """Central noise, the same noise in shares through a ring, and the exact secure sum, epsilon by epsilon."""
    parts, users = parts_of(options.data, interactions, options.on), interactions.n_users
    honest = int(0.9 * users)

    def shares(epsilon: float) -> PrivacyPlan:
        central = Experiment(configured(options.data, GRAM, plan(epsilon, users), 0), parts)
        program = [query.schema for query in central.registered.training.program(central.server)]
        start = PrivacyPlan.named(
            "distributed-gaussian", clip_norm=1.0, noise_multiplier=1.0, n_min_honest=honest, delta=users**-1.1
        )
        return plan_for_target(start, epsilon, 1, users, program=program)

    for epsilon in options.epsilons:
        for name, sized, how in (("central", plan, "analytic"), ("distributed", lambda e, _: shares(e), "exact")):
            label = f"{name}, epsilon {epsilon:g}"

            def run(sized: Any = sized, how: Any = how, epsilon: float = epsilon, label: str = label) -> dict[str, Any]:
                privacy = sized(epsilon, users)
                configs = [configured(options.data, GRAM, privacy, s, how) for s in range(options.seeds)]
                return measured(label, configs, parts, options.on)

            yield label, run


def cost(options: argparse.Namespace, interactions: Interactions) -> Iterator[tuple[str, Any]]:
    """CPU-seconds of the server's fit and of one client's upload, for every epsilon."""
    parts, users = parts_of(options.data, interactions, options.on), interactions.n_users
    for epsilon in options.epsilons:
        label = f"epsilon {epsilon:g}"

        def run(epsilon: float = epsilon, label: str = label) -> dict[str, Any]:
            config = configured(options.data, GRAM, plan(epsilon, users), 0)
            Fitted(config, parts)
            fitted = Fitted(config, parts)
            e = fitted.experiment
            central = config.privacy.to_dict()["mechanism"]["noise_multiplier"]
            rings = {
                "secure sum": PrivacyPlan.named("secure-sum", clip_norm=1.0),
                "shares of noise": PrivacyPlan.named(
                    "distributed-gaussian", clip_norm=1.0, noise_multiplier=central, n_min_honest=int(0.9 * users)
                ),
            }
            return {
                "label": label,
                "head": expect(e.server, PrivateGramServer).constants.head,
                "up_numbers": e.server.schema["gram"].size,
                "down_bytes": e.server.public().bytes_per_client(),
                "server_fit_cpu_s": round(fitted.server_seconds, 3),
                "client_cpu_ms": client_times(e, rings),
            }

        yield label, run


def client_times(e: Experiment, rings: Mapping[str, PrivacyPlan]) -> dict[str, float]:
    """CPU-milliseconds of one device, the median of 15 devices: forming and packing the upload, and encoding it."""
    schema, message, codes = e.server.schema, e.server.public(), dict[str, RingCode]()
    clients = expect(e.clients, PrivateGramClients)
    for name, privacy in rings.items():
        codes[name] = RingCode(privacy.mechanism, schema, e.n_users)
    seconds: dict[str, list[float]] = {name: [] for name in ("upload", *codes, "scores")}
    for user in range(17):
        users, started = torch.tensor([user]), time.process_time()
        updates = clients.gram(Call(0, 0, "gram", 1, users, e.streams, schema), message)
        upload = updates.materialise(torch.arange(1))
        seconds["upload"].append(time.process_time() - started)
        for name, code in codes.items():
            started = time.process_time()
            code.encode(upload, 0, bytes(range(32)))
            seconds[name].append(time.process_time() - started)
        started = time.process_time()
        e.clients.score(users, message, None, None)
        seconds["scores"].append(time.process_time() - started)
    return {name: round(1e3 * float(np.median(values[2:])), 2) for name, values in seconds.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the tables of private recommenders share."""
    parser.add_argument("--on", default="test", choices=("valid", "test"), help="part that is ranked (default: test)")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS), help="budgets (default: 1 2 4 8)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part, or what is missing of it, and print its table."""
    parts = {"table": table, "beyond": beyond, "wire": wire, "cost": cost}
    data = {"default": "ml-1m", "choices": SPLITS}
    parser = harness.parser(__file__, __doc__, parts=parts, data=data, seeds=3, only=[])
    add_arguments(parser)
    options = harness.parse(parser, arguments)

    interactions = load(options.data, min_per_user=MIN_ITEMS.get(options.data, 1))
    record = harness.Record(f"private_gram_{options.part}_{options.data}", options, [])
    for label, run in parts[options.part](options, interactions):
        known = any((row["label"], row.get("on", options.on)) == (label, options.on) for row in record.results)
        if not known and harness.chosen(label, options.only):
            record.add(run())


if __name__ == "__main__":
    main()
