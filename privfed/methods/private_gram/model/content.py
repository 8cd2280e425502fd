"""Kernels between items from public features: shared genres and nearness in years.

Kg is the cosine of genre flags, Ky = exp(-(difference in years)^2 / (2 l^2)). Their product, which is large for items
alike in both, is a kernel too, and where both are known counts twice in the mean. A kernel from elsewhere
(`item_kernel`) can join them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from privfed.data.item_features import ItemFeatures
from privfed.methods.private_gram.model.spiked import Prior

_BOTH, _ONE = (0.5, 0.25, 0.25), (1.0,)


Kernels = tuple[Float64[np.ndarray, "j k"], ...]


@dataclass(frozen=True, eq=False)
class Content:
    """Kernels over some items, or between some and others, found when they are first asked for.

    Attributes:
        find: makes them.
        shares: of each kernel in the mean.
    """

    find: Callable[[], Kernels]
    shares: tuple[float, ...]

    @classmethod
    def from_features(cls, features: ItemFeatures, items: Int64[np.ndarray, " k"], year_scale: float) -> "Content":
        """Kernels over `items`; `year_scale` is l."""
        return cls.between(features, items, items, year_scale)

    @classmethod
    def between(
        cls,
        features: ItemFeatures,
        rows: Int64[np.ndarray, " j"],
        items: Int64[np.ndarray, " k"],
        year_scale: float,
    ) -> "Content":
        """Kernels between some items and others, `[j, k]`."""

        def find() -> Kernels:
            genres = None if features.genres is None else _cosines(features.genres[rows], features.genres[items])
            if features.years is None:
                return () if genres is None else (genres,)
            # Years are few, so all pairs of different ones, [a, b], and then those of items, [j, k].
            years, place = np.unique(features.years[rows], return_inverse=True)
            others, column = np.unique(features.years[items], return_inverse=True)
            near = np.exp(-np.square(np.subtract.outer(years, others)) / (2 * year_scale**2))[place[:, None], column]
            return (near,) if genres is None else (genres * near, genres, near)

        return cls(find, _ONE if features.genres is None or features.years is None else _BOTH)

    @cached_property
    def kernels(self) -> Kernels:
        """Positive semidefinite, with a diagonal of 1 (0 in a genre kernel for an item without genres).

        The product, genres and years where both are known, else the one there is.
        """
        return self.find()

    def joined(self, kernel: Float64[np.ndarray, "j k"]) -> "Content":
        """The same kernels and one more, which has half of the mean."""
        return Content(lambda: (*self.kernels, kernel), (*(share / 2 for share in self.shares), 0.5))

    def first(self, count: int) -> "Content":
        """Kernels over the first items alone."""
        return Content(lambda: tuple(kernel[:count, :count] for kernel in self.kernels), self.shares)

    def of_first(self, count: int) -> "Content":
        """Kernels between all rows and the first items alone."""
        return Content(lambda: tuple(kernel[:, :count] for kernel in self.kernels), self.shares)

    @cached_property
    def prior(self) -> Prior:
        """The prior whose correlations are the mean: eigenpairs, once for all evidence about the same items."""
        return Prior.from_kernel(self.mean)

    @property
    def mean(self) -> Float64[np.ndarray, "j k"]:
        """The weighted mean of the kernels."""
        total: np.ndarray = sum(
            (share * kernel for share, kernel in zip(self.shares, self.kernels, strict=True)),
            start=np.zeros_like(self.kernels[0]),
        )
        return total


def _cosines(
    rows: Float64[np.ndarray, "j genres"], flags: Float64[np.ndarray, "k genres"]
) -> Float64[np.ndarray, "j k"]:
    cosines: np.ndarray = _directions(rows) @ _directions(flags).T
    return cosines


def _directions(flags: Float64[np.ndarray, "k genres"]) -> Float64[np.ndarray, "k genres"]:
    # Flags are 0 or 1, so a norm is 0 or at least 1: an item without genres stays 0 and nothing divides by 0.
    directions: np.ndarray = flags / np.maximum(np.linalg.norm(flags, axis=1, keepdims=True), 1)
    return directions
