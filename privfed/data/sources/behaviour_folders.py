"""One folder for each behaviour (`view`, `cart`, `buy`), each with `train.txt` and, of the target, `test.txt`.

Each line is a user and items of that user, whole numbers from 0, as in the adjacency lists of LightGCN; one pair on a
line is the same with one item. The folder's name is the behaviour (`pv` is called view here). Nothing says how many
items there are, so that the catalogue runs from 0 to the largest id unless `meta.json` gives
`{"catalog": {"items": n}}`.
"""

from typing import Unpack

import numpy as np

from privfed.data.columns import PARTS
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.sources import adjacency_lists, meta
from privfed.data.sources.files import SPLIT_NAMES, Files

_NAMES = {"pv": "view"}


def parts(files: Files) -> list[tuple[str, str, str]]:
    """File, behaviour and part of each file of the layout; nothing where fewer than two folders have `train.txt`."""
    split = [(name, *name.removesuffix(".txt").split("/")) for name in files.names if name.endswith(".txt")]
    found = [
        (part[0], _NAMES.get(part[1], part[1]), SPLIT_NAMES[part[2]])
        for part in split
        if len(part) == 3 and part[2] in SPLIT_NAMES
    ]
    # Of a pair in two parts the row of the training part has to stay, so that part comes first.
    found.sort(key=lambda file: (PARTS.index(file[2]), file[1]))
    return found if sum(name.endswith("/train.txt") for name, _, _ in found) > 1 else []


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read every such file.

    Raises:
        DataError: A file is empty, a line is malformed, or an item lies outside the catalogue.
    """
    found = parts(files)
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
