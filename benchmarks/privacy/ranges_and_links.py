"""Ranges of items, links between runs, and neighbourhoods: what servers read besides single items.

    python -m benchmarks.privacy.ranges_and_links --seeds 2

MovieLens-100K, as in `benchmarks.privacy.active_servers`, on the same 48 people. By method:

    range      AUC of "did this person train on any of these twenty items?", 24 ranges of like popularity: from single
               uploads; from secure sums of unequal models; behind noise in shares (epsilon 8 for one query) under
               unequal models, as sent and with the rows of the range lit, which takes a query for every range
    links      share of people whose pseudonym is named, and AUC of a person's own pair against those with others: in a
               second run (other keys, same histories), from every place above; and in another service, from single
               uploads: where a coin gave every item of a person to one of the two, and where each service has an item
               by a coin of its own. Profiles are compared as scored, or smoothed through the histories of one in five
               of all other people (co-occurrence, or their 16 leading directions); which one, and whether in
               reverse, is chosen on known people, and measured among the others. Beside it what links without an
               upload: history lengths, and true histories, the ceiling. Popularity says the same of everybody
    inversion  AUC of training items against items never seen, by an attack that looks at no row: ridge regression from
               uploads of 600 made-up newcomers, trained on the model that was sent, back to their histories
    neighbours AUC of the five people whose histories overlap most with one's own, among the 48: from single uploads;
               and, where everybody takes part in every round and is sent a table of their own, from these tables
               alone, as whoever reads them on the way sees them, with the AUC of who is whose neighbour in the graph
               by which the server made them

Items are read by the attack that is best on the people whose histories the adversary knows; ranges and links, too, are
measured on the others. Lit rows are read by a matched filter: the mean upload of 64 made-up newcomers with an item of
the range, less that of 64 without, all from the model that was sent; how bright they are is chosen on known people.
Popularity answers for a range by its most popular item. Five methods, one of each way to upload (rows, rows and heads,
low rank, an autoencoder's weights, tables of their own), because lit rows take a query for every range and person;
links also from products. Results go to `benchmarks/results/ranges_and_links.json`. One process, one thread.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from attacks.active import HONEST, lit
from attacks.evaluation.choice import best_on
from attacks.linkability import (
    Linked,
    linked,
    measure_links,
    nearest,
    neighbour_auc,
    profiles,
    share_named,
    smoothed_profiles,
)
from attacks.membership.learned_inversion import learned_inversion
from attacks.membership.ranges import balanced_ranges, range_members, range_scores
from attacks.metrics import user_auc, user_mean
from attacks.views import PerUser, Scores, UserMask
from benchmarks import harness
from benchmarks.privacy.active_servers import (
    CLIENTS,
    DATA,
    NOISE,
    ROUNDS,
    UNEQUAL,
    People,
    Stage,
    assembled,
    audited_methods,
    stages,
)
from privfed.audit.active.honest_run import HonestQuery, trained
from privfed.audit.active.lies import CRAFTED, Lie
from privfed.audit.active.lying_server import LyingServer
from privfed.data import Histories, SplitSpec, load, split
from privfed.federation import Call, Message, Streams, begin_query, perform
from privfed.guards import ClientGuard
from privfed.guards.client_guard import BrokenUploadError
from privfed.methods import ClientData, Method
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates

SIZE, RANGES, NEIGHBOURS, NEWCOMERS, PAIRS = 20, 24, 5, 64, 600
TRIED, GAINS = 8, (30.0, 300.0)
RANK, PUBLIC = 16, 5
METHODS = ("colr", "fedmf", "fedncf", "fedvae", "gpfedrec")
LINKED = (*METHODS, "private-gram")
PERSONAL = ("gpfedrec",)
"""Whose server sends everybody a table of their own."""
WITHOUT_ROWS = ("private-autoencoder", "dpals", "fair", "colr")
"""Whose uploads are read by learned inversion: on a head of items, in products, in hashed tables, in low rank."""


Profiles = Float64[np.ndarray, "users features"]
Similar = Float64[np.ndarray, "users users"]


@dataclass(frozen=True, eq=False)
class Question:
    """The ranges that are asked about.

    Attributes:
        people: of whom.
        ranges: items of each.
    """

    people: People
    ranges: Bool[np.ndarray, "ranges items"]

    def auc(self, scores: Float64[np.ndarray, "users ranges"], here: UserMask | None = None) -> PerUser:
        """AUC of every person's own ranges, by default for people whose histories are not known."""
        truth = range_members(self.people.game.members, self.ranges)
        asked = np.broadcast_to((~self.people.known if here is None else here)[:, None], truth.shape)
        auc: PerUser = user_auc(scores, truth, np.ascontiguousarray(asked))
        return auc


def read(stage: Stage, lie: Lie) -> Scores:
    """Scores of items of all audited people by the attack that is best on known ones."""
    people, everybody = stage.people, np.ones(len(stage.people.users), dtype=bool)
    found = stage.scores(lie, HONEST, everybody)
    aucs = {name: people.auc(scores, people.known) for name, scores in found.items()}
    best, reverse = best_on(aucs, people.known)
    return -found[best] if reverse else found[best]


def lit_auc(stage: Stage, question: Question) -> PerUser:
    """AUC of unknown people where one range after the other is lit, as bright as was best for known ones."""
    known, tried = stage.people.known, {}
    fewer = Question(stage.people, question.ranges[:TRIED])
    for gain in GAINS:
        tried[gain] = fewer.auc(lit_scores(stage, fewer.ranges, gain, known), known)
    gain, reverse = best_on(tried, known)
    auc = question.auc(lit_scores(stage, question.ranges, gain, ~known))
    return 1 - auc if reverse else auc


def lit_scores(
    stage: Stage, ranges: Bool[np.ndarray, "ranges items"], gain: float, here: UserMask
) -> Float64[np.ndarray, "users ranges"]:
    """Answers of the people who are here to a server that lights up one range after the other, under unequal models."""
    people, server = stage.people, stage.server
    out, asked = np.zeros((len(people.users), len(ranges))), np.flatnonzero(here)
    cohorts = {int(people.users[at]): people.cohort(int(people.users[at])) for at in asked}
    for number, items in enumerate(ranges):
        sent = {name: values.numpy() for name, values in server.query.message.shared.items()}
        model = lit(sent, np.flatnonzero(items), server.n_items, gain)
        message = Message({name: torch.from_numpy(v) for name, v in model.items()}, config=server.query.message.config)
        difference = expected_difference(stage, message, items)
        for at, (target, cohort) in zip(asked, cohorts.items(), strict=True):
            # On a model too bright to train on, a node's user sends zeros.
            with suppress(BrokenUploadError):
                sums = server.sum(message, cohort.sort().values, torch.tensor([target]))
                out[at, number] = sum(float((sums[name] * difference[name]).sum()) for name in difference)
    return out


def expected_difference(stage: Stage, message: Message, items: Bool[np.ndarray, " items"]) -> dict[str, Tensor]:
    """What an item of the range changes in the clipped upload of a newcomer, on average."""
    popularity = stage.people.knowledge.popularity * ~items
    made_up = drawn(popularity, np.full(2 * NEWCOMERS, SIZE))
    probed = np.random.default_rng(2).choice(np.flatnonzero(items), NEWCOMERS)
    made_up[np.arange(NEWCOMERS), probed] = True
    assembly = stage.server.assembly
    updates = simulated(assembly, stage.server.query, message, made_up)
    ClientGuard(assembly.config.privacy, Streams.of_outsider(assembly.streams, 0)).clip_(updates)
    whole = updates.materialise(torch.arange(2 * NEWCOMERS))
    return {name: values[:NEWCOMERS].mean(0) - values[NEWCOMERS:].mean(0) for name, values in whole.items()}


def drawn(popularity: Float64[np.ndarray, " items"], sizes: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, "n items"]:
    """Made-up histories of these sizes, drawn by popularity without replacement."""
    keys = np.random.default_rng(1).gumbel(size=(len(sizes), len(popularity)))
    with np.errstate(divide="ignore"):
        ranks = np.argsort(np.argsort(-(np.log(popularity) + keys), axis=1), axis=1)
    return np.asarray(ranks < sizes[:, None])


def simulated(
    assembly: Assembly, query: HonestQuery, message: Message, made_up: Bool[np.ndarray, "n items"]
) -> ClientUpdates:
    """What newcomers with made-up histories would have uploaded."""
    streams, newcomers = Streams.of_outsider(assembly.streams, 0), torch.arange(len(made_up))
    row, item = np.nonzero(made_up)
    histories = Histories.from_pairs(row, item, len(made_up), made_up.shape[1])
    clients = assembly.registered.training.clients(
        assembly.config.settings(), ClientData(histories, histories), streams
    )
    begin_query(clients, query.step, message)
    return perform(clients, Call(0, 0, query.step, 0, newcomers, streams, query.schema), message)


def inverted(name: str, method: Method, people: People, seed: int) -> PerUser:
    """AUC of items by learned inversion of single uploads of the last query that comes with a model."""
    honest = assembled(name, "none", people, seed, CLIENTS)
    run = trained(honest, 0 if method.traits.uploads_once else ROUNDS)
    query = [one for one in run.queries if one.message.shared][-1]
    assembly = assembled(name, "none", people, seed)
    assembly.clients.load(run.devices)
    sizes = np.random.default_rng(4).choice(people.split.train.counts[people.users[people.known]], PAIRS)
    made_up = drawn(people.knowledge.popularity, sizes)
    pairs = flat(simulated(assembly, query, query.message, made_up).materialise(torch.arange(PAIRS)))
    seen = flat(LyingServer(assembly, query).uploads(query.message, torch.from_numpy(people.users)))
    return people.auc(learned_inversion(seen, pairs, made_up), ~people.known)


def flat(uploads: Mapping[str, Tensor]) -> Float32[np.ndarray, "n size"]:
    """All blocks of each upload, one after the other."""
    return torch.cat([values.float().flatten(1) for values in uploads.values()], 1).numpy()


def tables_read(name: str, people: People, seed: int) -> dict[str, PerUser]:
    """AUC of neighbours by histories, and by the server's graph, from the tables that people are sent."""
    honest = assembled(name, "none", people, seed, people.split.train.n_users)
    run = trained(honest, ROUNDS)
    (tables,) = run.queries[-1].message.personal.values()
    users = torch.from_numpy(people.users)
    own = tables[users].double().flatten(1).numpy()
    similar = linked(own - own.mean(axis=0), own - own.mean(axis=0))
    graph = honest.server.state()["near"][users][:, users].numpy() & ~np.eye(len(users), dtype=bool)
    truths = {"histories": nearest(people.game.members, NEIGHBOURS), "graph": graph}
    return {truth: neighbour_auc(similar, neighbours) for truth, neighbours in truths.items()}


def readings(at: Mapping[str, Stage]) -> dict[str, Scores]:
    """Scores of items by place, where a server gets at one person."""
    out = {"uploads": read(at["none"], CRAFTED)}
    for place, name in (("secure-sum", "sums, unequal models"), (NOISE, "noise, unequal models")):
        if place in at and at[place].allows(UNEQUAL):
            out[name] = read(at[place], UNEQUAL)
    return out


def run_of(name: str, method: Method, people: People, seed: int) -> dict[str, Stage]:
    """A run and the servers that lie to its devices."""
    honest = assembled(name, "none", people, seed, CLIENTS)
    run = trained(honest, 0 if method.traits.uploads_once else ROUNDS)
    return dict(stages(name, run, honest, people, seed))


DESIGNS = {"disjoint halves": True, "independent coins": False}


def services(people: People, disjoint: bool, seed: int) -> tuple[People, People]:
    """The same people at two services, which have halves of their training items, or each an item by its own coin."""
    coins = np.random.default_rng([7, seed]).random((2, len(people.split.train.items))) < 0.5
    first, second = (coins[0], ~coins[0]) if disjoint else coins
    return _with_part(people, first), _with_part(people, second)


def _with_part(people: People, kept: Bool[np.ndarray, " interactions"]) -> People:
    train = people.split.train
    part = Histories.from_pairs(train.owners[kept], train.items[kept], train.n_users, train.n_items)
    return replace(people, split=replace(people.split, train=part, ratings=None))


def ways(people: People) -> dict[str, Callable[[Scores], Profiles]]:
    """How a pseudonym's scores become its profile."""
    others = np.setdiff1d(np.flatnonzero(people.split.train.counts), people.users)
    public = people.split.train.mask(np.random.default_rng(5).choice(others, len(others) // PUBLIC, replace=False))
    return {
        "as scored": profiles,
        "co-occurrence": lambda scores: smoothed_profiles(scores, public),
        f"rank {RANK}": lambda scores: smoothed_profiles(scores, public, RANK),
    }


def links_among(similar: Similar, here: UserMask) -> Linked:
    """Links among the people who are here, whose order in the second run says nothing."""
    asked = np.flatnonzero(here)
    hidden = np.random.default_rng(3).permutation(asked)
    found: Linked = measure_links(similar[np.ix_(asked, hidden)], np.argsort(hidden))
    return found


def links(people: People, pairs: Sequence[tuple[Scores, Scores]]) -> dict[str, Any]:
    """Unknown people linked the way that was best for known ones, over pairs of runs."""
    known, chosen, found, plain = people.known, [], [], []
    for first, second in pairs:
        similar = {name: linked(profile(first), profile(second)) for name, profile in ways(people).items()}
        aucs = {name: links_among(one, known).aucs for name, one in similar.items()}
        best, reverse = best_on(aucs, np.ones(known.sum(), dtype=bool))
        found.append(links_among(-similar[best] if reverse else similar[best], ~known))
        plain.append(links_among(similar["as scored"], ~known))
        chosen.append(f"{best}{' in reverse' if reverse else ''}")
    return _links(found) | {"as scored": _links(plain), "chosen": chosen}


def _links(found: Sequence[Linked]) -> dict[str, Any]:
    share = share_named(np.mean([one.named for one in found], axis=0))
    return {
        "accuracy": [round(float(v), 4) for v in (share.value, share.lo, share.hi)],
        "auc": _interval(np.mean([one.aucs for one in found], axis=0)),
    }


def without_uploads(people: People, seeds: int) -> dict[str, Any]:
    """What links people where nobody looks at an upload: how many items they have, and which."""
    designs = {"another run": [(people, people)]}
    for name, disjoint in DESIGNS.items():
        designs[name] = [services(people, disjoint, seed) for seed in range(seeds)]
    unknown = int((~people.known).sum())
    out: dict[str, Any] = {"people": unknown, "known": int(people.known.sum()), "chance": round(1 / unknown, 4)}
    out["history length"] = {
        name: _links([links_among(_alike_in_length(*pair), ~people.known) for pair in pairs])
        for name, pairs in designs.items()
    }
    out["true histories"] = {
        name: links(people, [(_histories(first), _histories(second)) for first, second in pairs])
        for name, pairs in designs.items()
    }
    return out


def _alike_in_length(first: People, second: People) -> Similar:
    one, other = (np.log(service.game.members.sum(axis=1) + 1.0) for service in (first, second))
    similar: Similar = -np.abs(one[:, None] - other)
    return similar


def _histories(people: People) -> Scores:
    return people.game.members.astype(np.float64)


def linked_by(name: str, method: Method, people: People, seeds: int) -> dict[str, Any]:
    """Links from what a method uploads."""
    started = time.process_time()
    runs = [readings(run_of(name, method, people, seed)) for seed in (0, 1)]
    out = {f"another run: {place}": links(people, [(runs[0][place], runs[1][place])]) for place in runs[0]}
    for design, disjoint in DESIGNS.items():
        pairs = []
        for seed in range(seeds):
            first, second = (
                read(run_of(name, method, one, 2 * seed + place)["none"], CRAFTED)
                for place, one in enumerate(services(people, disjoint, seed))
            )
            pairs.append((first, second))
        out[design] = links(people, pairs)
    return out | {"cpu_s": round(time.process_time() - started, 1)}


def measured(name: str, method: Method, people: People, seeds: int) -> dict[str, Any]:
    """Ranges and neighbours from what a method uploads."""
    started = time.process_time()
    question = Question(people, balanced_ranges(people.knowledge.popularity, SIZE, RANGES, 0))
    runs, ranges = list[Scores](), dict[str, list[PerUser]]()
    for seed in range(seeds):
        at = run_of(name, method, people, seed)
        found = readings(at)
        runs.append(found["uploads"])
        aucs = {place: question.auc(range_scores(scores, question.ranges)) for place, scores in found.items()}
        if NOISE in at and at[NOISE].allows(UNEQUAL) and not at[NOISE].server.query.message.personal:
            aucs["noise, lit rows"] = lit_auc(at[NOISE], question)
        for place, auc in aucs.items():
            ranges.setdefault(place, []).append(auc)
    truth = nearest(people.game.members, NEIGHBOURS)
    alike = user_mean(np.mean([neighbour_auc(linked(profiles(r), profiles(r)), truth) for r in runs], axis=0))
    popular = question.auc(range_scores(np.broadcast_to(people.knowledge.popularity, runs[0].shape), question.ranges))
    return {
        "people": len(people.users),
        "seeds": seeds,
        "popularity": round(float(np.nanmean(popular)), 4),
        "ranges": {place: _interval(np.nanmean(aucs, axis=0)) for place, aucs in ranges.items()},
        "neighbours": [round(float(v), 4) for v in (alike.value, alike.lo, alike.hi)],
        "cpu_s": round(time.process_time() - started, 1),
    }


def _interval(values: PerUser) -> list[float]:
    found = user_mean(values)
    return [round(float(v), 4) for v in (found.value, found.lo, found.hi)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every method."""
    parser = harness.parser(__file__, __doc__, seeds=2, only=[])
    options = harness.parse(parser, arguments)
    people = People.drawn(split(load(DATA), SplitSpec()))
    record, registered = harness.Record("ranges_and_links", options, {}), audited_methods()
    if harness.chosen("links/none", options.only):
        record.put(without_uploads(people, options.seeds), "links", "none")
    for name in LINKED:
        if harness.chosen(f"links/{name}", options.only):
            record.put(linked_by(name, registered[name], people, options.seeds), "links", name)
    for name in METHODS:
        if harness.chosen(name, options.only):
            record.put(measured(name, registered[name], people, options.seeds), "methods", name)
    for name in PERSONAL if harness.chosen("tables", options.only) else ():
        read_off = [tables_read(name, people, seed) for seed in range(options.seeds)]
        alike = {truth: _interval(np.mean([aucs[truth] for aucs in read_off], axis=0)) for truth in read_off[0]}
        record.put(alike, "tables", name)
    for name in WITHOUT_ROWS:
        if harness.chosen(name, options.only):
            aucs = [inverted(name, registered[name], people, seed) for seed in range(options.seeds)]
            row = {"popularity": round(float(np.nanmean(people.popularity(~people.known))), 4)}
            record.put(row | {"auc": _interval(np.mean(aucs, axis=0))}, "inversion", name)


if __name__ == "__main__":
    main()
