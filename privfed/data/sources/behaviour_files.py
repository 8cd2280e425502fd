"""One file per part and behaviour (`trn_buy`, `vld_buy`, `tst_buy`, `trn_pv`, `trn_fav`, `trn_cart`).

The form in which JD, Tmall and UB come with the code of "Variational Collective Graph AutoEncoder for
Multi-behavior Recommendation" (VCGAE, ICDM 2023): each line is a user and an item, whole numbers from 1, with
one space between, and the name of the file says the part (`trn`, `vld`, `tst`) and the behaviour (`pv`, a page
view, is called view here). Neither a time nor the number of users and items is in the files. That code takes
both numbers from its command line; here `meta.json` in the same folder may give `{"catalog": {"items": n}}`, and
otherwise the catalogue is the items that occur in any file. Users are those who occur in any file.
"""

from typing import Unpack

import numpy as np
import pandas as pd

from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.sources import meta, text
from privfed.data.sources.files import Files

_PARTS = {"trn": "train", "vld": "valid", "tst": "test"}
_BEHAVIOURS = {"buy": "buy", "pv": "view", "fav": "fav", "cart": "cart"}
_PAIR = text.TextLayout([("user", "whole"), ("item", "whole")], " ")


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read every such file that is there.

    Raises:
        DataError: A file is empty, a line is malformed, or an item lies outside the catalogue.
    """
    labels = {
        f"{part}_{behaviour}": (_PARTS[part], _BEHAVIOURS[behaviour]) for part in _PARTS for behaviour in _BEHAVIOURS
    }
    names = [name for name in labels if name in files.names]
    tables = [text.read(files, name, _PAIR) for name in names]
    lengths = [len(table.frame) for table in tables]
    ends = np.cumsum(lengths)

    def where(row: int) -> str:
        number = int(np.searchsorted(ends, row, side="right"))
        return tables[number].where(row - int(ends[number] - lengths[number]))

    rows = pd.concat([table.frame for table in tables], ignore_index=True)
    part, behaviour = (np.repeat([labels[name][column] for name in names], lengths) for column in (0, 1))
    described = meta.read(files)
    options.setdefault("terms", described.terms)
    return build(
        **options,
        user=rows["user"],
        item=rows["item"],
        behaviour=behaviour,
        split=part,
        catalogue=None if described.n_items is None else np.arange(1, described.n_items + 1),
        where=where,
    )
