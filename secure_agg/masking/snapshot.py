"""The state of a client between two messages, and its bytes for a process that ends in between.

It holds the round's secrets in the clear. Whoever stores it stores it like a private key.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from secure_agg.errors import ConfigurationError, SecureAggregationError
from secure_agg.keys import KeyPair
from secure_agg.masking.graph import Ids
from secure_agg.masking.messages import Stage
from secure_agg.masking.terms import MAX_CLIENTS, MAX_ROUND, Terms

SNAPSHOT_VERSION = 1

Ended = Literal["answered", "aborted"]

_END: dict[str | None, Ended | None] = {None: None, "answered": "answered", "aborted": "aborted"}


@dataclass(slots=True)
class Snapshot:
    """What a client knows.

    Attributes:
        client: its id.
        run: of the round.
        after: only later rounds of the run are accepted.
        awaits: the message it takes next; nothing once the round has ended.
        ended: how.
        terms: agreed to.
        keys: mask pair and channel pair, as long as they are needed.
        context: binds keys to terms and roster.
        roster: ids of all participants in rising order.
        neighbours: ids of those it shares masks with, in rising order.
        mask_keys: their mask keys, in the same order.
        inbound: by neighbour, the key of what it seals for this client.
        self_seed: of the self mask.
        held: by neighbour that shared, a share of its mask key followed by a share of its self seed.
        confirmed: the survivors it signed.
    """

    client: int
    run: bytes
    after: int = -1
    awaits: Stage | None = Stage.INVITATION
    ended: Ended | None = None
    terms: Terms | None = None
    keys: tuple[KeyPair, KeyPair] | None = None
    context: bytes = b""
    roster: Ids = field(default_factory=lambda: np.empty(0, np.uint32))
    neighbours: tuple[int, ...] = ()
    mask_keys: tuple[bytes, ...] = ()
    inbound: dict[int, bytes] = field(default_factory=dict)
    self_seed: bytearray = field(default_factory=bytearray)
    held: dict[int, bytearray] = field(default_factory=dict)
    confirmed: frozenset[int] = frozenset()

    def forget_masks(self) -> None:
        """Overwrite or let go what made this client's own masks."""
        _wipe(self.self_seed)
        self.keys, self.mask_keys, self.inbound = None, (), {}

    def end(self, how: Ended) -> None:
        """Delete every secret; only the fact that the round is over stays."""
        self.forget_masks()
        for pair in self.held.values():
            _wipe(pair)
        self.held.clear()
        self.terms, self.awaits, self.ended = None, None, how

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps(
            {
                "secure_agg snapshot": SNAPSHOT_VERSION,
                "client": self.client,
                "run": self.run.hex(),
                "after": self.after,
                "awaits": self.awaits,
                "ended": self.ended,
                "terms": self.terms and self.terms.encode().hex(),
                "keys": self.keys and [pair.private_bytes().hex() for pair in self.keys],
                "context": self.context.hex(),
                "roster": self.roster.tolist(),
                "neighbours": self.neighbours,
                "mask_keys": [key.hex() for key in self.mask_keys],
                "inbound": [[neighbour, key.hex()] for neighbour, key in self.inbound.items()],
                "self_seed": self.self_seed.hex(),
                "held": [[neighbour, pair.hex()] for neighbour, pair in self.held.items()],
                "confirmed": sorted(self.confirmed),
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Snapshot":
        """The state in these bytes.

        Raises:
            ConfigurationError: they are not a snapshot of this version.
        """
        try:
            known: dict[str, Any] = json.loads(data)
            if known["secure_agg snapshot"] != SNAPSHOT_VERSION:
                raise ConfigurationError(f"it is of version {known['secure_agg snapshot']}")
            return cls(
                client=_whole(known["client"], 0, MAX_CLIENTS),
                run=bytes.fromhex(known["run"]),
                after=_whole(known["after"], -1, MAX_ROUND),
                awaits=known["awaits"] and Stage(known["awaits"]),
                ended=_END[known["ended"]],
                terms=known["terms"] and Terms.decode(bytes.fromhex(known["terms"])),
                keys=known["keys"] and _pairs(*map(bytes.fromhex, known["keys"])),
                context=bytes.fromhex(known["context"]),
                roster=np.array(known["roster"], np.uint32),
                neighbours=tuple(known["neighbours"]),
                mask_keys=tuple(map(bytes.fromhex, known["mask_keys"])),
                inbound={n: bytes.fromhex(key) for n, key in known["inbound"]},
                self_seed=bytearray.fromhex(known["self_seed"]),
                held={n: bytearray.fromhex(pair) for n, pair in known["held"]},
                confirmed=frozenset(known["confirmed"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError, SecureAggregationError) as refused:
            raise ConfigurationError(
                f"these bytes are not a snapshot of version {SNAPSHOT_VERSION} of a masking client ({refused}); "
                "begin the round anew"
            ) from refused


def _whole(value: object, least: int, limit: int) -> int:
    if type(value) is not int or not least <= value < limit:
        raise ConfigurationError(f"{value!r} is no whole number from {least} to {limit - 1}")
    return value


def _pairs(mask: bytes, channel: bytes) -> tuple[KeyPair, KeyPair]:
    return KeyPair.from_private(mask), KeyPair.from_private(channel)


def _wipe(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))
