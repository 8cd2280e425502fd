"""The server's side of the privacy layer: record a query, add noise, open the release with its denominator."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.contracts import Schema
from privfed.federation import SERVER, Cohort, Individual, Purpose, Streams, Total
from privfed.federation.grid import Grid, device_grid, released
from privfed.guards.client_guard import BLOCKS_PER_QUERY
from privfed.guards.noise_grid import noised_sum
from privfed.guards.ring_code import RingCode
from privfed.privacy.events import SchemaSummary
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.refusals import refuse_unprotected_blocks

_HALF = 0.5
"""What a count that is centred on half of the members is a multiple of."""


class ServerGuard:
    """Opens releases, each only after the ledger has recorded what it costs.

    Args:
        plan: the run's privacy plan.
        ledger: where every query is recorded before anything is opened.
        streams: randomness under the server's own key, for the noise of a trusted server.

    Attributes:
        clip_norms: where the plan adapts it, the clip norm of every step so far.
    """

    def __init__(self, plan: PrivacyPlan, ledger: Ledger, streams: Streams) -> None:
        self.plan, self.ledger, self._streams = plan, ledger, streams
        self.clip_norms: dict[str, float] = {}
        self._codes: dict[tuple[Any, ...], RingCode] = {}

    def record(
        self, cohort: Cohort, step: str, query_id: int, schema: Schema, participants: Int64[Tensor, " members"]
    ) -> None:
        """Record one query of `cohort`; must return before a release is opened.

        Raises:
            PlanError: as `refuse_unprotected_blocks`.
        """
        refuse_unprotected_blocks(self.plan, schema)
        self.ledger.record(
            cohort_id=cohort.id,
            round=cohort.round,
            step=step,
            index=query_id,
            schema=SchemaSummary.from_schema(schema),
            participants=None if self.plan.amplifies else on_host(participants),
        )

    def clip_norm(self, step: str) -> float | None:
        """The clip norm to announce with a query of `step`; None where the plan does not adapt it."""
        mechanism = self.plan.mechanism
        if mechanism.adaptive_clip is None or mechanism.clip is None:
            return None
        return self.clip_norms.get(step, mechanism.clip.norm)

    def code(self, schema: Schema) -> RingCode | None:
        """How uploads of `schema` become ring elements; None where they travel as numbers."""
        mechanism = self.plan.mechanism
        if mechanism.masking is None:
            return None
        key = tuple(schema.items())
        if key not in self._codes:
            self._codes[key] = RingCode(mechanism, schema, self.plan.sampling.max_cohort(self.ledger.population))
        return self._codes[key]

    def reveals(self, members: int) -> bool:
        """Whether a round of so many clients may be opened: sums and noise in shares need enough of them."""
        return members >= self.plan.mechanism.min_clients

    def add_noise_(
        self,
        sums: Mapping[str, Tensor],
        cohort: Cohort,
        step: str,
        query_id: int,
        schema: Schema,
        *,
        members: int,
        within: int,
    ) -> None:
        """Add the trusted server's noise to float64 sums, in place, and let an adaptive clip norm follow its quantile.

        Args:
            sums: of clipped uploads.
            cohort: of the exchange.
            step: of the clients.
            query_id: running number within the round.
            schema: of the query.
            members: clients in the sum.
            within: those whose norm was within the clip norm.
        """
        mechanism = self.plan.mechanism
        if mechanism.server_noise_multiplier is None or mechanism.clip is None:
            return
        clip_norm, adaptive = self.clip_norm(step) or mechanism.clip.norm, mechanism.adaptive_clip
        max_clients = self.plan.sampling.max_cohort(self.ledger.population)
        noised = noised_sum(mechanism.server_noise_multiplier, clip_norm, schema, max_clients)
        self._add_steps_(sums, cohort.round, query_id, schema, noised.grid)
        if adaptive is not None:
            address = query_id * BLOCKS_PER_QUERY + len(schema)
            grid = device_grid(adaptive.count_noise)
            # The centred count is a multiple of a half; a coarser grid would round it before the noise hides it.
            step_of_count = min(grid.step, _HALF)
            ratio = grid.ratio * grid.step / step_of_count
            k = self._streams.normal_steps(Purpose.NOISE, cohort.round, address, [SERVER], 1, ratio)
            centred = within - members / 2 + step_of_count * float(k)
            share = centred / max(cohort.expected, 1.0) + 0.5
            self.clip_norms[step] = adaptive.follow(clip_norm, share, cohort.round)

    def add_gaussian_(
        self, sums: Mapping[str, Tensor], round: int, query_id: int, schema: Schema, deviation: float
    ) -> None:
        """Add N(0, deviation^2) to every weighted coordinate of the real sums, in place, under the server's key.

        It stands for noise that many devices add one by one, and lies on a grid like theirs.
        """
        self._add_steps_(sums, round, query_id, schema, lambda weight: device_grid(deviation / weight))

    def _add_steps_(
        self, sums: Mapping[str, Tensor], round: int, query_id: int, schema: Schema, grid_of: Callable[[float], Grid]
    ) -> None:
        """Round the real sums to the grids of their blocks and add integer noise, in place."""
        for index, (name, block) in enumerate(schema.items()):
            if block.kind == "real":
                address, grid = query_id * BLOCKS_PER_QUERY + index, grid_of(block.weight)
                steps = self._streams.normal_steps(Purpose.NOISE, round, address, [SERVER], block.size, grid.ratio)[0]
                released(sums[name].view(-1), steps, grid)

    def total(
        self,
        sums: Mapping[str, Tensor],
        cohort: Cohort,
        members: int,
        schema: Schema,
        revealed: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Total:
        """A sum with its denominator: the expected cohort under sampling or noise, else the realised one."""
        weights = [name for name, block in schema.items() if block.divides]
        if weights:
            return Total(sums, float(math.fsum(sums[name].sum().item() for name in weights)), revealed)
        return Total(sums, cohort.expected if self.plan.fixed_denominator else float(members), revealed)

    def individual(self, members: Int64[Tensor, " members"], uploads: Mapping[str, Tensor]) -> Individual:
        """Every upload under its pseudonym."""
        return Individual(members, uploads)
