"""The state of a client between two messages, and its encoding for a process that ends in between.

It contains the round's secrets in plaintext: store it like a private key.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from secure_agg.errors import ConfigurationError, SecureAggregationError
from secure_agg.masking.graph import Ids
from secure_agg.masking.messages import Stage
from secure_agg.masking.terms import BOUND_BYTES, MAX_CLIENTS, MAX_ROUND, Terms
from secure_agg.primitives.keys import KeyPair

SNAPSHOT_VERSION = 3

Ended = Literal["answered", "aborted"]

_END: dict[str | None, Ended | None] = {None: None, "answered": "answered", "aborted": "aborted"}


@dataclass(slots=True)
class ClientState:
    """The state of a client in one round.

    Attributes:
        client: id of the client.
        run: run of the round.
        last_round: only later rounds of the run are accepted.
        awaits: stage of the next message; None once the round has ended.
        ended: how the round ended, or None.
        terms: accepted terms.
        keys: mask pair and channel pair, as long as they are needed.
        context: digest that binds keys to terms and roster.
        roster: ids of all participants in rising order.
        neighbours: ids of the clients it shares masks with, in rising order.
        mask_keys: mask keys of the neighbours, in the same order.
        inbound_keys: by neighbour, the key that decrypts its shares for this client.
        self_seed: seed of the self mask.
        held_shares: by neighbour, a share of its mask key followed by a share of its self-mask seed.
        listed: under signed terms, participants that shared and, once the go-ahead is accepted, that checked.
        bound: digest of what the server sent with the round, bound into this client's masks and confirmation.
        confirmed: the survivors that this client signed.
    """

    client: int
    run: bytes
    last_round: int = -1
    awaits: Stage | None = Stage.INVITATION
    ended: Ended | None = None
    terms: Terms | None = None
    keys: tuple[KeyPair, KeyPair] | None = None
    context: bytes = b""
    roster: Ids = field(default_factory=lambda: np.empty(0, np.uint32))
    neighbours: tuple[int, ...] = ()
    mask_keys: tuple[bytes, ...] = ()
    inbound_keys: dict[int, bytes] = field(default_factory=dict)
    self_seed: bytearray = field(default_factory=bytearray)
    held_shares: dict[int, bytearray] = field(default_factory=dict)
    listed: frozenset[int] = frozenset()
    bound: bytes = bytes(BOUND_BYTES)
    confirmed: frozenset[int] = frozenset()

    def keep_shares_of(self, neighbours: Collection[int]) -> None:
        """Overwrite the shares of all other neighbours."""
        for neighbour in self.held_shares.keys() - set(neighbours):
            _wipe(self.held_shares.pop(neighbour))

    def delete_mask_secrets(self) -> None:
        """Overwrite or release the secrets of this client's own masks."""
        _wipe(self.self_seed)
        self.keys, self.mask_keys, self.inbound_keys = None, (), {}

    def end(self, how: Ended) -> None:
        """Delete every secret; only the fact that the round is over remains."""
        self.delete_mask_secrets()
        self.keep_shares_of(())
        self.terms, self.awaits, self.ended = None, None, how

    def encode(self) -> bytes:
        """Encode as JSON; the field names belong to the stored format and outlive renamed attributes."""
        return json.dumps(
            {
                "secure_agg snapshot": SNAPSHOT_VERSION,
                "client": self.client,
                "run": self.run.hex(),
                "after": self.last_round,
                "awaits": self.awaits,
                "ended": self.ended,
                "terms": self.terms and self.terms.encode().hex(),
                "keys": self.keys and [pair.private_bytes().hex() for pair in self.keys],
                "context": self.context.hex(),
                "roster": self.roster.tolist(),
                "neighbours": self.neighbours,
                "mask_keys": [key.hex() for key in self.mask_keys],
                "inbound": [[neighbour, key.hex()] for neighbour, key in self.inbound_keys.items()],
                "self_seed": self.self_seed.hex(),
                "held": [[neighbour, pair.hex()] for neighbour, pair in self.held_shares.items()],
                "listed": sorted(self.listed),
                "bound": self.bound.hex(),
                "confirmed": sorted(self.confirmed),
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ClientState":
        """Decode a stored state.

        Raises:
            ConfigurationError: the bytes are not a snapshot of this version.
        """
        try:
            known: dict[str, Any] = json.loads(data)
            if known["secure_agg snapshot"] != SNAPSHOT_VERSION:
                raise ConfigurationError(f"it is of version {known['secure_agg snapshot']}")
            return cls(
                client=_check_range(known["client"], 0, MAX_CLIENTS),
                run=bytes.fromhex(known["run"]),
                last_round=_check_range(known["after"], -1, MAX_ROUND),
                awaits=known["awaits"] and Stage(known["awaits"]),
                ended=_END[known["ended"]],
                terms=known["terms"] and Terms.decode(bytes.fromhex(known["terms"])),
                keys=known["keys"] and _key_pairs(*map(bytes.fromhex, known["keys"])),
                context=bytes.fromhex(known["context"]),
                roster=np.array(known["roster"], np.uint32),
                neighbours=tuple(known["neighbours"]),
                mask_keys=tuple(map(bytes.fromhex, known["mask_keys"])),
                inbound_keys={n: bytes.fromhex(key) for n, key in known["inbound"]},
                self_seed=bytearray.fromhex(known["self_seed"]),
                held_shares={n: bytearray.fromhex(pair) for n, pair in known["held"]},
                listed=frozenset(known["listed"]),
                bound=_check_bound(bytes.fromhex(known["bound"])),
                confirmed=frozenset(known["confirmed"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError, SecureAggregationError) as refused:
            raise ConfigurationError(
                f"these bytes are not a snapshot of version {SNAPSHOT_VERSION} of a masking client ({refused}); "
                "begin the round anew"
            ) from refused


def _check_range(value: object, minimum: int, limit: int) -> int:
    if type(value) is not int or not minimum <= value < limit:
        raise ConfigurationError(f"{value!r} is no whole number from {minimum} to {limit - 1}")
    return value


def _check_bound(bound: bytes) -> bytes:
    if len(bound) != BOUND_BYTES:
        raise ConfigurationError(f"bound has {len(bound)} bytes, not {BOUND_BYTES}")
    return bound


def _key_pairs(mask: bytes, channel: bytes) -> tuple[KeyPair, KeyPair]:
    return KeyPair.from_private(mask), KeyPair.from_private(channel)


def _wipe(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))
