"""One way of an upload to the server: an engine, single uploads or sums, and how probed uploads are laid out for it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from privfed.audit.epsilon.probes.engines import NODES, Engine, Probe, Released
from privfed.audit.epsilon.probes.uploads import PrescribedUploads, shortened
from privfed.contracts import Fidelity, Schema, share_of
from privfed.privacy import PrivacyPlan

ROUNDS = (0, 1, 2, 3, 9, 10, 39, 40)
"""Numbers of rounds: early ones and late ones, every second right after the one before."""

_MANY_HONEST = 100
"""Clients that round and noise a sum each by themselves, from which on two rounds must do."""
_MOST_USERS = 1 << 20

Inputs = Sequence[Mapping[str, Float64[Tensor, "units size"]]]
"""Of every query: block -> weighted values in clip norms, for sign +1."""


@dataclass(frozen=True, slots=True)
class Route:
    """How uploads get to the server.

    Attributes:
        engine: that carries them.
        each: whether every upload is released by itself, or the sum.
        plan: with everybody in every round.
        queries: blocks of the method's queries of a round: one, which is made twice, or those that share a clip norm.
        fidelity: of a simulation.
        seed: of the audit.
    """

    engine: Engine
    each: bool
    plan: PrivacyPlan
    queries: Sequence[Schema]
    fidelity: Fidelity
    seed: int

    @property
    def shared(self) -> bool:
        """Whether a round's queries share one clip norm, so that a claim is about all of them."""
        return len(self.queries) > 1

    @property
    def rounds(self) -> Sequence[int]:
        """Numbers of the rounds of one run."""
        shares = self.plan.mechanism.noise_shares
        costly = shares is not None and shares.min_honest > _MANY_HONEST
        return ROUNDS[:2] if costly else ROUNDS

    @property
    def in_shares(self) -> bool:
        """Whether every client of a sum rounds and noises it, so that draws are dear."""
        return self.plan.mechanism.noise_shares is not None

    @property
    def max_users(self) -> int:
        """Users with an input in one run; more shares of noise than the minimum would hide them better than claimed."""
        shares = self.plan.mechanism.noise_shares
        return _MOST_USERS if shares is None else shares.min_honest

    @property
    def min_users(self) -> int:
        """Users without whom a round is aborted."""
        return max(self.plan.mechanism.min_clients, NODES)

    def schemas(self, rows: int, columns: int) -> list[Schema]:
        """Short blocks of every query of a round."""
        short = [shortened(self.plan, schema, rows, columns) for schema in self.queries]
        return list(short) if self.shared else [short[0], short[0]]

    def claimed_queries(self, schemas: Sequence[Schema]) -> list[Schema]:
        """The queries that one claim is about: all that share a clip norm, or one."""
        return list(schemas) if self.shared else [schemas[0]]

    def released(
        self,
        schemas: Sequence[Schema],
        inputs: Inputs,
        forms: Int64[Tensor, " units"],
        takes_part: Bool[Tensor, " units"],
        address: Sequence[int],
        rounds: Sequence[int],
    ) -> Released:
        """What is released of these inputs, one row for every unit.

        Args:
            schemas: short blocks of every query.
            inputs: of the units.
            forms: representation of their tables.
            takes_part: units that are users; in a sum, slots of the others stay empty.
            address: of the noise, beside the seed.
            rounds: their numbers.
        """
        users = torch.arange(len(forms)) if self.each else takes_part.nonzero().squeeze(1)
        missing = max(self.min_users - len(users), 0)
        whose = torch.cat([users, torch.zeros(missing, dtype=torch.int64)])
        sends = torch.cat([torch.ones(len(users)), torch.zeros(missing)])
        clip = self.plan.mechanism.clip
        norm = 1.0 if clip is None else clip.norm
        values = [
            {
                name: (rows[whose].float() * (norm / schema[name].weight))
                .mul_(sends.unsqueeze(1))
                .view(-1, *schema[name].shape)
                for name, rows in query.items()
            }
            for schema, query in zip(schemas, inputs, strict=True)
        ]
        slots = torch.zeros_like(whose) if self.each else whose
        uploads = PrescribedUploads(schemas, values, slots, forms[whose], 1 if self.each else len(forms))
        digest = hashlib.sha256(repr((self.seed, self.engine.label, *address)).encode()).digest()
        probe = Probe(self.plan, self.each, rounds, int.from_bytes(digest[:7], "little"), self.fidelity)
        released = self.engine.release(probe, uploads)
        return [{name: rows[:, : len(forms)] for name, rows in query.items()} for query in released]


def shares_clip(queries: Sequence[Schema]) -> list[Schema]:
    """The queries of a round that use shares of one clip norm, where there are several; else none."""
    sharing = [query for query in queries if share_of(query) < 1]
    return sharing if len(sharing) > 1 else []
