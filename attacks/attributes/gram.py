"""Inner products of users' evidence, which are all that a linear classifier needs of a hundred thousand columns.

A linear model with an L2 penalty has weights in the span of its training rows (the representer theorem: Kimeldorf &
Wahba, 1971; Schoelkopf, Herbrich & Smola, COLT 2001), so users x users products carry the same information as users x
columns values. With the eigenvectors of the matrix of products, G = U S U^T, the rows of U sqrt(S) have exactly these
products: coordinates as many as users, in which every classifier is the one that it would be on the uploads themselves.
Columns are read in pieces, and nothing of the size of an upload is copied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64

from attacks._linear_algebra import eigenpairs
from attacks.views.rows import proximal_share
from attacks.views.server import ServerView
from attacks.views.types import ViewError

COLUMNS_PER_CHUNK = 4096
"""Number of columns read together, so that temporary copies stay within tens of megabytes."""


@dataclass(frozen=True, eq=False)
class Gram:
    """Inner products of all pairs of users.

    Attributes:
        products: Symmetric and positive semi-definite, up to rounding.

    Raises:
        ViewError: If the products are not a square float64 matrix, or hold NaN or infinity.
    """

    products: Float64[np.ndarray, "users users"]

    def __post_init__(self) -> None:
        p = self.products
        if p.dtype != np.float64 or p.ndim != 2 or len(set(p.shape)) != 1 or not len(p) or not np.isfinite(p).all():
            raise ViewError(
                f"Gram.products is {p.dtype} of shape {p.shape}; pass finite float64 numbers of shape [users, users], "
                "or use Gram.from_columns on the users' values."
            )

    @classmethod
    def from_columns(cls, chunks: Iterable[Float[np.ndarray, "users columns"]]) -> "Gram":
        """Products over all columns of the chunks.

        Args:
            chunks: Columns of the same users in any number of pieces; each piece is multiplied in its own precision
                and added in float64.

        Raises:
            ViewError: If there is no chunk, they are not about the same users, or they hold NaN or infinity.
        """
        products: Float64[np.ndarray, "users users"] | None = None
        for columns in chunks:
            if columns.ndim != 2 or (products is not None and len(columns) != len(products)):
                raise ViewError(
                    f"Gram.from_columns got columns of shape {columns.shape}; pass pieces of shape [users, columns] "
                    "about the same users."
                )
            piece = (columns @ columns.T).astype(np.float64)
            products = piece if products is None else products + piece
        if products is None:
            raise ViewError("Gram.from_columns got no columns; pass at least one piece of shape [users, columns].")
        return cls(products)

    def unit(self) -> "Gram":
        """Products of the same rows at length 1, which hides how much each user sends.

        A row of zeros stays zero. Each row is divided by its own length, so no user's row depends on another's.
        """
        length = np.sqrt(np.diag(self.products).clip(min=0))
        scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        return Gram(self.products * scale * scale[:, None])

    def coordinates(self) -> Float64[np.ndarray, "users users"]:
        """Rows with these products, one coordinate per user."""
        values, vectors = eigenpairs(self.products)
        rows: Float64[np.ndarray, "users users"] = vectors * np.sqrt(values.clip(min=0))
        return rows


def upload_gram(view: ServerView) -> Gram:
    """Products of whole uploads: every block of the view, without the server's proximal term."""
    return Gram.from_columns(_columns(view))


def _columns(view: ServerView) -> Iterator[Float32[np.ndarray, "users columns"]]:
    """Values of every block of a view, a few items of all users at a time."""
    share = proximal_share(view)
    blocks = [block for block in (view.uploads, view.inputs, view.bias) if block is not None]
    for block in blocks:
        # Number of items whose values fill about one chunk of columns.
        step = max(1, COLUMNS_PER_CHUNK * view.n_items * view.n_users // block.size)
        for start in range(0, view.n_items, step):
            values = block[:, start : start + step]
            if block is view.uploads and view.proximal is not None:
                values = values - share[:, None, None] * view.proximal[:, start : start + step]
            yield values.reshape(view.n_users, -1)
