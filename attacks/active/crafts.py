"""Crafts: models that are sent to have clients say more about their items than they would to an honest server.

A craft acts on tensors by their shape: those with one row per item, and all others (heads, hidden layers).

- *codes* gives every item a row of random signs, so that items differ by what the server chose and not by what it
  learned: the manipulated item features of RAIFLE (Lam et al., "RAIFLE: reconstruction attacks on interaction-based
  federated learning with active data manipulation", NDSS 2025), rebuilt by us for models whose rows are trained.
- *equal rows* gives all items one row, so that a client's error is the same for all its items and the same for all its
  negatives, whatever its private parameters are.
- *loud* and *quiet* multiply: large rows saturate predictions, zero rows take the items out of the model.
- *loud heads* and *quiet heads* multiply everything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Num

Rows = Literal["kept", "codes", "equal"]

_SEED = 20260


@dataclass(frozen=True, slots=True)
class Craft:
    """A model that a lying server sends in the place of its own.

    Attributes:
        name: in tables.
        rows: what becomes of the rows of items: kept, random signs, or one row for all.
        row_gain: what rows are multiplied by afterwards.
        head_gain: what all other real tensors are multiplied by.
    """

    name: str
    rows: Rows = "kept"
    row_gain: float = 1.0
    head_gain: float = 1.0

    def model(self, sent: Mapping[str, Num[np.ndarray, "..."]], n_items: int) -> dict[str, Num[np.ndarray, "..."]]:
        """The crafted model.

        Args:
            sent: what an honest server would have sent, by name; whole numbers stay as they are.
            n_items: size of the catalogue.
        """
        out = dict(sent)
        for name, values in sent.items():
            if not np.issubdtype(values.dtype, np.floating):
                continue
            if values.shape[:1] == (n_items,):
                out[name] = (self._rows(values) * self.row_gain).astype(values.dtype)
            else:
                out[name] = (values * self.head_gain).astype(values.dtype)
        return out

    def _rows(self, table: Float[np.ndarray, "items ..."]) -> Float[np.ndarray, "items ..."]:
        """Rows of about the same length as those that were sent, as far as there is any."""
        if self.rows == "kept" or table.ndim == 1:
            return table
        scale = np.sqrt(np.square(table).mean(dtype=np.float64)) or 1.0
        shape = table.shape if self.rows == "codes" else (1, *table.shape[1:])
        signs = np.random.default_rng(_SEED).choice((-scale, scale), shape)
        return np.broadcast_to(signs, table.shape)


HONEST = Craft("as sent")
"""The model as an honest server sends it."""

CRAFTS = (
    HONEST,
    Craft("codes", rows="codes"),
    Craft("loud codes", rows="codes", row_gain=10.0),
    Craft("equal rows", rows="equal"),
    Craft("loud rows", row_gain=10.0),
    Craft("quiet rows", row_gain=0.0),
    Craft("loud heads", head_gain=10.0),
    Craft("quiet heads", head_gain=0.1),
)
"""The honest model first; which of the others serves best depends on the method, so it is chosen on other people."""
