"""The decoder-bias sign attack: the update of an autoencoder's last bias reveals the user's history.

With a softmax over the catalogue and the loss -sum_i r_ui log softmax_i, the gradient of the bias of item i is
m_u softmax_i - r_ui, where r_u is the user's 0/1 history and m_u the number of its items. Local SGD therefore moves it
in E steps by

    delta_i = lr sum_e (r_ui - m_u softmax_i(e)),

down for every item outside the history and up for every item in it, as long as the model gives the latter less than
1 / m_u each, whatever the rest of the network does. Input dropout does not help, since it hides items from the input
and not from the loss. A model that has learnt to give a user's most popular items more than 1 / m_u blurs the sign for
those alone: on MovieLens-100K without noise, AUC falls from 1.00 in early rounds to 0.97 in late ones. Removing the
part that all users share (their median, or item popularity) raised that by less than 0.01 and cost as much under noise.
(On last-layer gradients that reveal labels: Zhao, Mopuri & Bilen, "iDLG: improved deep leakage from gradients", 2020.)
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks._scaling import divide_by_rms
from attacks.membership.attack import UploadAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores, ViewError


@dataclass(frozen=True)
class DecoderBias(UploadAttackInfo):
    """Score each item by the increase of its bias in the last layer."""

    name: ClassVar[str] = "decoder bias"
    observable: ClassVar[str] = "individual uploads of the last layer's bias of one round"
    knowledge: ClassVar[tuple[str, ...]] = ("uploads are local minus global",)
    cost: ClassVar[str] = "O(items) per user"
    explains: ClassVar[str] = (
        "Training an autoencoder raises the last layer's bias for the items a user has and lowers it for all "
        "others, so the sign of one number per item reads off the interaction list."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:  # noqa: ARG002 - uses no prior knowledge
        """Bias update divided by the user's root mean square, so that users are comparable.

        Raises:
            ViewError: If the view has no bias.
        """
        if view.bias is None:
            raise ViewError(f"The {self.name} attack needs ServerView.bias, which is None; pass the last layer's bias.")
        return divide_by_rms(view.bias.astype(np.float64))
