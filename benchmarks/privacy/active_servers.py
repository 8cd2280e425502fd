"""What a lying server reads that a curious one does not, for every method whose server asks about items.

    python -m benchmarks.privacy.active_servers --seeds 2

MovieLens-100K, leave-one-out. Each method trains honestly (10 rounds of 128 clients; methods that upload once do not
train); then a server asks once more, under the plan of a column. AUC of training items against items never seen, mean
over people, whole catalogue. Of 48 audited people the attacks, crafts and lies are chosen on those of one half, whose
histories the adversary knows, and measured on the others; intervals are by person, over all seeds. Columns:

    uploads   single uploads, nothing protects them: as sent, and the best crafted model
    sums      a secure sum of 32 people: as sent; the best crafted model for all; a small roster, as few as the plan
              opens (3); unequal models, which silence all but one
    noise     noise in shares inside the sum, epsilon 8 for this one query, those of 16 people suffice: as sent, and
              the best of all lies and crafts

A minimum cohort of 32 refuses small rosters; signed terms refuse these and unequal models, which leaves one model for
all. Sums are simulated analytically. Results go to `benchmarks/results/active_servers.json`. One process, one thread.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attacks import Knowledge, ServerView, Targets
from attacks.active import CRAFTS, HONEST, Craft
from attacks.evaluation.choice import best_on
from attacks.membership import MultiRoundVote, PopularityGuesser, RankOneSign
from attacks.metrics import user_auc, user_mean
from attacks.views import PerUser, Scores, UserMask
from benchmarks import harness
from privfed.audit.active.honest_run import HonestRun, about_items, trained
from privfed.audit.active.lies import CRAFTED, LIES, DeviceTerms, Lie
from privfed.audit.active.lying_server import LyingServer, item_view
from privfed.audit.active.silenced_clients import stays_silent
from privfed.audit.attack_runs.attack_run import applicable
from privfed.audit.attack_runs.selection import selection_half
from privfed.data import Split, SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.federation import Message
from privfed.guards.client_guard import BrokenUploadError
from privfed.methods import ItemBlocks, Method, registry
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

DATA, ROUNDS, CLIENTS, COHORT, AUDITED = "ml-100k", 10, 128, 32, 48
NOISE = "distributed-gaussian:epsilon=8,n_min_honest=16"
PLANS = ("none", "secure-sum", NOISE)
SMALL, UNEQUAL = LIES[1], LIES[2]
Column = tuple[str, str, tuple[Lie, ...], tuple[Craft, ...]]
COLUMNS: tuple[Column, ...] = (
    ("uploads, curious", "none", (CRAFTED,), (HONEST,)),
    ("uploads, active", "none", (CRAFTED,), CRAFTS),
    ("sums, curious", "secure-sum", (CRAFTED,), (HONEST,)),
    ("sums, one model", "secure-sum", (CRAFTED,), CRAFTS),
    ("sums, small roster", "secure-sum", (SMALL,), CRAFTS),
    ("sums, unequal models", "secure-sum", (UNEQUAL,), CRAFTS),
    ("noise, curious", NOISE, (CRAFTED,), (HONEST,)),
    ("noise, active", NOISE, LIES, CRAFTS),
)


def audited_methods() -> dict[str, Method]:
    """Methods that are not told everything by design: histories, or examinations beside public purchases.

    Those that ask what another one asks, at every refresh of a year, are left out, too.
    """
    registered = registry.methods()
    refreshed = {method.refreshed for method in registered.values()}
    return {
        name: method
        for name, method in registered.items()
        if name not in refreshed
        and not method.traits.public_target
        and not (method.traits.release == "individual" and method.traits.uploads_once)
    }


@dataclass(frozen=True, eq=False)
class People:
    """The audited people of a split.

    Attributes:
        split: of the data.
        users: their numbers, ascending.
    """

    split: Split
    users: Int64[np.ndarray, "users"]

    @classmethod
    def drawn(cls, split: Split) -> "People":
        """The same people for every method and seed."""
        active = np.flatnonzero(split.train.counts)
        return cls(split, np.sort(np.random.default_rng(0).choice(active, AUDITED, replace=False)))

    @cached_property
    def known(self) -> UserMask:
        """Those whose histories the adversary knows."""
        return selection_half(self.users)

    @cached_property
    def game(self) -> Targets:
        """Training items against items never seen."""
        return Targets.trained_vs_never_seen(self.split.train.mask(self.users), self.split.seen.mask(self.users))

    @cached_property
    def knowledge(self) -> Knowledge:
        """Popularity."""
        return Knowledge(self.split.train.popularity().astype(np.float64))

    def auc(self, scores: Scores, here: UserMask) -> PerUser:
        """AUC of those who are here, NaN for the others."""
        auc: PerUser = user_auc(scores, self.game.members, self.game.candidates & here[:, None])
        return auc

    def popularity(self, here: UserMask) -> PerUser:
        """AUC of the popularity guesser."""
        return self.auc(np.broadcast_to(self.knowledge.popularity, self.game.members.shape), here)

    def cohort(self, *first: int) -> Int64[Tensor, " members"]:
        """Some users, and as many others as make a cohort."""
        others = np.setdiff1d(np.flatnonzero(self.split.train.counts), first)
        more = np.random.default_rng(first).choice(others, COHORT - len(first), replace=False)
        return torch.from_numpy(np.concatenate([np.array(first), more]))


@dataclass(frozen=True, eq=False)
class Stage:
    """A lying server under one plan, and how what comes back is read.

    Attributes:
        server: that asks.
        blocks: of the query that say something about items.
        people: audited.
        silences: whether a broken model silences clients of this method.
    """

    server: LyingServer
    blocks: ItemBlocks
    people: People
    silences: bool

    def allows(self, lie: Lie) -> bool:
        """Whether the lie works where devices insist on nothing besides the plan."""
        plan = self.server.assembly.config.privacy
        return lie.refusal(plan, DeviceTerms(), COHORT) is None and (self.silences or not lie.unequal_models)

    def aucs(self, lie: Lie, craft: Craft, here: UserMask) -> dict[str, PerUser]:
        """AUC by attack of the people who are here; none where training breaks down on the crafted model."""
        scored = self.scores(lie, craft, here)
        return {name: self.people.auc(scores, here) for name, scores in scored.items()}

    def scores(self, lie: Lie, craft: Craft, here: UserMask) -> dict[str, Scores]:
        """Scores by attack of the people who are here, zeros for the others."""
        message, people = self.server.crafted(craft), self.people
        try:
            if self.server.assembly.config.privacy.unprotected:
                scored = self._singly(message, people.users[here])
            elif lie.isolates:
                cohorts = {int(user): people.cohort(int(user)) for user in people.users[here]}
                sums = [blocks for _, blocks in self.server.isolated(message, lie, cohorts)]
                scored = self._read(item_view(self.blocks, {n: torch.stack([s[n] for s in sums]) for n in sums[0]}))
            else:
                halves = np.array_split(people.users[here], 2)
                summed = [self._of_sum(message, people.cohort(*half.tolist()), len(half)) for half in halves]
                scored = {name: np.concatenate([one[name] for one in summed]) for name in summed[0]}
        except BrokenUploadError:
            return {}
        return {name: _placed(scores, here) for name, scores in scored.items()}

    def _singly(self, message: Message, users: np.ndarray) -> dict[str, Scores]:
        asked = torch.from_numpy(users)
        view = item_view(self.blocks, self.server.uploads(message, asked))
        direction = self.server.assembly.registered.attack_surface.proximal_direction
        if direction is not None:
            pull = direction(message.addressed_to(asked), torch.arange(len(asked)))
            view = replace(view, proximal=pull.float().numpy())
        return self._read(view)

    def _of_sum(self, message: Message, cohort: Tensor, people: int) -> dict[str, Scores]:
        total = self.server.sum(message, cohort.sort().values)
        read = self._read(item_view(self.blocks, {name: values.unsqueeze(0) for name, values in total.items()}))
        return {name: np.broadcast_to(scores, (people, scores.shape[1])) for name, scores in read.items()}

    def _read(self, view: ServerView) -> dict[str, Scores]:
        attacks = [a for a in applicable(self.blocks) if not isinstance(a, PopularityGuesser | MultiRoundVote)]
        attacks.append(RankOneSign("popularity"))
        names = [*(attack.name for attack in attacks[:-1]), "rank-1 sign by popularity"]
        return {name: attack.score(view, self.people.knowledge) for name, attack in zip(names, attacks, strict=True)}


def _placed(scores: Scores, here: UserMask) -> Scores:
    whole = np.zeros((len(here), scores.shape[1]))
    whole[here] = scores
    return whole


def chosen_and_measured(stage: Stage, lies: Sequence[Lie], crafts: Sequence[Craft]) -> tuple[PerUser, str] | None:
    """AUC of unknown people by what was best on known ones, and its name; None where no lie works."""
    people, tried = stage.people, {}
    allowed = [lie for lie in lies if stage.allows(lie)]
    for lie in allowed:
        for craft in crafts:
            for attack, auc in stage.aucs(lie, craft, people.known).items():
                tried[lie, craft, attack] = auc
    if not tried:
        return None
    (lie, craft, attack), reverse = best_on(tried, people.known)
    auc = stage.aucs(lie, craft, ~people.known)[attack]
    name = f"{lie.name}, {craft.name}, {attack}{' in reverse' if reverse else ''}"
    return (1 - auc if reverse else auc), name


def stages(name: str, run: HonestRun, honest: Assembly, people: People, seed: int) -> Mapping[str, Stage]:
    """The server of every plan that the method runs behind."""
    found = about_items(honest, run.queries)
    if found is None:
        return {}
    query, blocks = found
    silences = stays_silent(honest.clients, query, torch.from_numpy(people.users[:4]), honest.streams, ROUNDS + 1)
    made: dict[str, Stage] = {}
    for words in reversed(PLANS):
        norm = 1.0 if NOISE not in made else _clip_norm(made[NOISE].server)
        try:
            assembly = assembled(
                name, f"secure-sum:clip_norm={norm!r}" if words == "secure-sum" else words, people, seed
            )
        except PlanError:
            continue
        assembly.clients.load(run.devices)
        made[words] = Stage(LyingServer(assembly, query), blocks, people, silences)
    return made


def _clip_norm(server: LyingServer) -> float:
    clip = server.assembly.config.privacy.mechanism.clip
    return 1.0 if clip is None else clip.norm


def assembled(name: str, words: str, people: People, seed: int, clients: int = COHORT) -> Assembly:
    """A method behind a plan."""
    sampling = f"sampling.kind=fixed,sampling.size={clients}"
    config = ExperimentConfig(
        data=DATA,
        split=people.split.spec,
        method={"name": name},
        privacy=PrivacyPlan.parse(f"{words}{',' if ':' in words else ':'}{sampling}"),
        protocol=Protocol(),
        rounds=1,
        evaluate_every=1,
        seed=seed,
        fidelity="analytic",
    )
    return Assembly(config, people.split)


def measured(name: str, method: Method, people: People, seeds: int) -> dict[str, Any]:
    """Every column of a method."""
    started = time.process_time()
    aucs: dict[str, list[PerUser]] = {}
    choices: dict[str, list[str]] = {}
    for seed in range(seeds):
        honest = assembled(name, "none", people, seed, CLIENTS)
        run = trained(honest, 0 if method.traits.uploads_once else ROUNDS)
        at = stages(name, run, honest, people, seed)
        for column, plan, lies, crafts in COLUMNS:
            if plan in at and (one := chosen_and_measured(at[plan], lies, crafts)) is not None:
                aucs.setdefault(column, []).append(one[0])
                choices.setdefault(column, []).append(one[1])
    row: dict[str, Any] = {"people": int((~people.known).sum()), "seeds": seeds}
    row["popularity"] = round(float(np.nanmean(people.popularity(~people.known))), 4)
    row["columns"] = {column: _summary(of_seeds, choices[column]) for column, of_seeds in aucs.items()}
    return row | {"cpu_s": round(time.process_time() - started, 1)}


def _summary(of_seeds: list[PerUser], choices: list[str]) -> dict[str, Any]:
    auc = user_mean(np.mean(of_seeds, axis=0))
    return {"auc": [round(float(v), 4) for v in (auc.value, auc.lo, auc.hi)], "chosen": choices}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every method."""
    parser = harness.parser(__file__, __doc__, seeds=2, only=[])
    options = harness.parse(parser, arguments)
    people = People.drawn(split(load(DATA), SplitSpec()))
    record = harness.Record("active_servers", options, {})
    for name, method in audited_methods().items():
        if harness.chosen(name, options.only):
            record.put(measured(name, method, people, options.seeds), name)


if __name__ == "__main__":
    main()
