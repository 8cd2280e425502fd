"""Declarations shared by attacks that query a training oracle with guessed histories.

A server knows the model it sent, the code of local training and its settings. It can therefore train as a device would,
on any history it likes to guess (Shokri et al., "Membership inference attacks against machine learning models", S&P
2017, call such copies shadow models; Yuan et al., WWW 2023, train them from the model of the attacked round).
"""

from typing import ClassVar

from attacks.membership.attack import UploadAttackInfo

ORACLE_KNOWLEDGE = ("the code and settings of local training", "the proximal term that the server sent")
"""Knowledge that every query of a training oracle needs."""


class OracleAttackInfo(UploadAttackInfo):
    """Declaration shared by attacks that query a training oracle."""

    observable: ClassVar[str] = "individual item-table uploads of one round, and the model that was sent in it"
