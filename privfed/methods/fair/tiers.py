"""Tiers of a population as server and clients see them: levels, users of each, and how tables are kept.

A server knows the number of users and nothing else; where capacities go by activity it does not know whose is
which, only how many of each there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from privfed.compute.devices import placed
from privfed.methods.fair.config import DEEPEST, FairConfig
from privfed.methods.fair.memory import working_bytes
from privfed.methods.fair.spaces import Factors, FirstColumns, Hashed, TableSpace
from privfed.methods.fair.subspaces import (
    Capacities,
    CapacityError,
    Columns,
    LowRankTables,
    Scheme,
    Subspace,
    SubspaceMemory,
)

SEEDS_APART = 104_729
"""Distance of the seeds of two hash functions; tables of one model have seeds closer to each other."""

MOST_SLOTS = 2**31 - 1
"""Stored values of all tables that training numbers in int32."""

Spaces = Mapping[str, TableSpace]
"""How one tier keeps each table."""


@dataclass(frozen=True, slots=True, eq=False)
class Tiers:
    """The tiers of a run.

    Attributes:
        config: its settings.
        n_items: size of the catalogue.
        n_users: of the population.
        levels: that somebody has, the largest devices first; level g is a compression of 2^g.
        members: users of each.
        subspaces: each level's subspace of each table.
        spaces: how devices of each level keep each table.
        of_user: level of every user; None on a server that cannot know it.
        hash_of_user: which of several hash functions every user's device has.
    """

    config: FairConfig
    n_items: int
    n_users: int
    levels: tuple[int, ...]
    members: Mapping[int, int]
    subspaces: Mapping[int, Mapping[str, Subspace]]
    spaces: Mapping[int, Spaces]
    of_user: Int64[Tensor, " users"] | None
    hash_of_user: Int64[Tensor, " users"]

    @classmethod
    def from_config(
        cls, config: FairConfig, n_users: int, n_items: int, activity: Int64[np.ndarray, " users"] | None = None
    ) -> "Tiers":
        """The tiers of a population.

        Args:
            config: settings.
            n_users: of the population.
            n_items: size of the catalogue.
            activity: training interactions of every user, where the caller knows them.

        Raises:
            CapacityError: budgets in which nothing fits, or more values on one device than int32 numbers.
            SubspaceError: a tier whose compression leaves nothing.
        """
        scheme, deepest = scheme_of(config, n_items)
        # Who counts but does not know activities takes any order: the shares of a scheme, not the order, fix how many
        # users each level has.
        known = config.assigned != "activity" or activity is not None
        by = config.assigned if known else "pseudonym"
        capacities = Capacities.assign(
            scheme, n_users, by, config.capacity_seed, activity if by == "activity" else None
        )
        levels, members, tables = capacities.tiers, capacities.members, config.model.tables
        seeds = config.seeds
        subspaces = {
            level: {
                name: Subspace(n_items, config.dim, level, deepest, seeds[name], config.subspace) for name in tables
            }
            for level in levels
        }
        spaces = {level: {name: _space(config, space) for name, space in of.items()} for level, of in subspaces.items()}
        # The sum over tables: training numbers the slots of all of them together.
        largest = max(sum(space.size for space in of.values()) for of in spaces.values())
        if largest > MOST_SLOTS:
            raise CapacityError(
                f"{n_items} items in {len(tables)} tables of width {config.dim} were given, and the largest devices "
                f"would keep {largest} values, but training numbers at most {MOST_SLOTS}: use a smaller dim or a "
                f"scheme without 1x"
            )
        of_user = placed(capacities.levels) if known else None
        hash_of_user = torch.arange(n_users) % config.hashes
        return cls(config, n_items, n_users, levels, members, subspaces, spaces, of_user, hash_of_user)

    def hosting(self, users: Int64[Tensor, " hosted"]) -> "Tiers":
        """The same tiers for a process that hosts `users` only and numbers them from 0."""
        return replace(self, of_user=self.levels_of(users), hash_of_user=self.hash_of_user[users])

    @property
    def training(self) -> tuple[int, ...]:
        """Levels whose devices train."""
        return self.levels[:1] if self.config.variant == "full_trn" else self.levels

    @property
    def expected(self) -> dict[int, float]:
        """Share of the population that trains at each level."""
        return {level: self.members[level] / self.n_users for level in self.training}

    def levels_of(self, users: Int64[Tensor, " some"]) -> Int64[Tensor, " some"]:
        """The level of each of some users.

        Raises:
            CapacityError: capacities go by activity, which the server does not know.
        """
        if self.of_user is None:
            raise CapacityError(
                "levels of users were asked for on the server, but capacities by activity are known on devices only: "
                "ask the clients, or assign capacities at random"
            )
        return self.of_user[users]

    def spaces_at(self, level: int, hash: int) -> Spaces:
        """How devices of a level and a hash function keep each table; at level 0 every hash keeps all of it."""
        if not (level and hash):
            return self.spaces[level]
        return {
            name: _space(self.config, replace(subspace, seed=subspace.seed + hash * SEEDS_APART))
            for name, subspace in self.subspaces[level].items()
        }

    def by_hash(self, level: int, users: Int64[Tensor, " some"]) -> list[tuple[int, Int64[Tensor, " few"]]]:
        """Hash functions of users of one level, and positions of those who have each."""
        hashes = self.hash_of_user[users]
        different = sorted(set(hashes.tolist())) if level else [0]
        return [(one, (hashes == one).nonzero().squeeze(1) if level else torch.arange(len(users))) for one in different]

    def hash_shares(self, level: int) -> dict[int, float]:
        """Share of a level's users that has each hash function; equal ones where their levels are not known."""
        if self.config.hashes == 1 or not level:
            return {0: 1.0}
        everybody = self.hash_of_user if self.of_user is None else self.hash_of_user[self.of_user == level]
        counts = torch.bincount(everybody, minlength=self.config.hashes)
        return {hash: count / len(everybody) for hash, count in enumerate(counts.tolist()) if count}

    def download_bytes(self, level: int) -> int:
        """Bytes that a device of this level downloads: its tables as it keeps them, and the layers."""
        numbers = self.config.model.size
        for space in self.spaces[level].values():
            numbers += space.size + (space.kept * self.config.dim if isinstance(space, Factors) else 0)
        # float32.
        return 4 * numbers

    def device_bytes(self) -> Float64[Tensor, " users"]:
        """Bytes that every device downloads; the mean for all where their levels are not known."""
        each = {level: float(self.download_bytes(level)) for level in self.levels}
        if self.of_user is None:
            mean = sum(each[level] * count for level, count in self.members.items()) / self.n_users
            return torch.full((self.n_users,), mean, dtype=torch.float64)
        # Indexed by level, because levels need not be consecutive.
        by_level = torch.zeros(self.levels[-1] + 1, dtype=torch.float64)
        by_level[list(each)] = torch.tensor(list(each.values()), dtype=torch.float64)
        return by_level[self.of_user]


def scheme_of(config: FairConfig, n_items: int) -> tuple[Scheme, int]:
    """The scheme of levels, and its deepest level.

    `hom` has everybody at the deepest level of the scheme and `fedavg` at level 0. Budgets make do with as few levels
    as they can, because a table is filled up to a multiple of 2^levels.

    Raises:
        CapacityError: budgets in which nothing fits.
    """
    scheme = Scheme.parse(config.scheme) if config.budgets is None else _scheme_of_budgets(config, n_items)
    if config.variant == "fedavg":
        scheme = Scheme.equal([0])
    if config.variant == "hom":
        scheme = Scheme.equal([max(scheme.levels)])
    return scheme, max(scheme.levels)


def _scheme_of_budgets(config: FairConfig, n_items: int) -> Scheme:
    model, budgets = config.model, config.budgets or ()
    # The deepest level decides how far tables are padded, so what fits depends on it: the least padding first.
    for deepest in range(DEEPEST + 1):
        tables = [Subspace(n_items, config.dim, 0, deepest, config.seeds[name]) for name in model.tables]
        others = model.size + len(model.tables) * config.dim
        memory = SubspaceMemory(tables, others, working=working_bytes(config))
        try:
            return Scheme.of_budgets(budgets, memory)
        except CapacityError as error:
            refused = error
    raise refused


def _space(config: FairConfig, subspace: Subspace) -> TableSpace:
    rows, width, compression = subspace.rows, subspace.width, 1 << subspace.level
    if config.variant == "heterofl":
        return FirstColumns(Columns.compressed(rows, width, compression))
    # An uncompressed device keeps the table itself; at full rank, factors would be two tables in place of one.
    if config.variant == "fedhm" and subspace.level:
        return Factors(LowRankTables.compressed(rows, width, compression, config.rank))
    return Hashed(subspace, config.reduce_offset)
