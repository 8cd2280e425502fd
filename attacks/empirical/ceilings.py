"""Upper limits of (epsilon, delta) on the success of any attack.

For a test between two neighbouring inputs, (epsilon, delta) differential privacy is the same as the two lines

    TPR <= e^epsilon FPR + delta        and        1 - FPR <= e^epsilon (1 - TPR) + delta

(Wasserman & Zhou, JASA 2010; Kairouz, Oh & Viswanath, ICML 2015, eq. 5). They hold only where membership was
randomised by the experimenter. On natural members (a user's real items against the rest) popularity
alone exceeds them, and that says nothing about the mechanism.
"""

import math


def tpr_ceiling(fpr: float, epsilon: float, delta: float = 0.0) -> float:
    """Highest TPR at a given FPR: min(1, e^eps fpr + delta, 1 - e^-eps (1 - delta - fpr)).

    Args:
        fpr: False-positive rate in [0, 1].
        epsilon: Privacy loss, 0 to infinity.
        delta: In [0, 1].

    Raises:
        ValueError: If a rate is outside [0, 1] or epsilon is negative or NaN.
    """
    _check(epsilon, delta, fpr)
    if math.isinf(epsilon):
        return 1.0
    left = 1.0 if epsilon > 700 and fpr > 0 else math.exp(min(epsilon, 700.0)) * fpr + delta
    right = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - fpr)
    return min(1.0, left, right)


def advantage_ceiling(epsilon: float, delta: float = 0.0) -> float:
    """Highest max(TPR - FPR): (e^eps - 1 + 2 delta) / (e^eps + 1).

    Args:
        epsilon: Privacy loss, 0 to infinity.
        delta: In [0, 1].

    Raises:
        ValueError: If delta is outside [0, 1] or epsilon is negative or NaN.
    """
    _check(epsilon, delta, 0.0)
    shrink = math.exp(-epsilon)
    return min(1.0, (1 - shrink + 2 * delta * shrink) / (1 + shrink))


def _check(epsilon: float, delta: float, fpr: float) -> None:
    if not (epsilon >= 0 and 0 <= delta <= 1 and 0 <= fpr <= 1):
        raise ValueError(
            f"Got epsilon={epsilon}, delta={delta}, fpr={fpr}; epsilon must be at least 0 (inf is fine) and "
            "delta and fpr between 0 and 1."
        )
