"""Empirical lower bounds on epsilon: the largest claim that a game denies, with a confidence.

Somebody throws a coin, runs the mechanism on one of two neighbouring inputs, and an attack gives a score. Over many
throws the scores of the two worlds bound its false-positive rate (FPR) and its false-negative rate (FNR) from above,
each by Clopper & Pearson (Biometrika 1934) at alpha / 2. A claim that allows no attack with such rates is wrong.

* `clopper_pearson_epsilon` denies (epsilon, delta), whose trade-off between the rates is two straight lines
  (`attacks.ceilings`; Jagielski, Ullman & Oprea, NeurIPS 2020; Nasr et al., S&P 2021):

      epsilon >= ln((1 - FNR - delta) / FPR)        epsilon >= ln((1 - FPR - delta) / FNR)

* `gdp_epsilon` denies mu-GDP, the trade-off between N(0, 1) and N(mu, 1) (Dong, Roth & Su, JRSS B 2022; as an audit
  Nasr et al., USENIX Security 2023):

      mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)

  and turns mu into epsilon at delta exactly. It says something only where the claim is about Gaussian noise without
  sampling. There the bound is tight, while the two lines touch the Gaussian's curve too deep in its tail to be seen.

Where to cut the scores must not be picked by looking for the largest bound: that alone denied true claims in 6.5 % of
trials at 5 %. Either fix a threshold beforehand, or fix K false-positive rates; the K cuts are then order statistics of
the non-members' scores, and each gets alpha / K (Bonferroni). At such a cut the FPR is Beta distributed with the
parameters that Clopper & Pearson use, and members' scores do not know of it, so both bounds keep their confidence.

Only randomised membership can be used here. Natural members differ from non-members without any training.
"""

import numpy as np
from jaxtyping import Num


def check_claim_delta(delta: float) -> None:
    """Raises a ValueError unless delta is at least 0 and below 1."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta}; pass a value of at least 0 and below 1.")


def check_gaussian_delta(delta: float) -> None:
    """Raises a ValueError unless delta lies between 0 and 1."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; pass a value between 0 and 1: Gaussian noise has no finite epsilon at 0.")


def check_scores(name: str, scores: Num[np.ndarray, "..."]) -> None:
    """Raises a ValueError unless there is at least one score, all in one dimension and finite."""
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise ValueError(f"{name} has shape {scores.shape}; pass at least one finite score in one dimension.")
