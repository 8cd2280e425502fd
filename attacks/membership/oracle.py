"""What attacks share that repeat local training on guessed histories and look whose uploads come out.

A server knows the model it sent, the code of local training and its settings. It can therefore train as a device would,
on any history it likes to guess (Shokri et al., "Membership inference attacks against machine learning models", S&P
2017, call such copies shadow models; Yuan et al., WWW 2023, train them from the model of the very round).
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Float32, Float64

from attacks.membership.attack import UploadAttackInfo
from attacks.views.rows import proximal_share, residual_chunk
from attacks.views.server import ServerView


class OracleAttackInfo(UploadAttackInfo):
    """The declaration shared by attacks that replay local training."""

    observable: ClassVar[str] = "individual item-table uploads of one round, and the model that was sent in it"


ORACLE_KNOWLEDGE = ("the recipe of local training", "the pull the server sent")
"""What every replay needs."""


def residual_rows(view: ServerView) -> Float32[np.ndarray, "users items width"]:
    """Upload rows with the server's own pull taken out, for observed and replayed uploads alike."""
    if view.proximal is None:
        return view.uploads
    share = proximal_share(view)
    rows = np.empty_like(view.uploads)
    for chunk in view.chunks():
        rows[chunk] = residual_chunk(view, share, chunk)
    return rows


def row_products(
    one: Float32[np.ndarray, "users items width"], other: Float32[np.ndarray, "users items width"]
) -> Float64[np.ndarray, "users items"]:
    """Inner product of each row with the same row of the other."""
    return np.asarray(np.einsum("uiw,uiw->ui", one, other, dtype=np.float64))
