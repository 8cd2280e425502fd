"""Poisoning: what malicious clients upload so that a target item is recommended to everybody.

Each file rebuilds the idea of one published attack as a pure function of the item table that a client was sent; none
is the authors' code. `exposure` measures what came of it.
"""

from attacks.poisoning.bandwagon import bandwagon_profiles
from attacks.poisoning.exposure import exposure
from attacks.poisoning.fed_rec_attack import FedRecAttack
from attacks.poisoning.pip_attack import PipAttack
from attacks.poisoning.random_users import RandomUsers
from attacks.poisoning.upload import PoisonedRows, boosted, pushed

__all__ = [
    "FedRecAttack",
    "PipAttack",
    "PoisonedRows",
    "RandomUsers",
    "bandwagon_profiles",
    "boosted",
    "exposure",
    "pushed",
]
