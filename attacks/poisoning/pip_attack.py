"""Popular-item alignment: make the target look like what everybody likes.

The idea of PipAttack (Zhang, Yin, Chen, Huang, Nguyen & Cui, "PipAttack: poisoning federated recommender systems for
manipulating item promotion", WSDM 2022): a popular item's row says what raises a score for most people. The published
attack trains a classifier of popularity and hides behind a distance constraint; rebuilt here as the mean row of the
most popular items, a little longer than it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Float64, Int64


@dataclass(frozen=True, slots=True, eq=False)
class PipAttack:
    """Targets become the mean row of popular items.

    Attributes:
        popularity: of the items, on any scale.
        popular: how many items count as popular.
        length: of a target row, over the length of the longest popular row.
    """

    popularity: Float64[np.ndarray, " items"]
    popular: int = 20
    length: float = 1.5
    name: ClassVar[str] = "popular items"
    source: ClassVar[str] = "PipAttack, Zhang et al., WSDM 2022"
    knows: ClassVar[str] = "item popularity"

    def change(
        self,
        table: Float[np.ndarray, "items width"],
        targets: Int64[np.ndarray, " k"],
        seed: int,  # noqa: ARG002
    ) -> Float64[np.ndarray, "k width"]:
        """The change of the target rows."""
        liked = table[np.argsort(-self.popularity, kind="stable")[: self.popular]].astype(np.float64)
        mean = liked.mean(axis=0)
        longest = np.linalg.norm(liked, axis=1).max()
        wanted = mean * self.length * longest / max(float(np.linalg.norm(mean)), 1e-12)
        change: Float64[np.ndarray, "k width"] = wanted - table[targets]
        return change
