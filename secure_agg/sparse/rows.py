"""Row-wise sums of additive shares, and the rows of them that enough clients send to be revealed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secure_agg.encoding.ring import Ring
from secure_agg.errors import ShareError
from secure_agg.primitives.prg import RingElements
from secure_agg.sparse.keystreams import Counts


def masked_share(elements: RingElements, keystreams: Sequence[RingElements]) -> RingElements:
    """The share of aggregator 0: the elements minus the keystreams of all the other aggregators, in the ring."""
    share = elements
    for keystream in keystreams:
        share = np.subtract(share, keystream)
    return share


@dataclass(frozen=True, slots=True, eq=False)
class ClientRows:
    """The rows that some clients named: checked and counted once, however many queries they are sent in.

    Attributes:
        clients: numbers of the clients.
        ids: row indices, client after client; a client names a row once.
        rows: rows of the table.
        contributors: number of clients that named each row, `[rows]`.

    Raises:
        ShareError: a row outside the table.
    """

    clients: Counts
    ids: Counts
    rows: int
    contributors: Counts = field(init=False)

    def __post_init__(self) -> None:
        ids, rows = self.ids, self.rows
        if len(ids) and not (ids.min() >= 0 and ids.max() < rows):
            raise ShareError(f"rows {ids.min()} to {ids.max()} were given; the table has rows 0 to {rows - 1}")
        object.__setattr__(self, "contributors", np.bincount(ids, minlength=rows))


@dataclass(slots=True, eq=False)
class RowSums:
    """One aggregator's share of the sums: elements by row, and the number of clients that sent each row.

    Attributes:
        ring: ring of the elements.
        elements: `[rows, width]`, this aggregator's share of the sums.
        contributors: number of clients that sent each row, rows of zeros included, `[rows]`.
        clients: numbers of the clients that were added.
    """

    ring: Ring
    elements: RingElements
    contributors: Counts
    clients: list[Counts] = field(default_factory=list)

    @classmethod
    def empty(cls, ring: Ring, rows: int, width: int) -> "RowSums":
        """Sums over no client."""
        return cls(ring, ring.zeros((rows, width)), np.zeros(rows, np.int64))

    def add(self, named: ClientRows, elements: RingElements) -> None:
        """Add one share of every row that some clients named.

        Args:
            named: the rows; each client is added once.
            elements: their shares, `[len(named.ids) * width]`.

        Raises:
            ShareError: rows of another table, or elements that do not fit them.
        """
        rows, width = self.elements.shape
        if named.rows != rows:
            raise ShareError(f"rows of a table of {named.rows} rows were given; this table has {rows}")
        if elements.dtype != self.ring.dtype or elements.size != len(named.ids) * width:
            raise ShareError(
                f"{elements.size} elements of {elements.dtype} were given for {len(named.ids)} rows of {width} "
                f"elements of {self.ring.dtype}; give every row its elements"
            )
        per_row = elements.reshape(len(named.ids), width)
        # Rows repeat across clients, so a plain indexed += would drop all but one of them. Column by column, because
        # numpy's fast path of `ufunc.at` takes one-dimensional operands only.
        for column in range(width):
            np.add.at(self.elements[:, column], named.ids, per_row[:, column])
        self.contributors += named.contributors
        self.clients.append(named.clients.copy())

    def revealed_rows(self, min_clients: int) -> NDArray[np.bool_]:
        """Whether at least `min_clients` clients sent a row, `[rows]`."""
        return self.contributors >= min_clients

    def revealed_elements(self, min_clients: int) -> RingElements:
        """The released share: its rows that enough clients sent, zero elsewhere, `[rows, width]`."""
        return np.where(self.revealed_rows(min_clients)[:, None], self.elements, self.ring.dtype.type(0))


def reveal_rows(sums: Sequence[RowSums], min_clients: int) -> tuple[RingElements, NDArray[np.bool_]]:
    """The sums of all rows that at least `min_clients` clients sent, from the shares of all aggregators.

    Args:
        sums: shares of the sums, one of each aggregator.
        min_clients: clients that a row needs; every aggregator applies it, so one honest aggregator suffices.

    Returns:
        Elements `[rows, width]`, zero where a row is suppressed, and whether each row is revealed `[rows]`.

    Raises:
        ShareError: one aggregator, other tables, or aggregators that did not add the same clients and rows, each once.
    """
    if len(sums) < 2:
        raise ShareError(f"sums of {len(sums)} aggregators were given; give those of all, 2 or more")
    first, *others = sums
    clients = _added_clients(first)
    for other in others:
        if other.ring != first.ring or other.elements.shape != first.elements.shape:
            raise ShareError("aggregators hold tables of different shapes or rings; let all add the same query")
        same_clients = np.array_equal(_added_clients(other), clients)
        if not (same_clients and np.array_equal(other.contributors, first.contributors)):
            raise ShareError("aggregators did not add the same clients; let all leave out the same ones")
    return first.ring.sum(part.revealed_elements(min_clients) for part in sums), first.revealed_rows(min_clients)


def _added_clients(sums: RowSums) -> Counts:
    """Clients that an aggregator added, ascending; refused where one was added twice."""
    clients = np.sort(np.concatenate([np.empty(0, np.int64), *sums.clients]))
    if bool((np.diff(clients) == 0).any()):
        raise ShareError("an aggregator added a client twice; add each client of a query once")
    return clients
