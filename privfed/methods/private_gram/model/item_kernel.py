"""A kernel between items that somebody brings along: embeddings of texts or pictures, or a matrix of likenesses."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64


class ItemKernelError(ValueError):
    """A file that holds no kernel of the items at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemKernel:
    """Likeness of items, with 1 between an item and itself; 0 for an item of which nothing is known.

    Attributes:
        directions: a unit vector of each item, whose inner products are the kernel, or the kernel itself.
        whole: whether it is the kernel itself.
    """

    directions: Float64[np.ndarray, "items d"]
    whole: bool

    @classmethod
    def read(cls, path: Path, items: int) -> "ItemKernel":
        """Read a `.npy` or `.csv` file with one row of numbers per item, in the order of the items of the data.

        Rows are embeddings, compared by their cosine; a symmetric matrix with one column per item is a kernel itself.

        Raises:
            ItemKernelError: the file cannot be read, or does not describe so many items in finite numbers.
        """
        rows = _numbers(path)
        if rows.ndim != 2 or len(rows) != items or not rows.shape[1]:
            shape = " x ".join(str(length) for length in rows.shape)
            raise ItemKernelError(
                f"{path} holds {shape} numbers, and the data have {items:,} items: give one row per item, in the order "
                "of the item ids"
            )
        if not np.isfinite(rows).all():
            raise ItemKernelError(f"{path} holds numbers that are not finite: give zeros where nothing is known")
        whole = rows.shape[1] == items and bool(np.allclose(rows, rows.T))
        if not whole:
            return cls(_scaled(rows, np.linalg.norm(rows, axis=1)), whole=False)
        if (rows.diagonal() < 0).any():
            raise ItemKernelError(
                f"{path} holds a matrix with a negative diagonal, which no kernel has: give likenesses"
            )
        lengths = np.sqrt(rows.diagonal())
        return cls(_scaled(_scaled(rows, lengths).T, lengths), whole=True)

    def between(self, rows: Int64[np.ndarray, " j"], items: Int64[np.ndarray, " k"]) -> Float64[np.ndarray, "j k"]:
        """The kernel between some items and others."""
        if self.whole:
            kernel: np.ndarray = self.directions[np.ix_(rows, items)]
        else:
            kernel = self.directions[rows] @ self.directions[items].T
        return kernel


def _scaled(rows: Float64[np.ndarray, "items d"], lengths: Float64[np.ndarray, " items"]) -> np.ndarray:
    # An item of length 0 stays 0, and nothing divides by 0.
    scaled: np.ndarray = rows / np.where(lengths > 0, lengths, 1)[:, None]
    return scaled


def _numbers(path: Path) -> np.ndarray:
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        if path.suffix == ".csv":
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise ItemKernelError(
            f"{path} cannot be read as a matrix of numbers ({error}): write it with numpy.save, or as rows of numbers "
            "with commas"
        ) from error
    raise ItemKernelError(f"{path} ends neither in .npy nor in .csv: give a matrix in one of these formats")
