"""Attribute inference: what gender, age or occupation does a user have, read off what it sent?

The adversary knows the attribute of some users (they collude with it, or told the world) and has the same kind of
evidence about everybody: an upload, items that another attack recovered, a number of interactions. It trains a linear
classifier on the users it knows and applies it to the others (Kosinski, Stillwell & Graepel, PNAS 2013, on likes;
Weinsberg, Bhagat, Ioannidis & Taft, "BlurMe", RecSys 2012, on ratings of films; Zhang, Yuan & Yin, arXiv 2205.11857, on
federated recommenders). Users are dealt into folds, every class alike; each fold is guessed by a classifier that was
trained on users of the other folds only, and whose centring, scale and penalty were decided there too.

Scores of two folds come from two classifiers and do not compare, so an AUC counts pairs of users of one fold:

    AUC_k = #{(u, v) : f_u = f_v, y_u = k, y_v != k, s_k(u) > s_k(v)} / #{(u, v) : f_u = f_v, y_u = k, y_v != k},

where f is the fold, y the class and s_k the score of class k. Ties count one half, and the AUC of several classes is
the mean of AUC_k (one against the rest); of two classes both are equal. Ranking all folds together instead would put a
classifier without evidence below 0.5 wherever a class that is rarer in a fold is more frequent in the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Integer

from attacks._logistic import Classifier, fit_path
from attacks.attributes.gram import Gram
from attacks.metrics.bootstrap import percentile_interval, user_weights
from attacks.metrics.estimate import Estimate

STRENGTHS = (0.1, 0.01, 1e-3, 1e-4)
"""Penalties to choose from, for rows of root mean square length 1."""

INNER_FOLDS = 3
"""Folds of the labelled users among which a penalty is chosen."""


class EvidenceError(ValueError):
    """Evidence or labels that no classifier can be trained and tested on."""


@dataclass(frozen=True)
class AttributeResult:
    """How well an attribute is guessed.

    Attributes:
        auc: Cross-validated, 0.5 for a coin; mean one-against-rest of several classes.
        balanced_accuracy: Mean recall of the classes, one over their number for a coin or for always the same guess.
        majority: Share of the largest class.
        n_users: Users guessed, each once.
        n_labelled: Users whose attribute the adversary knew, mean over folds.
        n_classes: Classes told apart.
        strengths: The penalty chosen for each fold.
    """

    auc: Estimate
    balanced_accuracy: Estimate
    majority: float
    n_users: int
    n_labelled: float
    n_classes: int
    strengths: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class FoldPredictions:
    """What the classifiers say of every user, each by one that was not trained on it.

    Attributes:
        log_odds: Higher means "rather of this class"; compare within a fold only.
        guesses: Class guessed for balanced accuracy.
        fold: Number of each user's fold.
        strengths: The penalty chosen for each fold.
        n_labelled: Users that each fold's classifier was trained on.
    """

    log_odds: Float64[np.ndarray, "users classes"]
    guesses: Int64[np.ndarray, "users"]
    fold: Int64[np.ndarray, "users"]
    strengths: tuple[float, ...]
    n_labelled: tuple[int, ...]


def infer_attribute(
    evidence: Float[np.ndarray, "users columns"] | Gram,
    labels: Integer[np.ndarray, "users"],
    *,
    folds: int = 4,
    labelled: float | None = None,
    strengths: Sequence[float] = STRENGTHS,
    resamples: int = 200,
    seed: int = 0,
) -> AttributeResult:
    """How well a linear classifier guesses an attribute of users it was not trained on.

    Intervals are bootstraps over users, widened by sqrt(1 + folds / (folds - 1)). Folds share what they learn from,
    and any two users stand once on either side, so resampling guesses alone would be too sure (of 0.5, without any
    evidence, in 12 % of the cases instead of 5 %); the factor is the correction for that of Nadeau & Bengio,
    "Inference for the generalization error", Machine Learning 52, 2003.

    Args:
        evidence: What the adversary has about each user, as columns or as inner products. Columns are used as they
            are up to one common scale: bring them to comparable units.
        labels: Class of each user, whole numbers from 0 or above.
        folds: Parts that users are dealt into.
        labelled: Share of all users whose attribute the adversary knows, drawn from the other folds, every class
            alike; None takes all of the other folds.
        strengths: Penalties to choose from, by likelihood inside the labelled users.
        resamples: Bootstrap resamples (of users).
        seed: Seed of folds, draws and bootstrap.

    Raises:
        EvidenceError: If labels are not one class per row, there is only one class, a class is too small for the
            folds, or evidence is not finite.
    """
    codes = _codes(labels)
    guessed = cross_predict(evidence, codes, folds=folds, labelled=labelled, strengths=strengths, seed=seed)
    n_users, n_classes = guessed.log_odds.shape
    weights = user_weights(n_users, resamples, seed)
    everybody, wider = np.ones((1, n_users)), float(np.sqrt(1 + folds / (folds - 1)))
    right = guessed.guesses == codes
    return AttributeResult(
        auc=_estimate(_auc(guessed, codes, everybody), _auc(guessed, codes, weights), wider),
        balanced_accuracy=_estimate(_mean_recall(right, codes, everybody), _mean_recall(right, codes, weights), wider),
        majority=float(np.bincount(codes).max() / n_users),
        n_users=n_users,
        n_labelled=float(np.mean(guessed.n_labelled)),
        n_classes=n_classes,
        strengths=guessed.strengths,
    )


def cross_predict(
    evidence: Float[np.ndarray, "users columns"] | Gram,
    labels: Integer[np.ndarray, "users"],
    *,
    folds: int = 4,
    labelled: float | None = None,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
) -> FoldPredictions:
    """Guess every user once; arguments and errors are those of :func:`infer_attribute`."""
    rows, codes = _rows(evidence), _codes(labels)
    if len(rows) != len(codes):
        raise EvidenceError(f"there are {len(codes)} labels for {len(rows)} users; pass one label for every user.")
    if folds < 2 or (labelled is not None and not 0 < labelled <= 1):
        raise EvidenceError(
            f"folds is {folds} and labelled {labelled}; pass 2 folds or more, and a share of users above 0 or None."
        )
    counts = np.bincount(codes)
    needed = max(folds, int(np.ceil(INNER_FOLDS / min(labelled or 1.0, 1 - 1 / folds))))
    if counts.min() < needed:
        raise EvidenceError(
            f"the smallest of {len(counts)} classes has {counts.min()} users, and {needed} are needed for {folds} "
            "folds at this share of labelled users; leave the class out, join it to another, or audit more users."
        )
    rng = np.random.default_rng(seed)
    fold = _deal(codes, folds, rng)
    log_odds, guesses = np.empty((len(rows), len(counts))), np.empty(len(rows), dtype=np.int64)
    chosen, sizes = [], []
    for number in range(folds):
        known = _known(codes, fold != number, labelled, rng)
        classifier, strength = _choose(rows[known], codes[known], strengths, rng)
        test = fold == number
        log_odds[test], guesses[test] = classifier.log_odds(rows[test]), classifier.guesses(rows[test])
        chosen.append(strength)
        sizes.append(len(known))
    return FoldPredictions(log_odds, guesses, fold, tuple(chosen), tuple(sizes))


def _rows(evidence: Float[np.ndarray, "users columns"] | Gram) -> Float64[np.ndarray, "users columns"]:
    """The evidence in at most as many columns as there are users."""
    if isinstance(evidence, Gram):
        return evidence.coordinates()
    if evidence.ndim != 2 or not evidence.size or not np.isfinite(evidence).all():
        raise EvidenceError(
            f"evidence of shape {evidence.shape} is empty, not [users, columns], or not finite; pass one row of "
            "finite numbers for every user."
        )
    values: Float64[np.ndarray, "users columns"] = evidence.astype(np.float64)
    return values if values.shape[1] <= len(values) else Gram.from_columns([values]).coordinates()


def _codes(labels: Integer[np.ndarray, "users"]) -> Int64[np.ndarray, "users"]:
    """Classes 0 to K - 1, each of which somebody is in."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or (labels < 0).any():
        raise EvidenceError(
            f"labels are {labels.dtype} of shape {labels.shape}; pass one whole number of 0 or more for every user, "
            "and leave out users whose attribute is unknown."
        )
    found, codes = np.unique(labels, return_inverse=True)
    if len(found) < 2:
        raise EvidenceError(
            f"all {len(labels)} users have the same label, so there is nothing to tell apart; choose another "
            "attribute or audit more users."
        )
    return codes.astype(np.int64)


def _deal(labels: Int64[np.ndarray, "users"], parts: int, rng: np.random.Generator) -> Int64[np.ndarray, "users"]:
    """Part of each user: every class is dealt out evenly, and so are all users."""
    order = np.lexsort((rng.random(len(labels)), labels))
    part = np.empty(len(labels), dtype=np.int64)
    part[order] = np.arange(len(labels)) % parts
    return part


def _known(
    labels: Int64[np.ndarray, "users"], others: Bool[np.ndarray, "users"], share: float | None, rng: np.random.Generator
) -> Int64[np.ndarray, "labelled"]:
    """Users of other folds whose attribute the adversary knows: `share` of every class's users, or all there are."""
    users = np.flatnonzero(others)
    if share is None:
        return users
    order = users[np.lexsort((rng.random(len(users)), labels[users]))]
    of_class = labels[order]
    rank = np.arange(len(order)) - np.searchsorted(of_class, of_class)
    return np.sort(order[rank < np.ceil(share * np.bincount(labels))[of_class]])


def _choose(
    rows: Float64[np.ndarray, "labelled columns"],
    labels: Int64[np.ndarray, "labelled"],
    strengths: Sequence[float],
    rng: np.random.Generator,
) -> tuple[Classifier, float]:
    """The classifier at the penalty under which labelled users who were left out are likeliest, and that penalty."""
    part = _deal(labels, INNER_FOLDS, rng)
    likelihood = np.zeros(len(strengths))
    for number in range(INNER_FOLDS):
        out = part == number
        for at, classifier in enumerate(fit_path(rows[~out], labels[~out], strengths)):
            likelihood[at] += classifier.log_probabilities(rows[out])[np.arange(out.sum()), labels[out]].sum()
    best = int(likelihood.argmax())
    return fit_path(rows, labels, strengths[: best + 1])[-1], strengths[best]


def _auc(
    guessed: FoldPredictions, labels: Int64[np.ndarray, "users"], weights: Float64[np.ndarray, "resamples users"]
) -> Float64[np.ndarray, "resamples"]:
    """Mean one-against-rest AUC of each resample over pairs of users of one fold; NaN where a class is missing."""
    scores = guessed.log_odds.T
    values = np.array([_auc_of(score, labels == k, guessed.fold, weights) for k, score in enumerate(scores)])
    mean: np.ndarray = values.mean(axis=0)
    return mean


def _auc_of(
    score: Float64[np.ndarray, "users"],
    member: Bool[np.ndarray, "users"],
    fold: Int64[np.ndarray, "users"],
    weights: Float64[np.ndarray, "resamples users"],
) -> Float64[np.ndarray, "resamples"]:
    """Share of pairs (member, other) of one fold in the right order; a user counts as often as it was taken."""
    order = np.lexsort((score, fold))
    score, fold, member = score[order], fold[order], member[order]
    new = np.concatenate([[True], (score[1:] != score[:-1]) | (fold[1:] != fold[:-1])])
    starts = np.flatnonzero(new)
    taken = weights[:, order]
    positives = np.add.reduceat(taken * member, starts, axis=1)
    negatives = np.add.reduceat(taken * ~member, starts, axis=1)
    total = negatives.cumsum(axis=1)
    first = np.searchsorted(fold[starts], fold[starts])
    last = np.searchsorted(fold[starts], fold[starts], side="right") - 1
    before = (total - negatives)[:, first]
    wins = (positives * (total - negatives / 2 - before)).sum(axis=1)
    pairs = (positives * (total[:, last] - before)).sum(axis=1)
    return _ratio(wins, pairs)


def _mean_recall(
    right: Bool[np.ndarray, "users"],
    labels: Int64[np.ndarray, "users"],
    weights: Float64[np.ndarray, "resamples users"],
) -> Float64[np.ndarray, "resamples"]:
    """Mean over classes of the share guessed right, in each resample; NaN where a class is missing."""
    classes = np.eye(labels.max() + 1)[labels]
    found, there = weights @ (classes * right[:, None]), weights @ classes
    mean: np.ndarray = _ratio(found, there).mean(axis=1)
    return mean


def _ratio(counted: Float64[np.ndarray, "*shape"], of: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """The quotient; NaN where there is nothing to count."""
    quotient: np.ndarray = np.divide(counted, of, out=np.full(of.shape, np.nan), where=of > 0)
    return quotient


def _estimate(value: Float64[np.ndarray, "1"], resampled: Float64[np.ndarray, "resamples"], wider: float) -> Estimate:
    """The value, and its interval over the resamples in which every class occurs, widened about it."""
    ends = np.stack(percentile_interval(resampled[np.isfinite(resampled)]))
    low, high = (value + wider * (ends - value)).clip(0, 1)
    return Estimate(float(value[0]), float(low), float(high))
