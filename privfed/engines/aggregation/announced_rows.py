"""The rows that clients name before or with their uploads, where tables are shared row by row."""

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.data import Histories
from privfed.federation import FederationError
from privfed.updates import RowPattern, Rows
from secure_agg.sparse import row_indices_bytes


class AnnouncedRows:
    """The rows that clients named at enrolment: their own and those of padding.

    Args:
        support: rows of every user; None where clients name the rows of each upload.
    """

    def __init__(self, support: Histories | None) -> None:
        self.support = support
        self._cohort_id = -1
        self._patterns: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}
        self._earlier: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}
        self._places: dict[tuple[int, int], tuple[RowPattern, RowPattern, Tensor | None]] = {}

    @property
    def enrolment_bytes(self) -> int:
        """Bytes in which all clients name their rows to one aggregator, once; 0 where they name them as they go."""
        if self.support is None:
            return 0
        return self.support.n_users * row_indices_bytes(0) + len(self.support) * (
            row_indices_bytes(1) - row_indices_bytes(0)
        )

    def padded(self, part: Rows, cohort_id: int, clients: Int64[Tensor, " clients"], rows: int) -> Rows:
        """The part with a row of zeros for every announced row that it leaves out.

        Args:
            part: what the clients of a call send.
            cohort_id: of their cohort.
            clients: who they are.
            rows: of the table.

        Raises:
            FederationError: it holds a row that was not announced.
        """
        if self.support is None:
            return part
        pattern = self._pattern(self.support, cohort_id, clients, rows)
        place = self._place(pattern, part, (int(clients[0]), len(clients)))
        if place is None:
            return pattern.with_values(part.block, part.values)
        values = torch.zeros(len(pattern.ids), part.values.shape[1], dtype=part.values.dtype)
        if values.shape[1] == 1:
            # A scatter takes a quarter of the time for one column, and twice the time for several.
            values.view(-1).scatter_(0, place, part.values.view(-1))
        else:
            values.index_copy_(0, place, part.values)
        return pattern.with_values(part.block, values)

    def name_bytes(self, part: Rows, clients: int) -> int:
        """Bytes in which clients name the rows of one upload to one aggregator; 0 where they did so at enrolment."""
        if self.support is not None:
            return 0
        return clients * row_indices_bytes(0) + len(part.ids) * (row_indices_bytes(1) - row_indices_bytes(0))

    def _place(self, pattern: RowPattern, part: Rows, whose: tuple[int, int]) -> Int64[Tensor, " sent"] | None:
        """Where each row of the part stands among the announced ones; None where they are the same rows.

        Found once for as long as the same clients send the same pattern.
        """
        announced_by, sent_by, place = self._places.get(whose, (None, None, None))
        if announced_by is pattern and sent_by is not None and sent_by is part.pattern:
            return place
        place = None
        if not (torch.equal(part.ids, pattern.ids) and torch.equal(part.owner, pattern.owner)):
            announced, sent = (one.owner * pattern.rows + one.ids for one in (pattern, part))
            place = torch.searchsorted(announced, sent)
            if len(sent) and (int(place.max()) == len(announced) or not torch.equal(announced[place], sent)):
                raise FederationError(
                    f"block {part.block!r}: a client sends a row that it did not announce, so it would stand out from "
                    f"its padding; train on the padded items only"
                )
        if part.pattern is not None:
            self._places[whose] = pattern, part.pattern, place
        return place

    def _pattern(self, support: Histories, cohort_id: int, clients: Int64[Tensor, " clients"], rows: int) -> RowPattern:
        """Announced rows of the called clients; kept for as long as the same clients are called cohort after cohort."""
        if support.n_items != rows:
            raise FederationError(
                f"a client sends rows of a table of {rows} rows, while padding is sampled over the catalogue; send "
                f"tables with one row per item"
            )
        if cohort_id != self._cohort_id:
            self._cohort_id, self._earlier, self._patterns = cohort_id, self._patterns, {}
            self._places = {whose: known for whose, known in self._places.items() if whose in self._earlier}
        whose = int(clients[0]), len(clients)
        known = self._patterns.get(whose) or self._earlier.get(whose)
        if known is None or not torch.equal(known[0], clients):
            mine = support.subset(on_host(clients))
            keys = placed(mine.owners * rows + mine.items).sort().values
            known = clients.clone(), RowPattern(len(clients), rows, keys // rows, keys % rows)
        self._patterns[whose] = known
        return known[1]
