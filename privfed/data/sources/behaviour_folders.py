"""One folder for each behaviour (`view`, `cart`, `buy`), each with `train.txt` and, of the target, `test.txt`.

Each line is a user and items of that user, whole numbers from 0, as in the adjacency lists of LightGCN; one pair on a
line is the same with one item. The folder's name is the behaviour (`pv` is called view here). Nothing says how many
items there are, so that the catalogue runs from 0 to the largest id unless `meta.json` gives
`{"catalog": {"items": n}}`.
"""

from typing import Unpack

import numpy as np

from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.sources import adjacency_lists, meta
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import folders_of_behaviours


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read every such file.

    Raises:
        DataError: A file is empty, a line is malformed, or an item lies outside the catalogue.
    """
    found = folders_of_behaviours(files)
    tables = [adjacency_lists.pairs(files, name) for name, _, _ in found]
    lengths = [len(table[0]) for table in tables]
    line, user, item = (np.concatenate(column) for column in zip(*tables, strict=True))
    source, behaviour, part = (np.repeat(labels, lengths) for labels in zip(*found, strict=True))
    known = meta.read(files)
    options.setdefault("terms", known.terms)

    def where(row: int) -> str:
        return f"{files.named(source[row])}, line {line[row]}"

    adjacency_lists.refuse_large(item, where)
    return build(
        **options,
        user=user,
        item=item,
        behaviour=behaviour,
        split=part,
        catalogue=int(item.max()) + 1 if known.n_items is None else known.n_items,
        catalogue_derived=known.n_items is None,
        where=where,
    )
