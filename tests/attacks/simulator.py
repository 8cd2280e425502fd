"""A tiny federated recommender: one linear head on item rows, four sampled negatives per positive."""

import numpy as np


def popularity_weights(n_items):
    weight = 1 / np.arange(1, n_items + 1) ** 0.8
    return weight / weight.sum()


def histories(rng, n_users, n_items, low=15, high=60):
    """Training, held-out and seen masks; items drawn by popularity."""
    members = np.zeros((n_users, n_items), bool)
    held_out = np.zeros_like(members)
    for user in range(n_users):
        own = rng.choice(n_items, rng.integers(low, high), replace=False, p=popularity_weights(n_items))
        members[user, own[2:]] = True
        held_out[user, own[:2]] = True
    return members, held_out


def uploads(rng, members, width=16, *, shared_head=True, negatives=4, fakes=0):
    """One round of local training (one SGD step on the binary cross-entropy) for every user."""
    n_users, n_items = members.shape
    table = 0.1 * rng.normal(size=(n_items, width))
    common = rng.normal(size=width)
    out = np.zeros((n_users, n_items, width))
    for user in range(n_users):
        head = common + 0.2 * rng.normal(size=width) if shared_head else rng.normal(size=width)
        positives = np.flatnonzero(members[user])
        rest = np.flatnonzero(~members[user])
        fake = rng.choice(rest, fakes * len(positives), replace=False)
        drawn = rng.choice(np.setdiff1d(rest, fake), negatives * (len(positives) + len(fake)))
        items = np.concatenate([positives, fake, drawn])
        labels = np.repeat([1.0, 0.0], [len(positives) + len(fake), len(drawn)])
        error = labels - 1 / (1 + np.exp(-table[items] @ head))
        np.add.at(out[user], items, error[:, None] * head)
    return out.astype(np.float32)
