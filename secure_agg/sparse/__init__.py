"""Sums of tables of which every client sends a few rows, additively shared between aggregators.

At enrolment a client agrees a 32-byte key with every aggregator but the first (party 0), and declares to all of them
which rows it sends. From then on, for one query,

    aggregator 0 receives   elements - the client's keystreams     (of its rows, in the ring)
    aggregator j receives   a header: it generates the keystream of its key itself

so a client uploads its elements once, however many aggregators there are. Each aggregator adds its shares row by row.
The sums of all aggregators together reveal the rows that enough clients send; no aggregator releases its shares of the
other rows, which stay suppressed. A client's elements are hidden by AES-256 in counter mode: aggregators j >= 1 hold
keys and see no elements, aggregator 0 sees elements minus keystreams that it cannot generate. All of them together can
recover everything.

What aggregators see: which rows each client declared, who takes part in which query, and how many clients send each
row. Padding with rows that a client does not hold hides the first of these. A row of zeros counts as a client like any
other, so a sum over `min_clients` clients may hold fewer true values, down to one.

`secure_agg.additive` does the same for one client's dense vector at a time, with fresh seeds; here a cohort is one flat
array, and keys live as long as the client. The same limits apply: channels are encrypted and authenticated elsewhere,
and aggregators follow the protocol.

    keystreams    keys and their addressed keystreams        rows    sums row by row, and what of them is revealed
    messages      what a client declares and uploads, as bytes
"""

from secure_agg.sparse.keystreams import ClientCiphers, KeyStreams, agree_keys
from secure_agg.sparse.messages import RowIndices, RowShare, row_indices_bytes, row_share_bytes
from secure_agg.sparse.rows import ClientRows, RowSums, masked_share, reveal_rows

__all__ = [
    "ClientCiphers",
    "ClientRows",
    "KeyStreams",
    "RowIndices",
    "RowShare",
    "RowSums",
    "agree_keys",
    "masked_share",
    "reveal_rows",
    "row_indices_bytes",
    "row_share_bytes",
]
