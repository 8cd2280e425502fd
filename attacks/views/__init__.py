"""What an adversary sees and what it knows beforehand.

A view is what passed the point in the system where the adversary listens: single uploads (:class:`ServerView`), a sum
of uploads (:class:`SumView`), the rows that clients name (:class:`SupportView`), the scores that a device shows
(:class:`ScoreView`), and the same together with shadow recommenders (:class:`ShadowView`).
"""

from attacks.views.knowledge import Knowledge, TrainingOracle
from attacks.views.rows import UploadSupport, proximal_share, upload_support
from attacks.views.scores import ScoreView
from attacks.views.server import ServerView
from attacks.views.shadows import OutputActivation, ShadowView
from attacks.views.sums import SumView
from attacks.views.supports import SupportView
from attacks.views.types import AttackView, PerUser, Scores, UserMask, ViewError

__all__ = [
    "AttackView",
    "Knowledge",
    "OutputActivation",
    "PerUser",
    "ScoreView",
    "Scores",
    "ServerView",
    "ShadowView",
    "SumView",
    "SupportView",
    "TrainingOracle",
    "UploadSupport",
    "UserMask",
    "ViewError",
    "proximal_share",
    "upload_support",
]
