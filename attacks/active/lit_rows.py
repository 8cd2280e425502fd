"""Lit rows: a model in which a few named items alone move anything.

All rows of items but those in question are zero, and these point the same way and are long, so that a client that has
one of them is pushed there and hardly anywhere else: under a clip, what it sends is about the question.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64, Num


def lit(
    sent: Mapping[str, Num[np.ndarray, "..."]], items: Int64[np.ndarray, " k"], n_items: int, gain: float = 10.0
) -> dict[str, Num[np.ndarray, "..."]]:
    """The model with the rows of `items` lit, and everything without a row per item as it was sent.

    Args:
        sent: what an honest server would have sent, by name.
        items: in question.
        n_items: size of the catalogue.
        gain: length of a lit row, over the root mean square of the rows that were sent.
    """
    out = dict(sent)
    for name, values in sent.items():
        if values.shape[:1] == (n_items,) and values.ndim > 1 and np.issubdtype(values.dtype, np.floating):
            scale = np.sqrt(np.square(values).sum(axis=tuple(range(1, values.ndim)), dtype=np.float64).mean()) or 1.0
            dark = np.zeros_like(values)
            dark[items] = gain * scale / np.sqrt(np.prod(values.shape[1:]))
            out[name] = dark
    return out
