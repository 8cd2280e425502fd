"""A private recommender as a product: what to expect, who chooses what, how good it is, what to tune, and a year.

    python examples/private_product.py                                  # synthetic people, about a minute
    python examples/private_product.py --data ml-100k --refreshes 12

Five questions of a product team, in the order in which they come up:

1. *Is it worth starting?* A forecast from numbers that are public, before anybody takes part.
2. *What if people differ in what they give?* Two tiers choose their own epsilon inside one noisy sum; or, with
   `--donors`, some open their history and have no guarantee, and everybody else keeps the whole one.
3. *How good is it?* Quality is one more noisy sum within that epsilon. Nobody computes an exact metric, and brackets
   hold noise and people. Where few take part, they are wide: measure more people, or spend more on it (`--mu`).
4. *Which settings?* All candidates follow from one release, and the choice among them is charged as well.
5. *What does a year cost?* Running totals are counted once, however often the model is refreshed. After early
   refreshes it is below popularity: show popularity until the measured model is above it.

Each line of privacy is about a run alone; runs on the same people add up, so decide for one of them.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from rich.console import Console

import privfed
from privfed.api.data import Data

PEOPLE = 100_000
"""Who might take part once the product is out."""


def main() -> None:
    """Answer all five questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--epsilon", type=float, default=2, help="privacy budget of a person")
    parser.add_argument("--generous", type=float, default=8, help="what one in five chooses instead")
    parser.add_argument("--donors", action="store_true", help="one in twenty opens the history, and nobody has tiers")
    parser.add_argument("--mu", type=float, default=0.2, help="privacy budget of a measurement, of a choice as well")
    parser.add_argument("--refreshes", type=int, default=4, help="models in a year")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    data, console = privfed.load(options.data), Console(highlight=False)
    for question, answers in questions(data, options):
        console.rule(question, align="left")
        for answer in answers:
            console.print(answer, markup=False, soft_wrap=True)
    kind = "synthetic people" if data.card.synthetic else data.name
    console.print(f"[dim]{kind}, a simulation with seeded noise; seed {options.seed}")


def questions(data: Data, options: argparse.Namespace) -> Iterator[tuple[str, Iterator[str]]]:
    """Every question with the lines that answer it."""
    yield "1. Is it worth starting?", worth(data, options)
    yield "2. and 3. What do people give, and how good is it?", chosen(data, options)
    yield "4. Which settings?", tuned(data, options)
    yield f"5. {options.refreshes} refreshes", year(data, options)


def worth(data: Data, options: argparse.Namespace) -> Iterator[str]:
    """A forecast for a product like these data with many people, without and with noise in shares."""
    for trust in ("central", "distributed"):
        expected = privfed.forecast(
            people=PEOPLE, items=data.n_items, history=len(data) / data.n_users, epsilon=options.epsilon, trust=trust,
            dropout=0.1,
        )  # fmt: skip
        yield f"{PEOPLE:,} people, noise {'by a server' if trust == 'central' else 'in shares'}: {expected}"


def chosen(data: Data, options: argparse.Namespace) -> Iterator[str]:
    """A run in which people differ, measured inside the budget."""
    how: dict[str, Any] = {"epsilon": options.epsilon, "split": {"donors": 0.05}}
    if not options.donors:
        how = {"tiers": {"careful": (options.epsilon, 0.8), "generous": (options.generous, 0.2)}}
    run = privfed.run(
        "private-gram", data, seed=options.seed, options={"evaluation": {"private": True, "mu": options.mu}}, **how
    )
    yield str(run)
    yield from ([] if run.test.warning is None else [run.test.warning])
    yield from (tier.sentence for tier in run.guarantee.tiers)
    yield from (sentence for sentence in run.guarantee.statements if "opened their history" in sentence)


def tuned(data: Data, options: argparse.Namespace) -> Iterator[str]:
    """The best of three sizes of the model, chosen and measured within the budget."""
    measuring = {"private": True, "mu": options.mu, "selection_mu": options.mu, "grid": {"rank": [4, 16, 64]}}
    run = privfed.run(
        "private-gram", data, epsilon=options.epsilon, seed=options.seed, options={"evaluation": measuring}
    )
    choice = run.test.choice
    assert choice is not None
    for number, (settings, value) in enumerate(zip(choice.candidates, choice.values, strict=True)):
        kept = ", which is kept" if number == choice.chosen else ""
        yield f"rank {settings['rank']}: NDCG@{value.k} {value.value:.3f} [{value.lo:.3f}, {value.hi:.3f}]{kept}"
    yield str(run)


def year(data: Data, options: argparse.Namespace) -> Iterator[str]:
    """Running totals while people and ratings arrive, and what the year means for whoever leaves."""
    run = privfed.run(
        "private-gram", data, epsilon=options.epsilon, refreshes=options.refreshes, seed=options.seed,
        split={"arrivals": options.refreshes},
    )  # fmt: skip
    yield str(run)
    told = ("of popularity", "Who leaves")
    yield from (sentence for sentence in run.guarantee.statements if any(words in sentence for words in told))


if __name__ == "__main__":
    main()
