"""Membership inference with shadow recommenders: what would the score be, had the item not been trained on?"""

from attacks.shadow.attack import ShadowAttack
from attacks.shadow.lira import Lira
from attacks.shadow.observe import observe_shadows
from attacks.shadow.rmia import Rmia
from attacks.shadow.user_level import RecommendedLists, UserLevelLists, infer_list_members, item_factors

SHADOW_ATTACKS: tuple[ShadowAttack, ...] = (Rmia(),)
"""Attacks that need only a few shadow recommenders."""

MANY_SHADOW_ATTACKS: tuple[ShadowAttack, ...] = (Rmia("online"), Lira("offline"), Lira("online"))
"""Opt-in: attacks that need both worlds of each interaction, hence at least 8 shadow recommenders."""

__all__ = [
    "MANY_SHADOW_ATTACKS",
    "SHADOW_ATTACKS",
    "Lira",
    "RecommendedLists",
    "Rmia",
    "ShadowAttack",
    "UserLevelLists",
    "infer_list_members",
    "item_factors",
    "observe_shadows",
]
