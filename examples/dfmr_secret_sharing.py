"""DFMR behind secret sharing: what each kind of padding of the rows costs, and what the rows still give away.

    python examples/dfmr_secret_sharing.py                                  # generated views and purchases, a minute
    python examples/dfmr_secret_sharing.py --data path/to/jd-dfmr --split published

Purchases are public, examinations (views) are not. Aggregators see sums and, unless everybody sends every row, which
items' rows each client sends. Fake items make that harder to read and prove nothing: a row that is not sent was not
examined. Randomised response proves an epsilon per item, and examinations that it withholds do not train.

The columns, for every kind of padding: utility; "posterior", the share of examinations among the rows that a user sends
without having bought, mean over users; "|E|", for how many users the number of examinations is read off exactly; upload
of one client in one round; epsilon of the rows for one examination more or less, and of everything, which is infinite
because sums are opened exactly; and rows that too few clients send, which are suppressed. Every run that suppresses no
row is repeated without secret sharing on the same examinations, and its codes must come out the same, bit for bit.
"""

import argparse

import numpy as np
from jaxtyping import Bool
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from attacks import SupportView
from attacks.metrics import user_mean
from attacks.supports import count_recovery, debiased_count, realised_posterior, recover_examined_count
from privfed.data import SplitSpec, load, split
from privfed.evaluation import UNCOUNTED, Protocol
from privfed.experiment import Experiment, RunResult
from privfed.methods import ClientData
from privfed.privacy import PrivacyPlan
from privfed.privacy.mechanisms.shared_sum import SharedSum
from privfed.privacy.padding.base import Padding
from privfed.privacy.padding.fake_items import FakeItems
from privfed.privacy.padding.full_support import FullSupport
from privfed.privacy.padding.no_padding import NoPadding
from privfed.privacy.padding.randomised_response import RandomisedResponse
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.padding import padded_data

MIN_CLIENTS = 3
"""Number of clients below which a row is suppressed."""


def main() -> None:
    """Train behind every kind of padding and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic-funnel", help="name of a data set, or a path")
    parser.add_argument("--target", default="buy", help="the behaviour to recommend, whose rows are public")
    parser.add_argument("--split", default="leave_one_out", choices=("leave_one_out", "user_time", "published"))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--bits", type=int, default=32, help="of a code")
    parser.add_argument(
        "--rho", type=float, nargs="+", default=[0, 1, 3, 5], help="fake items for each item of one's own"
    )
    parser.add_argument(
        "--epsilon", type=float, nargs="+", default=[1, 2, 4, 6], help="of randomised response, per item"
    )
    parser.add_argument("--aggregators", type=int, default=2, choices=(2, 3))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    interactions, console = load(options.data), Console()
    parts = split(interactions, SplitSpec(kind=options.split, target=options.target))
    columns = ("rows sent", "NDCG@10", "posterior", "|E|", "upload", "eps rows", "eps all", "suppressed")
    title = f"dfmr on {interactions.name}, {options.rounds} rounds"
    table = Table(
        *(Column(name, no_wrap=True) for name in columns),
        title=title,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    popularity = Experiment(configured(options, PrivacyPlan.named("none"), "popularity"), parts).run(parts=("test",))
    table.add_row("(popularity)", ndcg(popularity))
    plain = Experiment(configured(options, PrivacyPlan.named("none")), parts).run(parts=("test",))
    table.add_row("no sharing", ndcg(plain), "1.000", "100%", upload(plain), "inf", "inf", "0")
    equal = 0
    with Progress(console=console, transient=True) as bar:
        for padding in bar.track(paddings(options)):
            plan = PrivacyPlan(
                mechanism=SharedSum(aggregators=options.aggregators, padding=padding, min_cohort=MIN_CLIENTS)
            )
            experiment = Experiment(configured(options, plan), parts)
            result = experiment.run(parts=("test",))
            seen = rows_seen(experiment)
            suppressed = int((seen.sum(0) < MIN_CLIENTS).sum())
            if suppressed == 0:
                refuse_difference(experiment, without_sharing(experiment))
                equal += 1
            table.add_row(
                named(padding), ndcg(result), *leakage(experiment, seen, padding), upload(result),
                f"{padding.claim.epsilon:.3g}", f"{result.guarantee.epsilon:g}", str(suppressed),
            )  # fmt: skip
    console.print(table)
    kind = "synthetic data" if interactions.card.synthetic else interactions.card.name
    console.print(f"[dim]{kind}; seed {options.seed}; {result.config.protocol.sentence()}")
    console.print(f"[dim]{UNCOUNTED}")
    console.print(
        f"Codes of all {equal} runs that suppressed no row equal those of a run without sharing, bit for bit. A row is "
        f"suppressed if fewer than {MIN_CLIENTS} clients send it; upload is to {options.aggregators} aggregators "
        "together."
    )


def paddings(options: argparse.Namespace) -> list[Padding]:
    """Every row, and each kind of padding at each strength; without padding, both kinds of fake items are the same."""
    fake_items = [
        FakeItems(rho=rho, drawn=drawn) for drawn in ("uniform", "popularity") for rho in options.rho if rho
    ]  # fmt: skip
    answers = [RandomisedResponse(epsilon=epsilon) for epsilon in options.epsilon]
    return [FullSupport(), *([NoPadding()] if 0 in options.rho else []), *fake_items, *answers]


def named(padding: Padding) -> str:
    """A short name."""
    if isinstance(padding, FakeItems):
        return f"{padding.drawn}, rho {padding.rho:g}"
    if isinstance(padding, RandomisedResponse):
        return f"random answers, {padding.epsilon:g}"
    return padding.label


def configured(options: argparse.Namespace, plan: PrivacyPlan, name: str = "dfmr") -> ExperimentConfig:
    """One run."""
    return ExperimentConfig(
        data=options.data,
        split=SplitSpec(kind=options.split, target=options.target),
        method={"name": name, "d": options.bits} if name == "dfmr" else {"name": name},
        privacy=plan,
        protocol=Protocol(k=(10,), state="received"),
        rounds=options.rounds,
        evaluate_every=options.rounds,
        taps=TapConfig(places=()),
        seed=options.seed,
    )


def rows_seen(experiment: Experiment) -> Bool[np.ndarray, "users items"]:
    """Which rows each client sends, as the aggregators see it, [users, items]."""
    everybody = np.arange(experiment.n_users)
    if experiment.support is None:
        return np.ones((experiment.n_users, experiment.parts.train.n_items), dtype=bool)
    return experiment.support.mask(everybody)


def leakage(experiment: Experiment, seen: Bool[np.ndarray, "users items"], padding: Padding) -> tuple[str, str]:
    """What the rows alone say of examinations: their share of the rows sent, and whose number of them is known."""
    parts, everybody = experiment.parts, np.arange(experiment.n_users)
    bought = parts.train.mask(everybody)
    examined = ClientData.from_split(parts, "train").examined().mask(everybody) & ~bought
    view = SupportView(
        sent=seen,
        public=bought,
        supporters=(seen & ~bought).sum(0),
        popularity=bought.sum(0).astype(np.float64),
    )
    share = f"{user_mean(realised_posterior(view, examined)).value:.3f}"
    sent, purchased = view.unpurchased.sum(1), bought.sum(1)
    if isinstance(padding, FullSupport):
        return share, "none"
    if isinstance(padding, RandomisedResponse):
        guess = debiased_count(sent, parts.train.n_items - purchased, q=padding.keep, p=padding.others)
    else:
        guess = recover_examined_count(sent, purchased, getattr(padding, "rho", 0.0))
    return share, f"{count_recovery(guess, examined.sum(1)).exact.value:.0%}"


def without_sharing(experiment: Experiment) -> Experiment:
    """The same clients, with the same examinations left to train on, adding up in the open."""
    config = experiment.config.model_copy(update={"privacy": PrivacyPlan.named("none")})
    twin = Experiment(config, experiment.parts)
    data = ClientData.from_split(experiment.parts, config.protocol.negatives)
    padded = padded_data(data, experiment.config.privacy, twin.registered, config.settings())
    twin.clients = twin.registered.training.clients(config.settings(), padded.data, twin.streams)
    twin.run(parts=("test",))
    return twin


def refuse_difference(one: Experiment, other: Experiment) -> None:
    """Stop unless item codes and user codes are the same in every bit."""
    same_items = one.server.state()["codes"].equal(other.server.state()["codes"])
    if not (same_items and one.clients.state()["codes"].equal(other.clients.state()["codes"])):
        raise SystemExit(f"codes behind {one.config.privacy.name} differ from those of a run without sharing")


def ndcg(result: RunResult) -> str:
    """NDCG at 10, as text."""
    return f"{result.test.metric('ndcg', 10).value:.4f}"


def upload(result: RunResult) -> str:
    """Bytes of a client in a round, as text."""
    return f"{result.costs.up_bytes / max(result.costs.client_rounds, 1) / 1000:.0f} kB"


if __name__ == "__main__":
    main()
