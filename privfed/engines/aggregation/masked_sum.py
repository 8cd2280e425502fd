"""Sums of ring elements through the real masking protocol, messages and all, with every party in this process."""

import numpy as np
import torch

from privfed.compute.tiles import tile_size
from privfed.contracts import Schema, schema_digest
from privfed.engines.aggregation.base import BlockSums, QueryContext
from privfed.engines.aggregation.held_blocks import BlockGroup, HeldBlocks
from privfed.federation import SERVER, Call, Purpose, Streams
from privfed.guards import ClientGuard, RingCode
from privfed.updates import ClientUpdates
from secure_agg.encoding import RingElements
from secure_agg.masking import ClientRequirements, Terms, aggregate, choose_parameters

_RUN_WORDS = 4
"""32-bit words that name one masked sum."""

_SIMULATED = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
"""Of clients in this process, whose server is this process too: there is nobody to sign for."""


class MaskedSum:
    """Keeps every client's ring elements and adds them under masks: one sum, or one for every set of holders.

    Args:
        query: the query.
        code: of the query.
        guard: of the clients.
        streams: name the masked sums.
        held: who sends which block, where clients send held blocks only; None where everybody sends all blocks.
    """

    def __init__(
        self,
        query: QueryContext,
        code: RingCode,
        guard: ClientGuard,
        streams: Streams,
        held: HeldBlocks | None = None,
    ) -> None:
        self._query, self._code, self._guard, self._streams, self._held = query, code, guard, streams, held
        self._elements: dict[int, RingElements] = {}

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Keep the ring elements of the clients of one call."""
        self._guard.clip_(updates, call.clip_norm)
        for tile in torch.split(torch.arange(len(updates)), tile_size()):
            elements = self._guard.ring_elements(self._code, updates.materialise(tile), call, tile)
            self._elements |= zip(call.clients[tile].tolist(), elements, strict=True)

    def close(self) -> BlockSums:
        """Decoded sums, as the protocol opens them."""
        if self._held is None:
            return BlockSums(self._code.decode(self._opened(self._elements, self._query.schema)))
        total = self._code.ring.zeros(self._code.length)
        for number, group in enumerate(self._held.revealed()):
            self._open_group(total, group, number)
        return BlockSums(self._code.decode(total))

    def _open_group(self, total: RingElements, group: BlockGroup, number: int) -> None:
        """Put the masked sum of blocks with equal holders into its positions of `total`."""
        positions = np.r_[tuple(self._code.places[name] for name in group.blocks)]
        members = list(self._elements)
        elements = {members[at]: self._elements[members[at]][positions] for at in group.holders.tolist()}
        total[positions] = self._opened(elements, {name: self._query.schema[name] for name in group.blocks}, number)

    def _opened(self, elements: dict[int, RingElements], schema: Schema, number: int = 0) -> RingElements:
        return aggregate(elements, self.terms(schema, len(elements), number), requirements=_SIMULATED).total

    def terms(self, schema: Schema, clients: int, number: int = 0) -> Terms:
        """Terms of masked sum `number` of the query: of the blocks of `schema`, by so many clients."""
        chosen = choose_parameters(clients)
        return Terms.from_parameters(
            chosen,
            bits=self._code.ring.bits,
            length=sum(block.size for block in schema.values()),
            run=self.name(number),
            round=self._query.cohort.round,
            layout=bytes.fromhex(schema_digest(schema)),
        )

    def name(self, number: int) -> bytes:
        """What identifies sum `number` of the query."""
        words = _RUN_WORDS * (number + 1)
        names = self._streams.words(Purpose.RUN, self._query.cohort.round, self._query.query_id, [SERVER], words)[0]
        named: bytes = names[_RUN_WORDS * number :].tobytes()
        return named
