"""Random users: raise the target's score for made-up people, because nobody's vector is known.

The idea of A-ra in Rong, He & Chen, "Poisoning deep learning based recommender model in federated learning scenarios",
IJCAI 2022, whose model has a shared network on top; rebuilt here for a dot product.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Float64, Int64

from attacks.poisoning.upload import pushed


@dataclass(frozen=True, slots=True)
class RandomUsers:
    """Targets are pushed towards random users, as long as the rows that were sent.

    Attributes:
        users: how many are made up.
        steps, lr: of gradient ascent.
    """

    users: int = 64
    steps: int = 30
    lr: float = 1.0
    name: ClassVar[str] = "random users"
    source: ClassVar[str] = "A-ra, Rong et al., IJCAI 2022"
    knows: ClassVar[str] = "nothing"

    def change(
        self, table: Float[np.ndarray, "items width"], targets: Int64[np.ndarray, " k"], seed: int
    ) -> Float64[np.ndarray, "k width"]:
        """The change of the target rows."""
        rows = table[targets].astype(np.float64)
        users = np.random.default_rng(seed).normal(0, table.std(), (self.users, table.shape[1]))
        change: Float64[np.ndarray, "k width"] = pushed(rows, users, self.steps, self.lr) - rows
        return change
