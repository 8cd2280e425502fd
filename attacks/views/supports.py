"""View of the supports in a sparse secure sum: no value, but which rows each client sends.

In a secure sum over item rows (FedMF with shares: Chai et al., IEEE Intelligent Systems 2020; discrete multi-behaviour
recommendation) a client sends shares of the rows in its support: its purchases, its examinations (items that it viewed,
put in a cart or marked as a favourite) and padding items that hide the examinations. Purchases are public by the
problem's definition, so the remaining question is which of the other rows are examinations and which are padding.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from attacks.views.knowledge import Knowledge
from attacks.views.types import ViewError


@dataclass(frozen=True, eq=False)
class SupportView:
    """Supports of the audited users, with the aggregator's counts over the whole federation.

    Attributes:
        sent: True where the user sends the item's row.
        public: True where the user bought the item (in training), which is public.
        supporters: Number of clients of the whole federation that send the row without having bought the item.
        popularity: Public purchases of each item, as counts or on any other scale.
        examined_counts: Number of clients of the whole federation that examined the item, if the protocol reveals
            these counts; None otherwise.
        examined_estimates: Estimates of these counts from `supporters` and the announced padding
            (:func:`attacks.supports.debiased_count`); None if the padding is not announced.
        affinity: Inner product of each item with a user code that the server rebuilt from public purchases and item
            codes; None if it cannot.

    Raises:
        ViewError: If an array has another type or shape, holds NaN, infinity or a negative count, or the audited users
        alone support a row more often than the whole federation.
    """

    sent: Bool[np.ndarray, "users items"]
    public: Bool[np.ndarray, "users items"]
    supporters: Int64[np.ndarray, "items"]
    popularity: Float64[np.ndarray, "items"]
    examined_counts: Int64[np.ndarray, "items"] | None = None
    examined_estimates: Float64[np.ndarray, "items"] | None = None
    affinity: Float32[np.ndarray, "users items"] | None = None

    def __post_init__(self) -> None:
        sent, public = self.sent, self.public
        same = sent.shape == public.shape and sent.ndim == 2 and 0 not in sent.shape
        if not same or sent.dtype != bool or public.dtype != bool:
            raise ViewError(
                f"SupportView got sent {sent.dtype} {sent.shape} and public {public.dtype} {public.shape}; pass two "
                "non-empty boolean masks of one [users, items] shape."
            )
        for name, counts in (("supporters", self.supporters), ("examined_counts", self.examined_counts)):
            if counts is not None:
                _check(name, counts, np.dtype(np.int64), (self.n_items,), "one int64 count per item")
                if counts.min() < 0:
                    raise ViewError(f"SupportView.{name} goes down to {counts.min()}; pass counts of at least 0.")
        for name, values in (("popularity", self.popularity), ("examined_estimates", self.examined_estimates)):
            if values is not None:
                _check(name, values, np.dtype(np.float64), (self.n_items,), "one finite float64 number per item")
        if self.affinity is not None:
            _check("affinity", self.affinity, np.dtype(np.float32), sent.shape, "one finite float32 number per pair")
        audited = self.unpurchased.sum(axis=0)
        if (audited > self.supporters).any():
            item = int((audited - self.supporters).argmax())
            raise ViewError(
                f"SupportView.supporters says {self.supporters[item]} clients send item {item} without having bought "
                f"it, but {audited[item]} audited users do; count over the whole federation."
            )

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.sent)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.sent[0])

    @property
    def unpurchased(self) -> Bool[np.ndarray, "users items"]:
        """Rows sent without a purchase: each of them is an examination or padding."""
        rows: Bool[np.ndarray, "users items"] = self.sent & ~self.public
        return rows

    @property
    def prior(self) -> Knowledge:
        """Prior knowledge of the aggregator: the popularity of the catalogue."""
        return Knowledge(self.popularity)


def _check(name: str, values: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], expected: str) -> None:
    if values.dtype != dtype or values.shape != shape or not np.isfinite(values).all():
        raise ViewError(
            f"SupportView.{name} is {values.dtype} of shape {values.shape}; pass {expected}, of shape {shape}."
        )
