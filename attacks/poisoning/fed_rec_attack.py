"""Known interactions: rebuild the vectors of people of whom a few interactions are public, and please those.

The idea of FedRecAttack (Rong, Ye, Zhao, Yuen, Chen & He, "FedRecAttack: model poisoning attack to federated
recommendation", ICDE 2022). Vectors are fitted by regularised logistic steps on the table that was sent; the published
attack spreads its change over further rows to look like a gradient, which is left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from attacks.poisoning.upload import pushed


@dataclass(frozen=True, slots=True, eq=False)
class FedRecAttack:
    """Targets are pushed towards vectors fitted to public interactions.

    Attributes:
        public: interactions that the attacker knows.
        fit_steps: gradient steps that fit vectors.
        steps, lr: of gradient ascent on the targets.
    """

    public: Bool[np.ndarray, "users items"]
    fit_steps: int = 10
    steps: int = 30
    lr: float = 1.0
    name: ClassVar[str] = "known interactions"
    source: ClassVar[str] = "FedRecAttack, Rong et al., ICDE 2022"
    knows: ClassVar[str] = "some interactions of others"

    def change(
        self,
        table: Float[np.ndarray, "items width"],
        targets: Int64[np.ndarray, " k"],
        seed: int,  # noqa: ARG002
    ) -> Float64[np.ndarray, "k width"]:
        """The change of the target rows."""
        rows = table[targets].astype(np.float64)
        users = self._fitted(table.astype(np.float64))
        change: Float64[np.ndarray, "k width"] = pushed(rows, users, self.steps, self.lr) - rows
        return change

    def _fitted(self, table: Float64[np.ndarray, "items width"]) -> Float64[np.ndarray, "users width"]:
        """Vectors that rank known items above the average one, as long as the table's longest row."""
        known = self.public[self.public.any(axis=1)].astype(np.float64)
        mean = known @ table / known.sum(axis=1, keepdims=True)
        centred, users = table - table.mean(axis=0), mean - table.mean(axis=0)
        scale = max(float(np.linalg.norm(table, axis=1).max()), 1e-12)
        for _ in range(self.fit_steps):
            doubt = known / (1 + np.exp(np.clip(users @ centred.T, -30, 30)))
            users += (doubt @ centred - 0.01 * users) / scale**2
        norms: Float64[np.ndarray, "users 1"] = np.linalg.norm(users, axis=1, keepdims=True)
        fitted: Float64[np.ndarray, "users width"] = users * scale / np.maximum(norms, 1e-12)
        return fitted
