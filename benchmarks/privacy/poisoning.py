"""Exposure of target items when some clients are malicious, with and without protections: FedMF on MovieLens-100K.

    python -m benchmarks.privacy.poisoning --seeds 2

Leave-one-out, 60 rounds of 256 clients. Malicious clients are chosen among the 943 at random: 0, 1 (.1 %), 9 (1 %) or
47 (5 %); what they did before is gone, and nobody measures them. They promote three items that 5 to 20 people have.
Crafted uploads make up for the mean, as their authors do: each is multiplied by the clients of a round over the
malicious ones among them. Attacks are ours, after the ideas of the papers that `attacks.poisoning` names; where some
interactions are known, these are 5 % of those of 128 people.

    none         uploads and means as they are
    long dropped single uploads are seen, and those longer than twice the median of the round are left out
    clip         each upload is clipped to L2 norm 20, single uploads are seen
    secure sum   the same clip, and only sums are seen, so nobody can be left out
    noise        the same inside sums with noise in shares, epsilon 8, those of 128 people suffice

`exposure` is the share of pairs of an honest person and a target, which the person does not have, in which it is
among the ten items recommended first; `hit` is HR@10 of honest people over the whole catalogue. Means over seeds and
targets; popularity recommends none of the targets, and its `hit` stands beside them. Results go to
`benchmarks/results/poisoning.json`. One process, one thread.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from attacks.poisoning import FedRecAttack, PipAttack, PoisonedRows, RandomUsers, bandwagon_profiles, boosted, exposure
from benchmarks import harness
from privfed.audit.active.malicious_clients import MaliciousClients
from privfed.audit.active.tampered_clients import Step, TamperedClients
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.evaluation import Protocol
from privfed.federation import Call, Clients, Message
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig
from privfed.updates import ClientUpdates

DATA, METHOD, ROUNDS, COHORT, CLIP, LENGTH = "ml-100k", {"name": "fedmf"}, 60, 256, 20.0, 10
SHARES = (0.0, 0.001, 0.01, 0.05)
BANDWAGON, PROFILE = "bandwagon", 60
KNOWN, PUBLIC, TARGETS, OWNERS = 128, 0.05, 3, (5, 20)
PLANS = {
    "none": "none",
    "long dropped": "none",
    "clip": f"clip:clip_norm={CLIP},order=2",
    "secure sum": f"secure-sum:clip_norm={CLIP}",
    "noise": f"distributed-gaussian:clip_norm={CLIP},epsilon=8,n_min_honest=128",
}
LONG = 2.0
"""Over the median norm of a round, above which an upload is dropped where that is a protection."""


class WithoutLong(TamperedClients):
    """What is left of a round where uploads longer than twice their median are dropped."""

    def answer(self, step: Step, call: Call, message: Message) -> ClientUpdates:
        """Updates, zeros in the place of long ones."""
        updates = step(call, message)
        norms = updates.norms(2)
        return updates.scale_((norms <= LONG * norms.median()).float())


@dataclass(frozen=True, eq=False)
class World:
    """Who is malicious and what they promote.

    Attributes:
        split: with nothing done to it.
        malicious: users, ascending.
        targets: items, ascending.
        seed: of everything.
    """

    split: Split
    malicious: Int64[np.ndarray, " malicious"]
    targets: Int64[np.ndarray, " k"]
    seed: int

    @classmethod
    def drawn(cls, whole: Split, share: float, seed: int) -> "World":
        """The same targets, whoever is malicious; a larger share holds the smaller one."""
        rng = np.random.default_rng(seed)
        owned = whole.train.popularity()
        rare = np.flatnonzero((owned >= OWNERS[0]) & (owned <= OWNERS[1]))
        targets = np.sort(rng.choice(rare, TARGETS, replace=False))
        users = whole.train.n_users
        return cls(whole, np.sort(rng.permutation(users)[: round(share * users)]), targets, seed)

    @property
    def honest(self) -> Bool[np.ndarray, "users"]:
        """Everybody else."""
        honest = np.ones(self.split.train.n_users, dtype=bool)
        honest[self.malicious] = False
        return honest

    def poisoned(self, attack: str) -> Split:
        """The split where malicious clients have what they train on, which is nothing unless profiles are made up."""
        train, users = self.split.train, self.split.train.n_users
        kept = self.honest[train.owners]
        user, item = train.owners[kept], train.items[kept]
        if attack == BANDWAGON and len(self.malicious):
            profiles = bandwagon_profiles(
                train.popularity().astype(np.float64), self.targets, len(self.malicious), PROFILE, self.seed
            )
            row, more = np.nonzero(profiles)
            user, item = np.concatenate([user, self.malicious[row]]), np.concatenate([item, more])
        elif len(self.malicious):
            # A client needs an item to be asked at all.
            user = np.concatenate([user, self.malicious])
            item = np.concatenate([item, np.full(len(self.malicious), self.targets[0])])
        return replace(self.split, train=Histories.from_pairs(user, item, users, train.n_items), ratings=None)

    def crafted(self, attack: str) -> PoisonedRows | None:
        """The attack of that name; None where malicious clients train honestly."""
        popularity = self.split.train.popularity().astype(np.float64)
        rng = np.random.default_rng(self.seed)
        known = self.split.train.mask(rng.choice(np.flatnonzero(self.honest), KNOWN, replace=False))
        public = known & (rng.random(known.shape) < PUBLIC)
        made: dict[str, PoisonedRows] = {
            RandomUsers.name: RandomUsers(),
            PipAttack.name: PipAttack(popularity),
            FedRecAttack.name: FedRecAttack(public),
        }
        return made.get(attack)


ATTACKS = {
    BANDWAGON: "Mobasher et al., TOIT 2007",
    RandomUsers.name: RandomUsers.source,
    FedRecAttack.name: FedRecAttack.source,
    PipAttack.name: PipAttack.source,
}


def misled(clients: Clients, world: World, attack: str, clients_expected: float) -> Clients:
    """The clients with the malicious ones among them."""
    crafted = world.crafted(attack)
    if crafted is None or not len(world.malicious):
        return clients

    def poison(message: Message, round: int, malicious: int) -> Float[Tensor, "k width"]:
        change = crafted.change(message.shared["items"].numpy(), world.targets, 1000 * world.seed + round)
        return torch.from_numpy(boosted(change, clients_expected, malicious)).float()

    return MaliciousClients(
        clients, torch.from_numpy(world.malicious), "items", torch.from_numpy(world.targets), poison
    )


def measured(world: World, attack: str, protection: str) -> dict[str, float]:
    """Train among malicious clients, and say whom the targets reach."""
    started = time.process_time()
    plan = PLANS[protection]
    config = ExperimentConfig(
        data=DATA,
        split=world.split.spec,
        method=METHOD,
        privacy=PrivacyPlan.parse(f"{plan}{',' if ':' in plan else ':'}sampling.kind=fixed,sampling.size={COHORT}"),
        protocol=Protocol(state="received"),
        rounds=ROUNDS,
        evaluate_every=ROUNDS,
        seed=world.seed,
        fidelity="analytic",
    )
    assembly = Assembly(config, world.poisoned(attack))
    clients = misled(assembly.clients, world, attack, COHORT)
    simulation = Simulation(
        WithoutLong(clients) if protection == "long dropped" else clients,
        assembly.config.privacy,
        assembly.n_users,
        assembly.streams,
        Ledger(assembly.config.privacy, assembly.n_users, None, run=assembly.config.digest()),
        chunk=COHORT,
        fidelity=config.fidelity,
    )
    for t in range(ROUNDS):
        simulation.run(assembly.server, t)
    honest = np.flatnonzero(world.honest)
    users = torch.from_numpy(honest)
    scores = assembly.clients.score(users, assembly.server.public().addressed_to(users), None, None).numpy()
    had = world.split.train.mask(honest) | world.split.valid.mask(honest)
    return {
        "exposure": round(exposure(scores, had, world.targets, LENGTH), 4),
        "hit": round(_hit(scores, had, world.split.test.mask(honest)), 4),
        "cpu_s": round(time.process_time() - started, 1),
    }


def popularity(world: World) -> dict[str, Any]:
    """What one list of popular items does."""
    everybody = np.arange(world.split.train.n_users)
    scores = np.broadcast_to(world.split.train.popularity(), (len(everybody), world.split.train.n_items))
    had = world.split.train.mask(everybody) | world.split.valid.mask(everybody)
    scores = scores.astype(np.float64)
    return {
        "protection": "popularity",
        "attack": "nobody",
        "share": 0.0,
        "seed": 0,
        "exposure": round(exposure(scores, had, world.targets, LENGTH), 4),
        "hit": round(_hit(scores, had, world.split.test.mask(everybody)), 4),
    }


def _hit(
    scores: Float[np.ndarray, "users items"],
    had: Bool[np.ndarray, "users items"],
    held: Bool[np.ndarray, "users items"],
) -> float:
    """Share of people whose held-out item is among the ten recommended first."""
    ranked = np.where(had, -np.inf, scores)
    best = np.argpartition(-ranked, LENGTH, axis=1)[:, :LENGTH]
    hits = np.take_along_axis(held, best, axis=1).sum(axis=1)
    return float(hits[held.sum(axis=1) > 0].mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every attack, share and protection."""
    parser = harness.parser(__file__, __doc__, seeds=2, only=[])
    options = harness.parse(parser, arguments)
    whole, record = split(load(DATA), SplitSpec()), harness.Record("poisoning", options, [])
    if not record.has(protection="popularity"):
        record.add(popularity(World.drawn(whole, 0.0, 0)))
    for protection in PLANS:
        for attack in ATTACKS:
            for share in SHARES:
                name = "nobody" if share == 0 else attack
                key: dict[str, Any] = {"protection": protection, "attack": name, "share": share}
                for seed in range(options.seeds):
                    if record.has(**key, seed=seed) or not harness.chosen(f"{protection}/{name}", options.only):
                        continue
                    record.add(key | {"seed": seed} | measured(World.drawn(whole, share, seed), attack, protection))


if __name__ == "__main__":
    main()
