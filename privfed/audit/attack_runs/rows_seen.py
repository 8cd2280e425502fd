"""Who sees which rows a client sends, of the whole federation.

A sum over rows that hides values and not rows (secret sharing) shows them to its aggregators, unless every client sends
every row. Where uploads are seen as they are, the server sees them too. Behind masks over a whole table and behind
noise on every row nobody does. Everybody counts as enrolled: rows are named once, at the start.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from privfed.data import Histories
from privfed.experiment import Experiment
from privfed.methods import ClientData
from privfed.privacy.padding.base import SampledPadding
from privfed.setup.padding import private_items
from privfed.updates import Rows

_REHEARSED_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class RowsSeen:
    """Rows of every client of the federation.

    Attributes:
        sent: rows that each client sends.
        public: those of them that everybody may know.
        by: who sees them.
        padding: how padding was sampled among them; None where there is none.
        sampled: whether `sent` holds negatives, drawn anew in every round.
    """

    sent: Histories
    public: Histories
    by: Literal["aggregators", "server"]
    padding: SampledPadding | None
    sampled: bool = False


def public_items(experiment: Experiment) -> Histories:
    """Training items of every user where they are public, else nothing."""
    train = experiment.trained.train
    if experiment.registered.traits.public_target:
        return train
    return Histories(np.zeros(train.n_users + 1, np.int64), np.empty(0, np.int64), train.n_items)


def target_items(experiment: Experiment) -> Histories:
    """Items that are nobody else's business: examinations where training items are public, else training items."""
    data = ClientData.from_split(experiment.trained, experiment.config.protocol.negatives)
    return private_items(data, experiment.registered, experiment.config.settings())


def rows_seen(experiment: Experiment, t: int) -> RowsSeen | None:
    """The rows of every client, where anybody sees them; None where nobody does.

    Args:
        experiment: trained.
        t: rounds trained; where clients name rows anew in every round, those of the next one are taken.
    """
    mechanism, public = experiment.config.privacy.mechanism, public_items(experiment)
    sharing = mechanism.secret_sharing
    if not experiment.server.schema or (sharing is not None and sharing.padding.every_row):
        return None
    if sharing is not None:
        if sharing.padding.sampler is not None and experiment.support is not None:
            return RowsSeen(experiment.support, public, "aggregators", sharing.padding.sampler)
        if experiment.registered.traits.public_target:
            return RowsSeen(public.union(target_items(experiment)), public, "aggregators", None)
        return RowsSeen(_touched(experiment, t), public, "aggregators", None, sampled=True)
    if mechanism.release == "individual" and not mechanism.dense:
        return RowsSeen(public.union(target_items(experiment)), public, "server", None)
    return None


def _touched(experiment: Experiment, t: int) -> Histories:
    """Rows that clients would send in round `t`: training items with the negatives drawn for that round.

    Where a method spreads an item's row over several blocks, a row sent in any of them was sent.
    """
    owners, items = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    n_items, schema, blocks = experiment.parts.train.n_items, experiment.server.schema, experiment.item_blocks
    tables = [] if blocks is None or blocks.output is None else [blocks.output]
    if blocks is not None and blocks.rows is not None:
        tables = [name for name, block in schema.items() if block.shape[:1] == (n_items,)]
    for users in torch.split(torch.arange(experiment.n_users), _REHEARSED_AT_ONCE):
        _, updates = experiment.rehearse(users, t, schema)
        experiment.clients.discard()
        for part in () if updates is None else updates.parts:
            if isinstance(part, Rows) and part.block in tables:
                owners.append(users[part.owner].numpy())
                items.append(part.ids.numpy())
    pairs = np.unique(np.concatenate(owners) * n_items + np.concatenate(items))
    return Histories.from_pairs(pairs // n_items, pairs % n_items, experiment.n_users, n_items)
