"""Attribute inference: a user's gender, age or occupation from what it uploads.

The adversary knows the attribute of some users (who collude with it or published it) and has the same kind of evidence
about everybody: an upload, items that another attack recovered, a number of interactions. It trains a linear classifier
on the users it knows and applies it to the others (Kosinski, Stillwell & Graepel, PNAS 2013, on likes; Weinsberg,
Bhagat, Ioannidis & Taft, "BlurMe", RecSys 2012, on ratings of films; Zhang, Yuan & Yin, arXiv 2205.11857, on federated
recommenders). Users are split into stratified folds; each fold is predicted by a classifier that was trained on users
of the other folds only, and whose centring, scale and penalty were chosen there too.

Scores of two folds come from two classifiers and are not comparable, so an AUC counts pairs of users of one fold:

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
from attacks.metrics.bootstrap import SHARES, interval, user_weights
from attacks.metrics.estimate import Estimate

STRENGTHS = (0.1, 0.01, 1e-3, 1e-4)
"""L2 penalties to choose from, for rows of root mean square length 1."""

INNER_FOLDS = 3
"""Number of folds of the labelled users for the choice of the penalty."""


class EvidenceError(ValueError):
    """Evidence or labels on which no classifier can be trained and tested."""


@dataclass(frozen=True)
class AttributeResult:
    """How well an attribute is predicted.

    Attributes:
        auc: Cross-validated AUC, 0.5 for random guesses; mean one-against-rest of several classes.
        balanced_accuracy: Mean recall of the classes; one over their number for random or constant guesses.
        majority: Share of the largest class.
        n_users: Number of users predicted, each once.
        n_labelled: Number of users whose attribute the adversary knew, mean over folds.
        n_classes: Number of classes.
        strengths: Penalty chosen for each fold.
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
    """Predictions for every user, each by a classifier that was not trained on that user.

    Attributes:
        log_odds: Higher means "more likely of this class"; comparable within a fold only.
        guesses: Predicted class, for balanced accuracy.
        fold: Number of each user's fold.
        strengths: Penalty chosen for each fold.
        n_labelled: Number of users that each fold's classifier was trained on.
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
    """How well a linear classifier predicts an attribute of users it was not trained on.

    Intervals are bootstraps over users, widened by sqrt(1 + folds / (folds - 1)). Folds share training users, and any
    two users are once on either side, so resampling predictions alone would give too narrow intervals (without any
    evidence they miss 0.5 in 12 % of the cases instead of 5 %); the factor is the correction by Nadeau & Bengio,
    "Inference for the generalization error", Machine Learning 52, 2003.

    Args:
        evidence: The adversary's evidence about each user, as columns or as inner products. Columns are used as they
            are, up to one common scale: bring them to comparable units.
        labels: Class of each user, whole numbers from 0 or above.
        folds: Number of folds that users are split into.
        labelled: Share of all users whose attribute the adversary knows, sampled from the other folds, stratified by
            class; None takes all users of the other folds.
        strengths: Penalties to choose from, by cross-validated likelihood on the labelled users.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of folds, draws and bootstrap.

    Raises:
        EvidenceError: If labels are not one class per row, there is only one class, a class is too small for the
            folds, or evidence is not finite.
    """
    codes = _codes(labels)
    predicted = cross_predict(evidence, codes, folds=folds, labelled=labelled, strengths=strengths, seed=seed)
    n_users, n_classes = predicted.log_odds.shape
    weights = user_weights(n_users, resamples, seed)
    everyone, widening = np.ones((1, n_users)), float(np.sqrt(1 + folds / (folds - 1)))
    correct = predicted.guesses == codes
    return AttributeResult(
        auc=_estimate(_auc(predicted, codes, everyone), _auc(predicted, codes, weights), n_users, widening),
        balanced_accuracy=_estimate(
            _mean_recall(correct, codes, everyone), _mean_recall(correct, codes, weights), n_users, widening
        ),
        majority=float(np.bincount(codes).max() / n_users),
        n_users=n_users,
        n_labelled=float(np.mean(predicted.n_labelled)),
        n_classes=n_classes,
        strengths=predicted.strengths,
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
    """Predict every user once; arguments and errors are those of :func:`infer_attribute`."""
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
    fold = _stratified_parts(codes, folds, rng)
    log_odds, guesses = np.empty((len(rows), len(counts))), np.empty(len(rows), dtype=np.int64)
    chosen, sizes = [], []
    for number in range(folds):
        training = _labelled_users(codes, fold != number, labelled, rng)
        classifier, strength = _fit_best(rows[training], codes[training], strengths, rng)
        test = fold == number
        log_odds[test], guesses[test] = classifier.log_odds(rows[test]), classifier.guesses(rows[test])
        chosen.append(strength)
        sizes.append(len(training))
    return FoldPredictions(log_odds, guesses, fold, tuple(chosen), tuple(sizes))


def _rows(evidence: Float[np.ndarray, "users columns"] | Gram) -> Float64[np.ndarray, "users columns"]:
    """Evidence in at most as many columns as there are users."""
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
    """Classes 0 to K - 1, none of them empty."""
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or (labels < 0).any():
        raise EvidenceError(
            f"labels are {labels.dtype} of shape {labels.shape}; pass one whole number of 0 or more for every user, "
            "and leave out users whose attribute is unknown."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise EvidenceError(
            f"all {len(labels)} users have the same label, so there is nothing to tell apart; choose another "
            "attribute or audit more users."
        )
    return codes.astype(np.int64)


def _stratified_parts(
    labels: Int64[np.ndarray, "users"], parts: int, rng: np.random.Generator
) -> Int64[np.ndarray, "users"]:
    """Part of each user: parts of (almost) equal size, in every class and in all."""
    order = np.lexsort((rng.random(len(labels)), labels))
    # In order of class and then at random, so cycling through the parts deals out every class evenly.
    part = np.empty(len(labels), dtype=np.int64)
    part[order] = np.arange(len(labels)) % parts
    return part


def _labelled_users(
    labels: Int64[np.ndarray, "users"], others: Bool[np.ndarray, "users"], share: float | None, rng: np.random.Generator
) -> Int64[np.ndarray, "labelled"]:
    """Users of other folds whose attribute the adversary knows: `share` of every class's users, or all of them."""
    users = np.flatnonzero(others)
    if share is None:
        return users
    order = users[np.lexsort((rng.random(len(users)), labels[users]))]
    of_class = labels[order]
    # Position of each user among the users of its class, which are adjacent in `order`.
    rank = np.arange(len(order)) - np.searchsorted(of_class, of_class)
    return np.sort(order[rank < np.ceil(share * np.bincount(labels))[of_class]])


def _fit_best(
    rows: Float64[np.ndarray, "labelled columns"],
    labels: Int64[np.ndarray, "labelled"],
    strengths: Sequence[float],
    rng: np.random.Generator,
) -> tuple[Classifier, float]:
    """Classifier at the penalty with the largest cross-validated likelihood, and that penalty."""
    part = _stratified_parts(labels, INNER_FOLDS, rng)
    likelihood = np.zeros(len(strengths))
    for number in range(INNER_FOLDS):
        test = part == number
        for index, classifier in enumerate(fit_path(rows[~test], labels[~test], strengths)):
            likelihood[index] += classifier.log_probabilities(rows[test])[np.arange(test.sum()), labels[test]].sum()
    best = int(likelihood.argmax())
    return fit_path(rows, labels, strengths[: best + 1])[-1], strengths[best]


def _auc(
    predicted: FoldPredictions, labels: Int64[np.ndarray, "users"], weights: Float64[np.ndarray, "resamples users"]
) -> Float64[np.ndarray, "resamples"]:
    """Mean one-against-rest AUC of each resample over pairs of users of one fold; NaN where a class is missing."""
    scores = predicted.log_odds.T
    values = np.array([_auc_of(score, labels == k, predicted.fold, weights) for k, score in enumerate(scores)])
    mean: np.ndarray = values.mean(axis=0)
    return mean


def _auc_of(
    score: Float64[np.ndarray, "users"],
    member: Bool[np.ndarray, "users"],
    fold: Int64[np.ndarray, "users"],
    weights: Float64[np.ndarray, "resamples users"],
) -> Float64[np.ndarray, "resamples"]:
    """Share of pairs (member, other) of one fold in the right order, with users weighted by their resampled counts."""
    order = np.lexsort((score, fold))
    score, fold, member = score[order], fold[order], member[order]
    # Groups of equal score within a fold, in ascending order: all sums below are [resamples, groups].
    new_group = np.concatenate([[True], (score[1:] != score[:-1]) | (fold[1:] != fold[:-1])])
    starts = np.flatnonzero(new_group)
    counts = weights[:, order]
    positives = np.add.reduceat(counts * member, starts, axis=1)
    negatives = np.add.reduceat(counts * ~member, starts, axis=1)
    # Negatives below a group are the running total minus that of the folds before its own.
    total = negatives.cumsum(axis=1)
    first = np.searchsorted(fold[starts], fold[starts])
    last = np.searchsorted(fold[starts], fold[starts], side="right") - 1
    before = (total - negatives)[:, first]
    wins = (positives * (total - negatives / 2 - before)).sum(axis=1)
    pairs = (positives * (total[:, last] - before)).sum(axis=1)
    return _ratio(wins, pairs)


def _mean_recall(
    correct: Bool[np.ndarray, "users"],
    labels: Int64[np.ndarray, "users"],
    weights: Float64[np.ndarray, "resamples users"],
) -> Float64[np.ndarray, "resamples"]:
    """Mean recall over classes in each resample; NaN where a class is missing."""
    classes = np.eye(labels.max() + 1)[labels]
    hits, sizes = weights @ (classes * correct[:, None]), weights @ classes
    mean: np.ndarray = _ratio(hits, sizes).mean(axis=1)
    return mean


def _ratio(
    counts: Float64[np.ndarray, "*shape"], totals: Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Quotient, NaN where the total is 0."""
    quotient: np.ndarray = np.divide(counts, totals, out=np.full(totals.shape, np.nan), where=totals > 0)
    return quotient


def _estimate(
    value: Float64[np.ndarray, "1"], resampled: Float64[np.ndarray, "resamples"], n_users: int, widening: float
) -> Estimate:
    """The value with its interval over resamples in which every class occurs, widened about the value."""
    ends = np.stack(interval(float(value[0]), resampled[np.isfinite(resampled)], n_users))
    low, high = (value + widening * (ends - value)).clip(*SHARES)
    return Estimate(float(value[0]), float(low), float(high))
