"""Membership inference with shadow recommenders: what would the score be, had the item not been trained on?"""

from attacks.shadow.attack import ShadowAttack
from attacks.shadow.lira import Lira
from attacks.shadow.observe import observe_shadows
from attacks.shadow.rmia import Rmia
from attacks.shadow.view import Output, ShadowView

SHADOWED: tuple[ShadowAttack, ...] = (Rmia(),)
"""Attacks that make do with a few shadows."""

MANY_SHADOWS: tuple[ShadowAttack, ...] = (Rmia("online"), Lira("offline"), Lira("online"))
"""Opt-in: attacks that want both worlds of each interaction, hence 8 shadows or more."""

__all__ = [
    "MANY_SHADOWS",
    "SHADOWED",
    "Lira",
    "Output",
    "Rmia",
    "ShadowAttack",
    "ShadowView",
    "observe_shadows",
]
