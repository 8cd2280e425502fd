"""Controls: runs that a method has to beat before its quality says anything about federated learning.

* `no-communication`: every device is a federation of its own. It runs the method's server for itself, from the same
  public start and with nobody else in the cohort, so that it learns from its own history alone and nothing is sent. A
  method that is no better than this has gained nothing from others. A server that leaves its model as it is for so few
  clients (GPFedRec's `min_neighbours`) does so here, too.
* `shuffled`: the items of every user are renamed at random, for this user alone (`shuffled_histories`), so that no
  history says anything about what is held out. What is better than chance then is what split and protocol give away,
  such as negatives that are never held-out items.
* `untrained`: the public start before any round, and private parameters as they are then.

Two more need no run of their own: popularity stands beside every run, and `protocol.negatives` says whether held-out
items may be drawn as negatives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from privfed.data import Histories, Split

Control = Literal["no-communication", "shuffled", "untrained"]
CONTROLS: Mapping[Control, str] = {
    "no-communication": "devices that train alone",
    "shuffled": "training on shuffled histories",
    "untrained": "the untrained model",
}
"""Every control, and what it is in a few words."""

SILENT: frozenset[Control] = frozenset({"no-communication", "untrained"})
"""Controls in which nothing is sent."""

NOTHING_SENT = "this control sends nothing, so there is no release that a guarantee could speak of"
"""Why a silent control has no finite epsilon, although nobody learns anything from it."""

_ENTRIES_PER_BLOCK = 4_000_000
_SHUFFLES = 0x5AFF1E


def control_sentence(control: Control) -> str:
    """What was run instead of the method, in a sentence."""
    return {
        "no-communication": "Control: every device trains alone from the public start; nothing is sent, and no device "
        "learns from another.",
        "shuffled": "Control: the items of every user are renamed at random, for this user alone, so whatever is "
        "better than chance is given away by the split and the protocol.",
        "untrained": "Control: nothing is trained; scores are those of the model before the first round.",
    }[control]


def shuffled_histories(parts: Split, seed: int) -> Split:
    """The same split with the items of every user renamed by a permutation of the catalogue of the user's own.

    Each permutation is drawn uniformly and renames all of a user: training, validation, test and other behaviours.
    Sizes, order, ratings and what overlaps what stay as they are. No item means the same to two users, so neither its
    popularity nor what goes with it can be learned, and an item that is held out is any of those that a user does not
    train on with the same probability: a ranking that knows no more than the training items of everybody finds it by
    chance alone.
    """
    kept = [parts.train, parts.valid, parts.test, *parts.auxiliary.values()]
    renamed = _renamed(np.random.default_rng([seed, _SHUFFLES]), kept)
    train, valid, test, *others = renamed
    return replace(
        parts, train=train, valid=valid, test=test, auxiliary=dict(zip(parts.auxiliary, others, strict=True))
    )


def _renamed(rng: np.random.Generator, several: Sequence[Histories]) -> list[Histories]:
    """Histories of the same users with the items of each user renamed alike."""
    n_users, n_items = several[0].n_users, several[0].n_items
    new = [np.empty_like(histories.items) for histories in several]
    step = max(1, _ENTRIES_PER_BLOCK // n_items)
    for first in range(0, n_users, step):
        last = min(n_users, first + step)
        # [users, items]: the order of random keys is a uniformly random permutation.
        names = rng.random((last - first, n_items)).argsort(axis=1)
        for histories, items in zip(several, new, strict=True):
            block = slice(histories.indptr[first], histories.indptr[last])
            items[block] = names[histories.owners[block] - first, histories.items[block]]
    return [replace(histories, items=items) for histories, items in zip(several, new, strict=True)]
