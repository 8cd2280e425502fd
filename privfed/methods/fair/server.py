"""The server of FAIR: item tables and layers, sums of deltas, and the effect of the tiers on the server's tables.

Averaging parameters, as published, gives theta+ = sum_i w_i S_i (R_i theta + dpsi_i). With W_g the weight of tier g and
P_g = S_g R_g that is

    theta+ = theta + sum_i w_i S_i dpsi_i - sum_g W_g (theta - P_g theta),

a mean of what clients learnt, and a second term that needs nobody's data beyond W_g. So clients upload deltas and the
server applies `proximal` times the second term: 1 is the published rule, 0 keeps what small devices cannot hold.

The first term as one sum hides nobody better than its tier does: (I - P_g) takes all tiers from g on out of it. So a
minimum number of members (`min_tier`) is meaningful there too.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams, Total
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.message import COUNTS, PLACES, SAMPLES, TierMessage
from privfed.methods.fair.neumf import initial_layers
from privfed.methods.fair.spaces import from_block, rows_of
from privfed.methods.fair.subspaces import Grouping, group_tiers
from privfed.methods.fair.tiers import Tiers
from privfed.methods.method import PlannedQuery, PublicInfo


class TierSchema(dict[str, Block]):
    """The blocks of a training step, and how many items the tables behind them have.

    Attributes:
        n_items: of the catalogue; blocks of tiers do not show it.
    """

    def __init__(self, blocks: Mapping[str, Block], n_items: int) -> None:
        super().__init__(blocks)
        self.n_items = n_items


class FairServer:
    """The server."""

    def __init__(self, config: FairConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, self.model = config, config.model
        self.tiers = Tiers.from_config(config, public_info.n_users, public_info.n_items)
        self._device_bytes = self.tiers.device_bytes()
        size = public_info.n_items * config.dim
        flat = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], size * len(self.model.tables))[0]
        tables = flat.view(-1, public_info.n_items, config.dim).mul_(config.initial_scale).to(torch.get_default_dtype())
        names = [f"items.{name}" for name in self.model.tables]
        self.parameters = {name: table.clone() for name, table in zip(names, tables, strict=True)}
        self.parameters |= initial_layers(
            self.model, streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], self.model.size)[0]
        )
        self.schema: Schema = TierSchema(self._blocks(), public_info.n_items)
        self.tiers_schema: Schema = {COUNTS: Block((len(self.tiers.levels),), "integer", bound=1, counts=True)}

    def _blocks(self) -> dict[str, Block]:
        """Blocks that a client may upload."""
        blocks: dict[str, Block] = {}
        if self.config.placement == "server":
            blocks = {name: Block(tuple(p.shape)) for name, p in self.parameters.items() if name.startswith("items.")}
        else:
            for level in self.tiers.levels:
                for name, subspace in self.tiers.subspaces[level].items():
                    shape = (rows_of(subspace), self.config.dim)
                    blocks[f"tier.{level}.{name}"] = Block(shape, weight=subspace.weight)
        blocks |= {name: Block(shape) for name, shape in self.model.shapes().items()}
        tiers = (len(self.tiers.levels),)
        if self.config.weights == "samples":
            blocks[SAMPLES] = Block(tiers, "integer", bound=self.tiers.n_items, divides=True)
        elif self.config.shares == "realised" and not self.config.counts_tiers_first:
            blocks[COUNTS] = Block(tiers, "integer", bound=1, counts=True)
        return blocks

    def round(self, federation: Federation, t: int) -> None:
        """Count the members of tiers where that decides sums, then average deltas and apply the second term."""
        cohort = federation.sample_cohort(t)
        grouping = None
        if self.config.counts_tiers_first:
            counted = federation.aggregate("tiers", cohort, Message({}), self.tiers_schema).sums[COUNTS]
            trains = self.tiers.training
            counts = {
                level: count if level in trains else 0
                for level, count in zip(self.tiers.levels, counted.tolist(), strict=True)
            }
            grouping = group_tiers(counts, self.config.min_clients, self.config.short)
            if not any(grouping.sums.values()):
                return
        total = federation.aggregate("train", cohort, self._message(grouping), self.schema)
        self._apply(total, grouping)

    def _apply(self, total: Total, grouping: Grouping | None) -> None:
        mass, shares = self._shares(total, grouping)
        if mass <= 0:
            return
        new = {name: self.parameters[name] + total.sums[name] / mass for name in self.model.shapes()}
        for name in self.model.tables:
            table = self.parameters[f"items.{name}"]
            if self.config.placement == "server":
                added = total.sums[f"items.{name}"]
            else:
                parts = (
                    from_block(total.sums[f"tier.{level}.{name}"], of[name])
                    for level, of in self.tiers.subspaces.items()
                )
                added = sum(parts, torch.zeros_like(table))
            new[f"items.{name}"] = table + added / mass
            if self.config.proximal and self.config.variant != "heterofl":
                new[f"items.{name}"] -= self.config.proximal * self._missing(name, table, shares)
        if self.config.variant == "heterofl":
            new = self._over_holders(new, shares)
        self.parameters = {name: new[name] for name in self.parameters}

    def _shares(self, total: Total, grouping: Grouping | None) -> tuple[float, dict[int, float]]:
        """Divisor of sums, and the share of it that each level trained: realised where counted, else expected."""
        trains = self.tiers.training
        if self.config.weights == "samples":
            counted = dict(zip(self.tiers.levels, total.sums[SAMPLES].tolist(), strict=True))
        elif grouping is not None:
            counted = dict.fromkeys(self.tiers.levels, 0)
            for level, basis in grouping.basis.items():
                if basis is not None:
                    counted[trained_at(level, basis)] += grouping.counts[level]
        elif COUNTS in total.sums:
            counted = dict(zip(self.tiers.levels, total.sums[COUNTS].tolist(), strict=True))
        else:
            expected = self.tiers.expected
            part = sum(expected.values())
            return max(total.denominator, 1.0) * part, {level: share / part for level, share in expected.items()}
        mass = float(sum(counted[level] for level in trains))
        return mass, {level: counted[level] / mass for level in trains} if mass else {}

    def _missing(
        self, name: str, table: Float[Tensor, "items dim"], shares: Mapping[int, float]
    ) -> Float[Tensor, "items dim"]:
        """Sum over tiers of their share of what they do not hold of the table."""
        missing = torch.zeros_like(table)
        for level, share in shares.items():
            if level and share:
                for hash, part in self.tiers.hash_shares(level).items():
                    space = self.tiers.spaces_at(level, hash)[name]
                    missing.add_(table - space.project(table), alpha=share * part)
        return missing

    def _over_holders(self, new: Mapping[str, Tensor], shares: Mapping[int, float]) -> dict[str, Tensor]:
        """Means over the devices that hold a coordinate; one that nobody held stays (HeteroFL)."""
        column = torch.arange(self.config.dim)
        held = {name: torch.zeros(self.config.dim) for name in self.model.tables}
        for level, share in shares.items():
            for name, space in self.tiers.spaces[level].items():
                held[name] += share * (column < space.kept)
        holders = {f"items.{name}": share for name, share in held.items()}
        everybody = torch.ones(self.config.dim)
        holders["mlp.W0"] = torch.cat([everybody, held["mlp"]]).unsqueeze(1)
        if self.model.gmf:
            holders["predict.w"] = torch.cat([held["gmf"], torch.ones(self.model.hidden[-1])])
        out = dict(new)
        for name, held_by in holders.items():
            before = self.parameters[name]
            mean = (new[name] - before) / held_by.clamp(min=1e-12)
            out[name] = torch.where(held_by > 0, before + mean, before)
        return out

    def public(self) -> TierMessage:
        """Item tables and layers."""
        return self._message(None)

    def _message(self, grouping: Grouping | None) -> TierMessage:
        shared = dict(self.parameters)
        if grouping is not None:
            rows = [_place(level, grouping.basis[level]) for level in self.tiers.levels]
            shared[PLACES] = torch.tensor(rows)
        return TierMessage(shared, device_bytes=self._device_bytes)

    def program(self) -> list[PlannedQuery]:
        """Both queries of a round where tiers are counted first, else one."""
        first = [PlannedQuery(self.tiers_schema, 0)] if self.config.counts_tiers_first else []
        return [*first, PlannedQuery(self.schema, round(float(self.tiers.device_bytes().mean())))]

    def state(self) -> dict[str, Tensor]:
        """All public parameters."""
        return dict(self.parameters)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = dict(state)


def trained_at(level: int, basis: int) -> int:
    """At which level a tier trains that is summed in the basis of another: the smaller subspace of the two."""
    return max(level, basis)


def _place(level: int, basis: int | None) -> tuple[int, int]:
    return (-1, -1) if basis is None else (trained_at(level, basis), basis)
