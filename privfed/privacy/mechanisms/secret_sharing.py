"""Sums of additive shares between aggregators that do not collude: what guards and engines need to know of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from privfed.contracts import Schema
from privfed.privacy.padding.base import Padding
from secure_agg.encoding import Ring
from secure_agg.sparse import row_share_bytes


@dataclass(frozen=True, slots=True)
class SecretSharing:
    """Shares of uploads, whose tables are sent row by row.

    Attributes:
        aggregators: number of parties that hold shares; one of them must be honest.
        bits: width of a ring element.
        min_cohort: number of clients without which a row, or a round, is not opened.
        padding: which rows of a table a client sends besides its own.
        clip_norm: bound on the L2 norm of an upload's real blocks; None where only integers can be shared.
    """

    aggregators: int
    bits: int
    min_cohort: int
    padding: Padding
    clip_norm: float | None

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float]) -> float:
        """Bytes of one client's shares in one query, rows having been named at enrolment.

        Args:
            schema: blocks of the query.
            sent_rows: table blocks sent row by row -> number of rows that a client sends, padding included; others are
                whole.
        """
        rows = {} if self.padding.every_row else sent_rows
        elements = sum(
            b.size if n not in rows else min(rows[n], b.shape[0]) * b.size / b.shape[0] for n, b in schema.items()
        )
        return row_share_bytes(elements, Ring(self.bits), self.aggregators)
