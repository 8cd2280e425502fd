"""Sampling padding: from a user's histories to the rows that the device sends, once and for all.

One word per user and item decides, under the user's own key. The words depend on the padding's seed and not on the
run's, so that training again on the same history shows the same rows, however many other users there are. Fake items
that follow public histories depend on the public counts besides: where these change, so do some of the fake items, and
a device that samples again shows by intersection which of its rows were fake items.

One setting of padding is for one deployment. Two settings read the same words: more fake items include the fewer, so
that nothing dies out under intersection, but a row that one randomised response shows and another with the same q does
not holds no item for certain, whatever both epsilons.

A history that has grown shows it. Under randomised response, a row that was absent and is there now belongs to a new
item. Under fake items it is a new item or one of the rho fake items that came with it, and a row that has gone was an
item or a fake. A device that must hide that keeps its first rows.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from privfed.data import Histories
from privfed.federation import Purpose, Streams
from privfed.privacy.errors import PlanError
from privfed.privacy.padding.base import SampledPadding

_USERS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class PaddedHistories:
    """Histories behind padding.

    Attributes:
        kept: private items that answer, and only they may train.
        fake_items: rows that are sent and hold zeros.
    """

    kept: Histories
    fake_items: Histories


def sample_padding(padding: SampledPadding, private: Histories, public: Histories | None) -> PaddedHistories:
    """What padding makes of everybody's histories.

    A user's rows depend on the padding, the user's number and histories and, for fake items like public histories, on
    the public count of every item.

    Args:
        padding: the plan's.
        private: items to be hidden.
        public: items that everybody knows to be sent; they are never fake items. None where there are none.

    Raises:
        PlanError: fake items like the public histories, where there are none.
    """
    popularity = _popularity_weights(padding, public)
    streams = Streams.from_seed(padding.seed)
    kept, fake_items = list[tuple[np.ndarray, np.ndarray]](), list[tuple[np.ndarray, np.ndarray]]()
    for first in range(0, private.n_users, _USERS_AT_ONCE):
        users = np.arange(first, min(first + _USERS_AT_ONCE, private.n_users))
        own = private.mask(users)  # [users, items]
        known = np.zeros_like(own) if public is None else public.mask(users)
        own &= ~known
        words = streams.words(Purpose.PADDING, 0, 0, users.tolist(), private.n_items)
        for pairs, mask in zip((kept, fake_items), padding.sample(own, known, words, popularity), strict=True):
            row, item = np.nonzero(mask)
            pairs.append((users[row], item))
    return PaddedHistories(_histories(kept, private), _histories(fake_items, private))


def _popularity_weights(padding: SampledPadding, public: Histories | None) -> Float64[np.ndarray, " items"] | None:
    """Weights by which fake items follow the public histories; None where they follow none."""
    if padding.popularity_power is None:
        return None
    if public is None:
        raise PlanError(
            "padding.drawn = 'popularity' samples fake items like public histories, and with this method no history is "
            "public: choose padding.drawn = 'uniform'"
        )
    weights: Float64[np.ndarray, " items"] = (public.popularity().astype(np.float64) + 1) ** padding.popularity_power
    return weights


def _histories(pairs: list[tuple[np.ndarray, np.ndarray]], like: Histories) -> Histories:
    users, items = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return Histories.from_pairs(users, items, like.n_users, like.n_items)
