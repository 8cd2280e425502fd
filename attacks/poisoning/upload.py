"""What all attacks by crafted uploads share: pushing target rows towards users, and making up for the mean."""

from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Float, Float64, Int64


class PoisonedRows(Protocol):
    """An attack that chooses what target rows become.

    Attributes:
        name: in tables.
        source: paper whose idea this is.
        knows: what the attacker knows besides what every client is sent.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    knows: ClassVar[str]

    def change(
        self, table: Float[np.ndarray, "items width"], targets: Int64[np.ndarray, " k"], seed: int
    ) -> Float64[np.ndarray, "k width"]:
        """The change of the target rows that the attacker wants to see in the model.

        Args:
            table: item rows that the clients were sent.
            targets: items to promote.
            seed: of whatever the attacker draws.
        """


def pushed(
    rows: Float64[np.ndarray, "k width"], users: Float64[np.ndarray, "users width"], steps: int, lr: float
) -> Float64[np.ndarray, "k width"]:
    """Rows after gradient steps that raise log sigma(user . row), on average over users."""
    out = rows.copy()
    for _ in range(steps):
        doubt = 1 / (1 + np.exp(np.clip(out @ users.T, -30, 30)))  # [k, users]
        out += lr * doubt @ users / len(users)
    return out


def boosted(change: Float64[np.ndarray, "k width"], clients: float, malicious: float) -> Float64[np.ndarray, "k width"]:
    """The upload of one of so many malicious clients, whose mean with that of honest ones is the change."""
    return change * clients / malicious
