"""Adjacency lists with a published split: `train.txt`, `test.txt` and, where there is one, `valid.txt`.

The form in which the data of LightGCN (He et al., SIGIR 2020) and NGCF, and the Goodreads and Amazon files of FAIR,
are released: each line is a user and that user's items, whole numbers from 0 with white space between, in no order in
time. The ids are kept as codes of the catalogue: it is 0 to the largest id of any part, so that an id is its row in a
table, or as many as `meta.json` in the same folder gives with `{"catalog": {"items": n}}`. A line with a user alone is
a user without items in that part; who has none in any part is in no data set. Of an item that a user has in two parts
the training row stays.
"""

import re
from typing import Unpack

import numpy as np
from jaxtyping import Int64

from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.sources import meta
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import ADJACENCY_LISTS
from privfed.data.split_spec import PARTS

_LINE = re.compile(rb"[ \t]*\d{1,18}(?:[ \t]+\d{1,18})*[ \t]*\r?")
_LARGEST_ID = 10**8
_SHOWN = 80


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read the parts that are there; `test.txt` must be.

    Raises:
        DataError: A file is missing or empty, a line is malformed, an id is too large for a row of a table, or an
            item lies outside the catalogue that `meta.json` gives.
    """
    names = [f"{part}.txt" for part in PARTS if part != "valid" or "valid.txt" in files.names]
    parts = [pairs(files, name) for name in names]
    lengths = [len(line) for line, _, _ in parts]
    line, user, item = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(item):
        raise DataError(
            f"{files.named(ADJACENCY_LISTS)} and the files beside it hold users and no items: fetch them again"
        )

    def where(row: int) -> str:
        return f"{files.named(np.repeat(names, lengths)[row])}, line {line[row]}"

    refuse_large(item, where)
    described = meta.read(files)
    options.setdefault("terms", described.terms)
    return build(
        **options,
        user=user,
        item=item,
        split=np.repeat([name.removesuffix(".txt") for name in names], lengths),
        catalogue=int(item.max()) + 1 if described.n_items is None else described.n_items,
        catalogue_derived=described.n_items is None,
        where=where,
    )


def refuse_large(item: Int64[np.ndarray, "rows"], where: Where) -> None:
    """Refuse ids that would make a table of more rows than a table can have.

    Raises:
        DataError: An id is too large.
    """
    if not len(item) or (largest := int(item.max())) <= _LARGEST_ID:
        return
    raise DataError(
        f"{where(int(item.argmax()))}: item {largest} would make a catalogue of {largest + 1:,} items, as an id is a "
        "row of a table: number the items from 0, or correct the line"
    )


def pairs(
    files: Files, name: str
) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "rows"], Int64[np.ndarray, "rows"]]:
    """Line number, user and item of each pair of a file.

    Raises:
        DataError: The file is missing or empty, or a line is not a user followed by items.
    """
    content = files.read(name).rstrip()
    lines = content.split(b"\n")
    for number, text in enumerate(lines, start=1):
        if not _LINE.fullmatch(text):
            shown = text.decode("utf-8", "replace").rstrip("\r")
            shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
            raise DataError(
                f"{files.named(name)}, line {number} is malformed ({shown!r}): expected a user and that user's items, "
                "whole numbers with spaces between; correct or remove the line"
            )
    tokens = np.fromstring(content, dtype=np.int64, sep=" ")
    lengths = np.array([len(text.split()) for text in lines])
    first = np.cumsum(lengths) - lengths
    items = np.delete(tokens, first)
    counts = lengths - 1
    return np.repeat(np.arange(1, len(lines) + 1), counts), np.repeat(tokens[first], counts), items
