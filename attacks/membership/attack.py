"""Interface of an attack on single uploads."""

from typing import ClassVar, Protocol, runtime_checkable

from attacks.evaluation.info import AttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores


@runtime_checkable
class UploadAttack(AttackInfo, Protocol):
    """A pure function from one round's uploads and prior knowledge to one score per (user, item)."""

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Score every (user, item) of the view; higher means "more likely trained on"."""


class UploadAttackInfo:
    """Declaration shared by attacks on one round's individual uploads."""

    observable: ClassVar[str] = "individual item-table uploads of one round"
    adversary: ClassVar[str] = "server"
    unit: ClassVar[str] = "interaction"
