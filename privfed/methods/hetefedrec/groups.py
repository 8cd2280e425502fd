"""Which users form which group: by activity (as published), by capacity or at random.

Activity is private: a group chosen by it reveals the bracket that a user's number of training items lies in. The
other two look at no data.
"""

import numpy as np
from jaxtyping import Int64

from privfed.compute.devices import on_host
from privfed.federation import Purpose, Streams
from privfed.methods.hetefedrec.config import HeteFedRecConfig

_CAPACITY_ASK = 1
"""Address of the words behind a device's capacity; query 0 of the same purpose draws its user vector."""


def assign_groups(
    config: HeteFedRecConfig,
    counts: Int64[np.ndarray, "population"],
    streams: Streams,
    users: Int64[np.ndarray, "users"] | None = None,
) -> Int64[np.ndarray, "users"]:
    """The group of every hosted user, 0 the smallest.

    Args:
        config: settings.
        counts: training items of everybody; looked at under `activity` alone.
        streams: a device's own randomness, for `capacity`; it numbers the hosted users from 0.
        users: those who are hosted; None hosts everybody.
    """
    users = np.arange(len(counts)) if users is None else users
    edges = np.cumsum(config.shares)[:-1]
    if config.groups == "activity":
        return np.searchsorted(_thresholds(config, counts, edges), counts[users], side="right").astype(np.int64)
    if config.groups == "capacity":
        drawn = on_host(streams.uniform(Purpose.INITIALISE, 0, _CAPACITY_ASK, range(len(users)), 1)[:, 0])
        return np.searchsorted(edges, drawn, side="right").astype(np.int64)
    order = np.random.default_rng(config.group_seed).permutation(len(counts))[users]
    return np.searchsorted(edges * len(counts), order, side="right").astype(np.int64)


def _thresholds(config: HeteFedRecConfig, counts: Int64[np.ndarray, "users"], edges: np.ndarray) -> np.ndarray:
    """Counts from which the next group begins: those given, or percentiles over users with training items."""
    if config.thresholds is not None:
        return np.array(config.thresholds)
    active = counts[counts > 0]
    return np.quantile(active, edges) if len(active) else np.zeros(len(edges))
