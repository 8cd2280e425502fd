"""What supports reveal, as formulas: posteriors, counts, and the epsilon of randomised response.

A client with purchases P and examinations E among m items sends each examination with probability q and any other item
it has not bought with probability p, independently:

* padding items (fake items) have q = 1. Drawing rho (|P| + |E|) of them uniformly gives p = phi = rho (|P| + |E|) /
  (m - |P| - |E|). An examination is never missing, so its absence is certain knowledge and no finite epsilon exists.
* randomised response has q < 1 and p > 0 (Warner, JASA 1965; memoised as in RAPPOR: Erlingsson, Pihur & Korolova, CCS
  2014). Its epsilon is exact.
* full support has q = p = 1 and reveals nothing.

Padding and randomised responses must be drawn once per user and kept: whatever is drawn afresh is found by intersecting
the rounds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.empirical.bounds import clopper_pearson_epsilon
from attacks.empirical.results import CONFIDENCE, LowerBound
from attacks.metrics.estimate import Estimate, user_mean
from attacks.views.supports import SupportView
from attacks.views.types import PerUser, ViewError


def uniform_padding_posterior(
    purchased: Int64[np.ndarray, "users"], examined: Int64[np.ndarray, "users"], rho: float
) -> Float64[np.ndarray, "users"]:
    """Share of examinations among the rows sent without a purchase: 1 / (1 + rho'), rho' = rho (1 + |P| / |E|).

    If the requested padding exceeds the catalogue, it is capped and the truth lies higher;
    :func:`support_posterior` with :func:`padding_probability` takes that into account.

    Args:
        purchased: |P| of each user.
        examined: |E| of each user.
        rho: Number of padding items per item purchased or examined, at least 0.

    Returns:
        Probabilities; NaN for a user who sends only purchases.

    Raises:
        ValueError: If rho is negative or not finite.
    """
    _check_rho(rho)
    padding: PerUser = rho * (purchased + examined).astype(np.float64)
    return _share(examined.astype(np.float64), padding)


def padding_probability(
    purchased: Int64[np.ndarray, "users"], examined: Int64[np.ndarray, "users"], n_items: int, rho: float
) -> Float64[np.ndarray, "users"]:
    """phi, the probability that uniform padding contains a given other item, at most 1.

    phi = rho (|P| + |E|) / (m - |P| - |E|).

    Args:
        purchased: |P| of each user.
        examined: |E| of each user.
        n_items: m, the size of the catalogue.
        rho: Number of padding items per item purchased or examined, at least 0.

    Returns:
        Probabilities; 0 for a user without other items.

    Raises:
        ValueError: If rho is negative or not finite, or a user has more items than the catalogue.
    """
    _check_rho(rho)
    rest = _rest(purchased, examined, n_items)
    phi: PerUser = np.divide(rho * (purchased + examined), rest, out=np.zeros(len(rest)), where=rest > 0)
    return phi.clip(max=1.0)


def support_posterior(
    purchased: Int64[np.ndarray, "users"],
    examined: Int64[np.ndarray, "users"],
    n_items: int,
    *,
    q: float,
    p: float | Float64[np.ndarray, "users"],
) -> Float64[np.ndarray, "users"]:
    """Expected share of examinations among rows sent without a purchase: q |E| / (q |E| + p (m - |P| - |E|)).

    Args:
        purchased: |P| of each user.
        examined: |E| of each user.
        n_items: m, the size of the catalogue.
        q: Probability that an examination is sent.
        p: Probability that another item is sent; one number, or one per user.

    Returns:
        Probabilities (the ratio of the two expected numbers of rows); NaN for a user without such rows.

    Raises:
        ValueError: If a probability is outside [0, 1] or a user has more items than the catalogue.
    """
    _check_probabilities(q, p)
    return _share(q * examined.astype(np.float64), p * _rest(purchased, examined, n_items))


def intersection_posterior(
    purchased: Int64[np.ndarray, "users"],
    examined: Int64[np.ndarray, "users"],
    n_items: int,
    rho: float,
    rounds: int,
) -> Float64[np.ndarray, "users"]:
    """Posterior of a row that was sent in every one of `rounds` rounds whose uniform padding was drawn afresh.

    A padding item of the first round survives with probability phi^(rounds - 1), an examination always.

    Args:
        purchased: |P| of each user.
        examined: |E| of each user.
        n_items: m, the size of the catalogue.
        rho: Number of padding items per item purchased or examined, at least 0.
        rounds: Number of rounds, at least 1.

    Raises:
        ValueError: If rho is negative or not finite, there is no round, or a user has more items than the catalogue.
    """
    if rounds < 1:
        raise ValueError(f"Got {rounds} rounds; an intersection needs at least 1.")
    phi = padding_probability(purchased, examined, n_items, rho)
    return support_posterior(purchased, examined, n_items, q=1.0, p=phi**rounds)


def intersect_supports(supports: Iterable[Bool[np.ndarray, "users items"]]) -> Bool[np.ndarray, "users items"]:
    """Rows that each user sent every time, over rounds, runs or retrainings.

    Args:
        supports: One mask per round or run, all of the same audited users; may be a generator.

    Raises:
        ViewError: If there is none, or shapes differ.
    """
    common: np.ndarray | None = None
    for sent in supports:
        if common is not None and sent.shape != common.shape:
            raise ViewError(
                f"A support has shape {sent.shape} but the first {common.shape}; pass the same audited users and the "
                "same catalogue every time."
            )
        common = sent.copy() if common is None else common & sent
    if common is None:
        raise ViewError("There is no support to intersect; pass at least one.")
    return common


def realised_posterior(view: SupportView, examined: Bool[np.ndarray, "users items"]) -> PerUser:
    """Share of examinations among the rows that each audited user sent without a purchase, as measured.

    :func:`attacks.metrics.user_mean` gives its mean with an interval.

    Args:
        view: Supports.
        examined: True examinations.

    Returns:
        Shares; NaN for a user who sent only purchases.

    Raises:
        ViewError: If the truth covers other users or items.
    """
    if examined.shape != view.sent.shape:
        raise ViewError(
            f"The examinations cover {examined.shape} (users, items) but the view {view.sent.shape}; build both from "
            "the same audited users, in the same order."
        )
    real, padding = ((view.unpurchased & side).sum(axis=1, dtype=np.float64) for side in (examined, ~examined))
    return _share(real, padding)


def support_auc(q: float, p: float) -> float:
    """AUC of "was it sent?" for an examination against a random other item: 1/2 + (q - p) / 2.

    Padding items have q = 1 and p = phi, hence 1 - phi / 2.

    Raises:
        ValueError: If a probability is outside [0, 1].
    """
    _check_probabilities(q, p)
    return 0.5 + (q - p) / 2


@dataclass(frozen=True)
class CountRecovery:
    """How well |E_u| was inferred from a support.

    Attributes:
        exact: Share of users whose count is correct after rounding to a whole number.
        absolute_error: Mean |estimate - truth|, in examinations, before rounding.
        n_users: Number of users.
    """

    exact: Estimate
    absolute_error: Estimate
    n_users: int


def recover_examined_count(
    unbought: Int64[np.ndarray, "users"], purchased: Int64[np.ndarray, "users"], rho: float
) -> Float64[np.ndarray, "users"]:
    """|E| from the number of rows sent, for padding of rho (|P| + |E|): (|supp - P| - rho |P|) / (1 + rho).

    Exact for a whole rho. A fractional number of padding items that is rounded to the nearest one moves the result by
    at most 1 / (2 + 2 rho), so rounding it is exact again. Too low for users whose padding was capped by the catalogue.

    Args:
        unbought: |supp - P|, number of rows sent without a purchase.
        purchased: |P| of each user.
        rho: Number of padding items per item purchased or examined, at least 0.

    Raises:
        ValueError: If rho is negative or not finite.
    """
    _check_rho(rho)
    return (unbought - rho * purchased) / (1 + rho)


def debiased_count(
    sent: Int64[np.ndarray, "counts"],
    unbought: Int64[np.ndarray, "counts"],
    *,
    q: float,
    p: float | Float64[np.ndarray, "counts"],
) -> Float64[np.ndarray, "counts"]:
    """Number of examinations among `unbought` pairs of which `sent` were sent: (sent - p unbought) / (q - p).

    Unbiased (Warner, JASA 1965) in both directions. Per user: rows sent without a purchase, of the m - |P| items not
    bought. Per item: its supporters, of the clients that did not buy it; then p may differ by item (popularity-matched
    padding), and for uniform padding it is the clients' mean phi.

    Args:
        sent: Number of pairs sent without a purchase.
        unbought: Number of pairs without a purchase.
        q: Probability that an examination is sent.
        p: Probability that another item is sent; one number, or one per count.

    Returns:
        Estimates, which may be negative or above `unbought`.

    Raises:
        ValueError: If a probability is outside [0, 1] or q does not exceed p.
    """
    _check_probabilities(q, p)
    if np.max(p, initial=0.0) >= q:
        raise ValueError(f"p goes up to {np.max(p)} but q is {q}; counts show only where q exceeds p.")
    return (sent - p * unbought) / (q - p)


def count_recovery(
    recovered: Float64[np.ndarray, "users"],
    examined: Int64[np.ndarray, "users"],
    *,
    resamples: int = 200,
    seed: int = 0,
) -> CountRecovery:
    """Compare recovered counts with the truth, with intervals over users.

    Args:
        recovered: Result of :func:`recover_examined_count` or :func:`debiased_count`.
        examined: True |E|.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ValueError: If there is no user.
    """
    correct = (np.rint(recovered) == examined).astype(np.float64)
    return CountRecovery(
        exact=user_mean(correct, resamples=resamples, seed=seed),
        absolute_error=user_mean(np.abs(recovered - examined), resamples=resamples, seed=seed),
        n_users=len(examined),
    )


def rr_epsilon_add_remove(q: float, p: float) -> float:
    """Epsilon of randomised response for add-or-remove-one-examination neighbours.

    epsilon = max(ln(q / p), ln((1 - p) / (1 - q))).

    One bit of the support changes its distribution from p to q. Infinite for padding items (q = 1 > p). For k
    examinations it is k times as much.

    Args:
        q: Probability that an examination is sent.
        p: Probability that another item is sent, at most q.

    Raises:
        ValueError: If not 0 <= p <= q <= 1.
    """
    return max(_log_ratios(q, p))


def rr_epsilon_swap(q: float, p: float) -> float:
    """Epsilon of randomised response for replace-one-examination neighbours: ln(q (1 - p) / (p (1 - q))).

    Two bits change, one each way, so this is the sum of the two logarithms of :func:`rr_epsilon_add_remove`.

    Args:
        q: Probability that an examination is sent.
        p: Probability that another item is sent, at most q.

    Raises:
        ValueError: If not 0 <= p <= q <= 1.
    """
    return sum(_log_ratios(q, p))


def support_epsilon_bound(
    with_item: Bool[np.ndarray, "trials"], without_item: Bool[np.ndarray, "trials"], *, confidence: float = CONFIDENCE
) -> LowerBound:
    """Lower bound on a support's epsilon from an event fixed beforehand, over trials with independent randomness.

    For add-or-remove neighbours the event is "the item is in the support", and the rates of it and of its complement
    both count. For swapped neighbours it is "the one is in the support and the other is not". Each trial must use a new
    seed, because memoised randomness repeats itself. For padding items the bound grows with the logarithm of the number
    of trials, without limit.

    Args:
        with_item: Whether the event happened, in trials in which the item was examined.
        without_item: Whether it happened in trials in which it was not.
        confidence: Probability with which the bound is below the truth.

    Raises:
        ValueError: If a world has no trial or the confidence is outside its range.
    """
    members, nonmembers = with_item.astype(np.float64), without_item.astype(np.float64)
    return clopper_pearson_epsilon(members, nonmembers, threshold=0.5, confidence=confidence)


def _share(real: PerUser, padding: PerUser) -> PerUser:
    """Share real / (real + padding), NaN where both are 0."""
    total = real + padding
    share: PerUser = np.divide(real, total, out=np.full(len(total), np.nan), where=total > 0)
    return share


def _rest(
    purchased: Int64[np.ndarray, "users"], examined: Int64[np.ndarray, "users"], n_items: int
) -> Int64[np.ndarray, "users"]:
    """Number of items neither purchased nor examined."""
    rest = np.asarray(n_items - purchased - examined)
    if rest.min(initial=0) < 0:
        raise ValueError(
            f"A user has {n_items - rest.min()} items of a catalogue of {n_items}; pass the whole catalogue's size."
        )
    return rest


def _log_ratios(q: float, p: float) -> tuple[float, float]:
    """ln(q / p) and ln((1 - p) / (1 - q)); 0 / 0 is no evidence."""
    if not 0 <= p <= q <= 1:
        raise ValueError(f"Got q={q} and p={p}; an examination must be sent at least as often as another item.")
    if q == p:
        return 0.0, 0.0
    sent = math.log(q / p) if p > 0 else math.inf
    absent = math.log((1 - p) / (1 - q)) if q < 1 else math.inf
    return sent, absent


def _check_rho(rho: float) -> None:
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho is {rho}; pass the number of padding items per real item, at least 0.")


def _check_probabilities(q: float, p: float | np.ndarray) -> None:
    if not (0 <= q <= 1 and np.all((np.asarray(p) >= 0) & (np.asarray(p) <= 1))):
        raise ValueError(f"Got q={q} and p={p}; pass probabilities between 0 and 1.")
