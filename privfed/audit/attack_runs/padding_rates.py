"""How probable it is that an item is sent as padding, as far as an aggregator can know: from how padding is sampled.

It sees how many rows everybody sends and which of them are public, so it knows how many fake items each client drew,
but not which items were out of their reach. With these rates the supporters of an item give away how many clients it is
private to (`attacks.supports.debiased_count`), up to the noise of the draw.
"""

import numpy as np
from jaxtyping import Float64

from attacks.supports import padding_probability, recover_examined_count
from privfed.data import Histories
from privfed.privacy.padding.base import SampledPadding

_NEWTON_STEPS = 60
_ALMOST_ONE = 1 - 1e-9


def padding_rates(padding: SampledPadding, sent: Histories, public: Histories) -> Float64[np.ndarray, "items"]:
    """The probability that a client sends row i as padding, mean over the clients to whom item i is not public.

    k fake items drawn from m items in proportion to weights w take item i with probability 1 - exp(-w_i tau), where tau
    makes these add up to k: exactly so for equal weights, and nearly where no weight is a large share of all.

    Args:
        padding: how rows were drawn.
        sent: rows of every client.
        public: those of them that everybody knows.
    """
    n_items, purchased = sent.n_items, public.counts
    p, rho = padding.answer_rates[1], padding.fake_items_per_row
    if p is not None:
        return np.full(n_items, p)
    weights = np.ones(n_items)
    if padding.popularity_power is not None:
        weights = (public.popularity() + 1.0) ** padding.popularity_power
    examined = np.rint(recover_examined_count(sent.counts - purchased, purchased, rho)).astype(np.int64)
    share = padding_probability(purchased, examined.clip(0, n_items - purchased), n_items, rho)
    shares, which = np.unique(share.clip(max=_ALMOST_ONE), return_inverse=True)
    taken = _inclusion(weights, shares)
    everybody = np.bincount(which, minlength=len(shares)) @ taken
    buyers = np.bincount(public.items, weights=taken[which[public.owners], public.items], minlength=n_items)
    others = sent.n_users - public.popularity()
    rates = np.divide(everybody - buyers, others, out=np.zeros(n_items), where=others > 0)
    return np.asarray(rates.clip(0.0, _ALMOST_ONE))


def _inclusion(
    weights: Float64[np.ndarray, "items"], shares: Float64[np.ndarray, "sizes"]
) -> Float64[np.ndarray, "sizes items"]:
    """1 - exp(-w tau) for draws of each size, given as shares of the items within reach.

    Their sum is concave in tau, below its tangents, so Newton's steps from 0 rise to the root and never past it.
    """
    relative = weights / weights.mean()
    tau = np.zeros((len(shares), 1))
    for _ in range(_NEWTON_STEPS):
        left = np.exp(-relative * tau)
        missing = shares[:, None] - 1 + left.mean(axis=1, keepdims=True)
        step = missing / (relative * left).mean(axis=1, keepdims=True)
        tau += step
        if np.all(step <= 1e-9 * (1 + tau)):
            break
    taken: Float64[np.ndarray, "sizes items"] = 1 - np.exp(-relative * tau)
    return taken
