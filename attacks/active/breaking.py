"""A model on which training fails: whoever is sent it adds nothing to a sum.

A server that sends it to everybody but one client turns a secure sum into that client's upload (model inconsistency:
Pasquini, Francati & Ateniese, "Eluding secure aggregation in federated learning via model inconsistency", CCS 2022,
who silence ReLU networks; NaN silences everything that does arithmetic on what it is sent).
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Num


def broken(model: Mapping[str, Num[np.ndarray, "..."]]) -> dict[str, Num[np.ndarray, "..."]]:
    """The model with NaN for every real number; whole numbers (item ids) stay as they are."""
    return {
        name: np.full_like(values, np.nan) if np.issubdtype(values.dtype, np.floating) else values
        for name, values in model.items()
    }
