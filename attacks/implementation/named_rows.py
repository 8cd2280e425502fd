"""Intersection over rounds: padding that is drawn anew is exposed, because only true rows are named in every round.

A client that hides its true rows among fake ones and draws the fake ones again in every round names a true row in all n
rounds, and any other row in all of them with the n-th power of the padding rate (Berthold and Langos, "Dummy traffic
against long term intersection attacks", PET 2003). Padding that is drawn once is the same in every round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from attacks.implementation.claimed_noise import NoiseTest
from attacks.views.types import Scores


@dataclass(frozen=True, eq=False)
class NamedRows:
    """Rows that clients named over the rounds.

    Attributes:
        times: Number of rounds in which each client named each row.
        rounds: Number of rounds in which each client named any row.
    """

    times: Int64[np.ndarray, "clients rows"]
    rounds: Int64[np.ndarray, "clients"]

    @property
    def scores(self) -> Scores:
        """Share of a client's rounds in which it named a row; higher means "more likely a true row"."""
        share: Scores = self.times / np.maximum(self.rounds, 1)[:, None]
        return share

    @property
    def always(self) -> Bool[np.ndarray, "clients rows"]:
        """Rows that a client named in every round in which it named any."""
        always: Bool[np.ndarray, "clients rows"] = (self.times == self.rounds[:, None]) & (self.times > 0)
        return always

    @property
    def test(self) -> NoiseTest:
        """Test of the claim that rows are drawn once and are the same in every round; honest clients always pass it."""
        changed = ((self.times > 0) & ~self.always).any(axis=1)
        wrong, repeated = int(changed.sum()), int((self.rounds > 1).sum())
        return NoiseTest(
            name="named rows are the same in every round",
            statistic=float(wrong),
            threshold=0.0,
            p_value=0.0 if wrong else 1.0,
            where=f"{wrong} of {repeated} clients that were seen more than once named other rows than before",
            n_tested=repeated,
        )


def intersect_rounds(named: Sequence[Sequence[Iterable[int]]], rows: int) -> NamedRows:
    """Count the rounds in which each client named each row.

    Args:
        named: Named rows by round and client; empty for an absent client.
        rows: Number of rows of the table.

    Raises:
        ValueError: If rounds differ in their clients, or a row is not in the table.
    """
    clients = len(named[0]) if named else 0
    times, rounds = np.zeros((clients, rows), dtype=np.int64), np.zeros(clients, dtype=np.int64)
    for number, clients_rows in enumerate(named):
        if len(clients_rows) != clients:
            raise ValueError(
                f"Round {number} has the rows of {len(clients_rows)} clients and the first one of {clients}; pass all "
                "clients in every round, those who were absent without rows."
            )
        for client, client_rows in enumerate(clients_rows):
            ids = np.unique(np.fromiter(client_rows, dtype=np.int64))
            if ids.size and not (ids[0] >= 0 and ids[-1] < rows):
                raise ValueError(f"A client named rows {ids[0]} to {ids[-1]} of a table of {rows}; pass rows of it.")
            times[client, ids] += 1
            rounds[client] += ids.size > 0
    return NamedRows(times, rounds)
