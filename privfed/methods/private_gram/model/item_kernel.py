"""A kernel between items that somebody brings along: embeddings of texts or pictures, or a matrix of likenesses."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from jaxtyping import Float64, Int64

_MOST = 2**28
"""Numbers of a matrix at most, and bytes of a file of text over ten."""


class ItemKernelError(ValueError):
    """A file that holds no kernel of the items at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemKernel:
    """Likeness of items, with 1 between an item and itself; 0 for an item of which nothing is known.

    Attributes:
        directions: a unit vector of each item, whose inner products are the kernel, or the kernel itself; sparse where
            it came so.
        whole: whether it is the kernel itself.
    """

    directions: Float64[np.ndarray, "items d"] | sp.csr_array
    whole: bool

    @classmethod
    def read(cls, path: Path, items: int) -> "ItemKernel":
        """Read a file with one row of numbers per item, in the order of the items of the data.

        `.npy`, `.csv`, or `.npz` as `numpy.savez` with a single array or `scipy.sparse.save_npz` writes it. Rows are
        embeddings, compared by their cosine; a symmetric matrix with one column per item is a kernel itself.

        Raises:
            ItemKernelError: the file cannot be read, is too large, or does not describe so many items in finite
                numbers.
        """
        return cls.from_rows(_numbers(path, items), str(path))

    @classmethod
    def from_columns(cls, info: pd.DataFrame | None, columns: Sequence[str]) -> "ItemKernel":
        """Rows of numbers from columns of public descriptions; an item without numbers has no likeness to any.

        Raises:
            ItemKernelError: a column is missing, or holds something else than numbers.
        """
        there = [] if info is None else list(info.columns)
        if missing := [name for name in columns if name not in there]:
            raise ItemKernelError(
                f"the items have no column {missing[0]!r} (they have: {', '.join(map(str, there)) or 'none'}): name "
                "numeric columns of the item descriptions in item_columns"
            )
        chosen = pd.DataFrame() if info is None else info[list(columns)]
        for name in columns:
            if not pd.api.types.is_numeric_dtype(chosen[name]):
                raise ItemKernelError(f"column {name!r} of the items holds no numbers: leave it out of item_columns")
        rows = np.nan_to_num(chosen.to_numpy(np.float64, na_value=np.nan), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return cls.from_rows(rows, "the columns of the items")

    @classmethod
    def from_rows(cls, rows: np.ndarray | sp.csr_array, source: str) -> "ItemKernel":
        """Rows of numbers, one per item.

        Args:
            rows: embeddings, or a symmetric matrix.
            source: what errors name.

        Raises:
            ItemKernelError: a number is not finite, or a matrix has a negative diagonal.
        """
        if not np.isfinite(rows.data if isinstance(rows, sp.csr_array) else rows).all():
            raise ItemKernelError(f"{source} holds numbers that are not finite: give zeros where nothing is known")
        if rows.shape[0] != rows.shape[1] or not _symmetric(rows):
            return cls(_scaled(rows, _lengths(rows)), whole=False)
        diagonal = rows.diagonal()
        if (diagonal < 0).any():
            raise ItemKernelError(
                f"{source} holds a matrix with a negative diagonal, which no kernel has: give likenesses"
            )
        lengths = np.sqrt(diagonal)
        return cls(_scaled(_transposed(_scaled(rows, lengths)), lengths), whole=True)

    def between(self, rows: Int64[np.ndarray, " j"], items: Int64[np.ndarray, " k"]) -> Float64[np.ndarray, "j k"]:
        """The kernel between some items and others."""
        first = self.directions[rows]
        found = first[:, items] if self.whole else first @ self.directions[items].T
        kernel: np.ndarray = found.toarray() if isinstance(found, sp.csr_array | sp.csc_array) else np.asarray(found)
        return kernel


def _symmetric(rows: np.ndarray | sp.csr_array) -> bool:
    if isinstance(rows, sp.csr_array):
        apart = abs(rows - rows.T)
        return not apart.nnz or bool(apart.max() <= 1e-8 * abs(rows).max())
    return bool(np.allclose(rows, rows.T))


def _lengths(rows: np.ndarray | sp.csr_array) -> np.ndarray:
    if isinstance(rows, sp.csr_array):
        return np.asarray(np.sqrt(rows.multiply(rows).sum(1))).ravel()
    return np.asarray(np.linalg.norm(rows, axis=1))


def _transposed(rows: np.ndarray | sp.csr_array) -> np.ndarray | sp.csr_array:
    return rows.T.tocsr() if isinstance(rows, sp.csr_array) else rows.T


def _scaled(rows: np.ndarray | sp.csr_array, lengths: np.ndarray) -> np.ndarray | sp.csr_array:
    # An item of length 0 stays 0, and nothing divides by 0.
    by = 1 / np.where(lengths > 0, lengths, 1)
    return sp.csr_array(sp.diags_array(by) @ rows) if isinstance(rows, sp.csr_array) else rows * by[:, None]


def _numbers(path: Path, items: int) -> np.ndarray | sp.csr_array:
    if path.suffix not in _READERS:
        raise ItemKernelError(f"{path} ends in none of {', '.join(_READERS)}: give a matrix in one of these formats")
    try:
        rows = _READERS[path.suffix](path)
        _check_shape(path, rows.shape, items)
        return rows if sp.issparse(rows) else np.asarray(rows, dtype=np.float64)
    except ItemKernelError:
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ItemKernelError(
            f"{path} cannot be read as a matrix of numbers ({error}): write it with numpy.save, or as rows of numbers "
            "with commas"
        ) from error


def _check_shape(path: Path, shape: tuple[int, ...], items: int) -> None:
    if len(shape) != 2 or shape[0] != items or not shape[1]:
        raise ItemKernelError(
            f"{path} holds {' x '.join(map(str, shape))} numbers, and the data have {items:,} items: give one row per "
            "item, in the order of the item ids"
        )


def _refuse_large(path: Path, numbers: int) -> None:
    if numbers > _MOST:
        raise ItemKernelError(
            f"{path} holds {numbers:,} numbers and no more than {_MOST:,} are read: give shorter embeddings"
        )


def _npy(path: Path) -> np.ndarray:
    # Mapped, so that what is too large is refused before it is in memory.
    mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    _refuse_large(path, mapped.size)
    return mapped


def _csv(path: Path) -> np.ndarray:
    _refuse_large(path, path.stat().st_size // 10)
    return np.loadtxt(path, delimiter=",", ndmin=2)


def _npz(path: Path) -> np.ndarray | sp.csr_array:
    with zipfile.ZipFile(path) as archive:
        names = [member.filename.removesuffix(".npy") for member in archive.infolist()]
        # Sizes stand in the directory, before anything is unpacked; a number has a byte at least.
        _refuse_large(path, sum(member.file_size for member in archive.infolist()) // 8)
    if "format" in names:
        return sp.csr_array(sp.load_npz(path)).astype(np.float64)
    if len(names) != 1:
        raise ItemKernelError(f"{path} holds {len(names)} arrays ({', '.join(names)}): give a file with one")
    with np.load(path, allow_pickle=False) as arrays:
        only: np.ndarray = arrays[names[0]]
        return only


_READERS = {".npy": _npy, ".npz": _npz, ".csv": _csv}
