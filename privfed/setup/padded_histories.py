"""Drawing cover: from a user's histories to the rows that the device sends, once and for all.

One word per user and item decides, under the user's own key. The words depend on the cover's seed and not on the run's,
so that training again on the same history shows the same rows, however many other users there are. Fakes drawn like
public histories follow the public counts besides: where these change, so do some of the fakes, and a device that draws
again shows by intersection which of its rows were fakes.

One setting of a cover is for one deployment. Two settings read the same words: more fakes include the fewer, so that
nothing dies out under intersection, but a row that one randomised response shows and another with the same q does not
holds no item for certain, whatever both epsilons.

A history that has grown shows it. Under randomised response, a row that was absent and is there now belongs to a new
item. Under fakes it is a new item or one of the rho fakes that came with it, and a row that has gone was an item or a
fake. A device that must hide that keeps its first rows.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, UInt32

from privfed.data import Histories
from privfed.federation import Purpose, Streams
from privfed.privacy.errors import PlanError
from privfed.privacy.padding import WORDS, FakeItems, RandomisedResponse

_USERS_AT_ONCE = 256
_TIE = 2.0**-50
"""Words that are equal go to the lower item, so that a draw does not depend on how a sort treats ties."""


@dataclass(frozen=True, slots=True, eq=False)
class PaddedHistories:
    """Histories behind a cover.

    Attributes:
        kept: private items that answer, and only they may train.
        fake_items: rows that are sent and hold zeros.
    """

    kept: Histories
    fake_items: Histories


def sample_padding(
    padding: FakeItems | RandomisedResponse, private: Histories, public: Histories | None
) -> PaddedHistories:
    """What a cover makes of everybody's histories.

    A user's rows depend on the cover, the user's number and histories and, for fakes drawn like public histories, on
    the public count of every item.

    Args:
        padding: the plan's.
        private: items to be covered.
        public: items that everybody knows to be sent; they are never fakes. None where there are none.

    Raises:
        PlanError: fakes like the public histories, where there are none.
    """
    popularity = None
    if isinstance(padding, FakeItems) and padding.drawn == "popularity":
        if public is None:
            raise PlanError(
                "padding.drawn = 'popularity' draws fakes like public histories, and with this method no history is "
                "public: choose padding.drawn = 'uniform'"
            )
        popularity = (public.popularity().astype(np.float64) + 1) ** padding.power
    streams = Streams.from_seed(padding.seed)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"kept": [], "fakes": []}
    for first in range(0, private.n_users, _USERS_AT_ONCE):
        users = np.arange(first, min(first + _USERS_AT_ONCE, private.n_users))
        own = private.mask(users)
        known = np.zeros_like(own) if public is None else public.mask(users)
        own &= ~known
        words = streams.words(Purpose.COVER, 0, 0, users.tolist(), private.n_items)
        kept, fake_items = _answers(padding, own, known, words, popularity)
        for name, mask in (("kept", kept), ("fakes", fake_items)):
            row, item = np.nonzero(mask)
            parts[name].append((users[row], item))
    made = {
        name: Histories.from_pairs(
            np.concatenate([user for user, _ in pairs]),
            np.concatenate([item for _, item in pairs]),
            private.n_users,
            private.n_items,
        )
        for name, pairs in parts.items()
    }
    return PaddedHistories(made["kept"], made["fakes"])


def _answers(
    padding: FakeItems | RandomisedResponse,
    own: Bool[np.ndarray, "users items"],
    known: Bool[np.ndarray, "users items"],
    words: UInt32[np.ndarray, "users items"],
    popularity: Float64[np.ndarray, "items"] | None,
) -> tuple[Bool[np.ndarray, "users items"], Bool[np.ndarray, "users items"]]:
    """Which private items answer, and which others do."""
    if isinstance(padding, RandomisedResponse):
        q, p = padding.thresholds
        return own & (words < np.uint64(q)), ~own & ~known & (words < np.uint64(p))
    taken = own | known
    room = (~taken).sum(1)
    wanted = np.minimum(np.rint(padding.rho * taken.sum(1)), room).astype(np.int64)
    # The k smallest of Exp(1) / weight are k draws without replacement in proportion to the weights.
    keys = words + 0.5 if popularity is None else -np.log((words + 0.5) / WORDS) / popularity
    keys *= 1 + np.arange(keys.shape[1]) * _TIE
    keys[taken] = np.inf
    fake_items = np.zeros_like(own)
    most = int(wanted.max(initial=0))
    if most:
        smallest = np.argpartition(keys, most - 1, axis=1)[:, :most]
        ranked = np.argsort(np.take_along_axis(keys, smallest, axis=1), axis=1)
        order = np.take_along_axis(smallest, ranked, axis=1)
        np.put_along_axis(fake_items, order, np.arange(most) < wanted[:, None], axis=1)
    return own, fake_items
