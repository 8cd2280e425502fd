"""What anybody can rebuild of private user codes: a device's own update, run on public purchases and nothing else.

A user's code never leaves the device. But it is a function of the item codes, of the user's purchases and of its
examinations, and all but the last are public. So whoever holds the item codes can play a device that examined nothing
and sweep over its bits until they stay; what examinations really add to a code is what such a guess gets wrong.
"""

from typing import Literal

import numpy as np
from jaxtyping import Int8, Int64

from privfed.compute.devices import on_host, placed
from privfed.data import Histories
from privfed.federation import Call, Message, Streams, begin_query
from privfed.methods.client_data import ClientData
from privfed.methods.dfmr.client import DFMRClients
from privfed.methods.dfmr.codes import unpack
from privfed.methods.dfmr.config import DFMRConfig

Start = Literal["random codes", "purchased items"]
STARTS: tuple[Start, ...] = ("random codes", "purchased items")
"""Where a guess may begin: at random, or with the bits that purchased items have more often than the catalogue."""

_SWEEPS = 12


def rebuild_codes(
    config: DFMRConfig,
    public: Message,
    purchases: Histories,
    users: Int64[np.ndarray, "n"],
    start: Start,
    *,
    seed: int = 0,
    sweeps: int = _SWEEPS,
) -> Int8[np.ndarray, "n d"]:
    """Guess user codes from what the server sends to everybody, and from everybody's purchases.

    Args:
        config: settings of the method.
        public: what the server sends after the last round (`DFMRServer.public`).
        purchases: public purchases of the whole population.
        users: users whose codes are rebuilt, ascending.
        start: where to begin.
        seed: of random starts.
        sweeps: largest number of sweeps over the bits; fewer where nothing changes any more.
    """
    streams = Streams.from_seed(seed)
    alone = config.model_copy(update={"examinations": ()})
    devices = DFMRClients(alone, ClientData(purchases, purchases), streams)
    who, codes = placed(users), _first_guess(start, config.d, public, purchases.subset(users), seed)
    for sweep in range(sweeps):
        message = Message(public.shared, {"start": placed(codes)})
        begin_query(devices, "update", message)
        devices.update(Call(0, -1, "update", sweep, who, streams, {}), message)
        devices.commit()
        former, codes = codes, on_host(devices.state()["codes"])[users]
        if np.array_equal(former, codes):
            break
    return codes


def _first_guess(start: Start, d: int, public: Message, purchases: Histories, seed: int) -> Int8[np.ndarray, "n d"]:
    if start == "random codes":
        inclusion = np.random.default_rng(seed).integers(0, 2, (purchases.n_users, d), dtype=np.int8)
        return inclusion * np.int8(2) - np.int8(1)
    items = unpack(on_host(public.shared["codes"]), d)
    running = np.concatenate([np.zeros((1, d), np.int64), items[purchases.items].cumsum(0, dtype=np.int64)])
    own = (running[purchases.indptr[1:]] - running[purchases.indptr[:-1]]) * len(items)
    usual = items.sum(0, dtype=np.int64) * purchases.counts[:, None]
    return np.where(own >= usual, 1, -1).astype(np.int8)
