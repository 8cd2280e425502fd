"""LiRA, the likelihood-ratio attack (Carlini et al., "Membership inference attacks from first principles", S&P 2022).

Log-odds phi of a record are nearly normal over trainings. With their means in worlds that trained on it and in worlds
that did not,

    online:   log N(phi; mu_in, v_in) - log N(phi; mu_out, v_out)
    offline:  Phi((phi - mu_out) / sd_out),   here before Phi, which keeps the order and does not saturate.

What an item scores without being trained on (popularity, taste) is in mu_out and drops out, which no single threshold
achieves. Variances are shared by all interactions, as the source advises below 64 shadows. The order of scores does not
change with the scale of phi. Opt-in: it needs 8 to 64 trainings, the online variant above all, which needs worlds on
both sides of every inclusion bit.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from attacks.shadow.attack import ShadowAttackInfo, shadow_moments
from attacks.views.shadows import ShadowView
from attacks.views.types import Scores


@dataclass(frozen=True)
class Lira(ShadowAttackInfo):
    """Score each interaction by the likelihood ratio of having been trained on.

    Attributes:
        mode: "offline" compares with worlds that did not train on the interaction, "online" with both kinds.

    Raises:
        ValueError: If the mode is neither.
    """

    mode: Literal["offline", "online"] = "online"

    cost: ClassVar[str] = "8 to 64 trainings of the recommender"
    explains: ClassVar[str] = (
        "Asks whether the score of an item is more like that of shadow recommenders that trained on it or like that of "
        "those that did not."
    )

    def __post_init__(self) -> None:
        if self.mode not in ("offline", "online"):
            raise ValueError(f"Lira got mode={self.mode!r}; use 'offline' or 'online'.")

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return f"LiRA, {self.mode}"

    def score(self, view: ShadowView) -> Scores:
        """Log-likelihood ratios, or standardised distances from the worlds without the interaction."""
        moments = shadow_moments(view, probabilities=False)
        phi = view.log_odds(view.target)
        outside: Scores = (phi - moments.mean_out) / np.sqrt(moments.var_out)
        if self.mode == "offline":
            return outside
        inside = (phi - moments.mean_in) / np.sqrt(moments.var_in)
        ratio: Scores = (outside**2 - inside**2 + np.log(moments.var_out / moments.var_in)) / 2
        return ratio
