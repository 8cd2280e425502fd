"""Two tiny federated recommenders: a linear head on item rows with sampled negatives, and an autoencoder."""

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


def vae_uploads(rng, members, width=16, *, steps=1, lr=0.01, dropout=0.5):
    """One round of an autoencoder x -> tanh(x W) -> softmax(h V^T + b): `steps` of SGD on the multinomial loss.

    Returns inputs (change of W), uploads (change of V) and bias (change of b), each with users first.
    """
    n_users, n_items = members.shape
    start = {
        "inputs": 0.1 * rng.normal(size=(n_items, width)),
        "uploads": 0.1 * rng.normal(size=(n_items, width)),
        "bias": np.zeros(n_items),
    }
    local = {name: np.repeat(value[None], n_users, axis=0) for name, value in start.items()}
    history = members.astype(np.float64)
    x = history / np.linalg.norm(history, axis=1, keepdims=True)
    for _ in range(steps):
        fed = x * (rng.random(x.shape) >= dropout) / (1 - dropout)
        h = np.tanh(np.einsum("ui,uiw->uw", fed, local["inputs"]))
        logits = np.einsum("uw,uiw->ui", h, local["uploads"]) + local["bias"]
        softmax = np.exp(logits - logits.max(axis=1, keepdims=True))
        softmax /= softmax.sum(axis=1, keepdims=True)
        error = history.sum(axis=1, keepdims=True) * softmax - history
        back = np.einsum("ui,uiw->uw", error, local["uploads"]) * (1 - h**2)
        local["bias"] -= lr * error
        local["uploads"] -= lr * error[:, :, None] * h[:, None]
        local["inputs"] -= lr * fed[:, :, None] * back[:, None]
    return {name: (local[name] - start[name]).astype(np.float32) for name in start}


def locally_private(rng, blocks, clip=1.0, noise_multiplier=5.0):
    """Every user's blocks scaled to a joint L2 norm of at most `clip`, with Gaussian noise on every coordinate."""
    squares = sum(np.square(block).reshape(len(block), -1).sum(axis=1) for block in blocks.values())
    factor = np.minimum(1, clip / np.sqrt(squares))
    out = {}
    for name, block in blocks.items():
        clipped = block * factor.reshape(-1, *[1] * (block.ndim - 1))
        out[name] = (clipped + rng.normal(0, noise_multiplier * clip, block.shape)).astype(np.float32)
    return out


def shopping(rng, n_users, n_items, bought=(3, 9), looked=(10, 30), taste=1.0):
    """Purchases, examinations (disjoint) and how each item fits each user; drawn by popularity times taste."""
    fit = taste * rng.normal(size=(n_users, 4)) @ rng.normal(size=(4, n_items)) / 2
    weight = np.log(popularity_weights(n_items)) + fit
    order = (-weight - rng.gumbel(size=weight.shape)).argsort(axis=1)
    n_bought, n_looked = rng.integers(*bought, n_users), rng.integers(*looked, n_users)
    public, examined = np.zeros((2, n_users, n_items), bool)
    for user, (b, e) in enumerate(zip(n_bought, n_looked, strict=True)):
        mixed = rng.permutation(order[user, : b + e])
        public[user, mixed[:b]] = True
        examined[user, mixed[b:]] = True
    return public, examined, fit.astype(np.float32)


def padded(rng, public, examined, rho, weight=None):
    """Supports with rho fake items per real item, uniform or by weight, without replacement (exponential keys)."""
    real = public | examined
    with np.errstate(divide="ignore"):
        key = rng.exponential(size=real.shape) / (1.0 if weight is None else weight)
    rank = np.where(real, np.inf, key).argsort(axis=1).argsort(axis=1)
    return real | (rank < np.rint(rho * real.sum(axis=1, keepdims=True))) & ~real


def randomised(rng, public, examined, q, p):
    """Supports by randomised response; purchases are always sent."""
    return public | (rng.random(public.shape) < np.where(examined, q, p))
