"""Attacks on federated recommenders and empirical audits, as pure functions of what an adversary saw.

The package stands alone: it needs numpy and scipy (and jaxtyping for the shapes in its signatures), and knows nothing
about how the uploads came to be.

    from attacks.membership import CORE_ATTACKS

    views = [ServerView(round=t, uploads=uploads[t]) for t in range(rounds)]
    targets = Targets.trained_vs_never_seen(train, seen)
    results = run(CORE_ATTACKS, views, Knowledge(popularity), targets)

This module offers what every attack needs: the views (what the adversary sees), its prior knowledge, the truth, and the
measurement. Attacks and estimators are in sub-packages:

- `attacks.membership`: from one user's upload or scores to a score for every item ("trained on it?").
- `attacks.sums`: the same from a sum of uploads, and "was this user in the sum?".
- `attacks.supports`: from the rows that a client names in a sparse secure sum to a score for every item.
- `attacks.shadow`: membership with shadow recommenders (RMIA, LiRA, recommended lists).
- `attacks.active`: models that a lying server sends.
- `attacks.poisoning`: what malicious clients upload so that an item is recommended to everybody.
- `attacks.linkability`: pseudonyms of two runs or services, and who is like whom.
- `attacks.attributes`: from uploads to a user's gender, age or occupation.
- `attacks.implementation`: noise as floating-point numbers in a machine instead of a law on the real line.
- `attacks.mechanism`: any function that releases something, against its claim of differential privacy.
- `attacks.empirical`: from attack scores under randomised inclusion to bounds and estimates of epsilon.
- `attacks.metrics`, `attacks.evaluation`: from scores and truth to AUC, TPR at low FPR, intervals, result records.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attacks.evaluation import AttackResult, Targets, measure
    from attacks.membership import run
    from attacks.views import (
        Knowledge,
        ScoreView,
        ServerView,
        SumView,
        SupportView,
        ViewError,
    )

__all__ = [
    "AttackResult",
    "Knowledge",
    "ScoreView",
    "ServerView",
    "SumView",
    "SupportView",
    "Targets",
    "ViewError",
    "measure",
    "run",
]

_DEFINED_IN = {"AttackResult": "evaluation", "Targets": "evaluation", "measure": "evaluation", "run": "membership"}


def __getattr__(name: str) -> Any:
    """A name of the package, loaded when it is first asked for: whoever needs a mean needs no attack."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"attacks.{_DEFINED_IN.get(name, 'views')}"), name)
