"""One party of a federation: the file that it pins, its own key, and the messages that are signed under both.

    frame = message | signature (64 bytes, Ed25519)

A signature covers the digest of the federation file, whether the message is a request, a reply or a receipt, and the
SHA-256 of the message; so a frame of another federation, or a request played back as a reply, does not verify.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.errors import SignatureError, StateError
from privfed.engines.nodes.federation_file import (
    FederationFile,
    Organisation,
    read_federation,
    write_federation,
)
from privfed.engines.nodes.files import read_file, write_file
from privfed.engines.nodes.protocol import PROTOCOLS
from privfed.privacy.user_ranges import to_ranges
from secure_agg.errors import SecureAggregationError, SignatureRefused
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, length_prefixed, verify

KEY_FILE = "identity.key"

Kind = Literal["request", "reply", "receipt", "sealing", "device request", "device reply"]


@dataclass(frozen=True, slots=True, eq=False)
class Party:
    """A server, an organisation, or the helper of sums between two servers.

    Attributes:
        federation: that it takes part in.
        identity: its signing key.
        seat: its place in the file; `SERVER_SEAT` for the server, `helper_seat` for the helper.
        speaks: versions of the messages.
    """

    federation: FederationFile
    identity: Identity
    seat: int
    speaks: tuple[int, ...] = PROTOCOLS

    @classmethod
    def from_identity(cls, federation: FederationFile, identity: Identity) -> "Party":
        """The party whose key this is.

        Raises:
            StateError: the federation knows no such key.
        """
        seat = federation.seat_of(identity.public)
        if seat is None:
            raise StateError(
                f"the federation file knows no party with the public key {identity.public.hex()}; have the operator "
                "add it, or use the key that it names"
            )
        return cls(federation, identity, seat)

    @classmethod
    def load(cls, folder: Path) -> "Party":
        """The party that lives in a folder.

        Raises:
            StateError: its key or the federation file is missing, damaged or not signed.
        """
        return cls.from_identity(read_federation(folder), read_identity(folder / KEY_FILE))

    def save(self, folder: Path, signature: str, operator: bytes) -> None:
        """Write the key, the federation file and its signature into a folder."""
        write_file(folder / KEY_FILE, self.identity.private_bytes())
        write_federation(folder, self.federation, signature, operator)

    def sign(self, kind: Kind, message: bytes) -> bytes:
        """The signature of a message."""
        return self.identity.sign(self._covered(kind, message))

    def frame(self, kind: Kind, message: bytes) -> bytes:
        """A message with its signature."""
        return message + self.sign(kind, message)

    def unframe(self, kind: Kind, frame: bytes, sender: int) -> memoryview:
        """The message in a frame of the party at a seat.

        Raises:
            SignatureError: that party did not sign it.
        """
        message = memoryview(frame)[: -SIGNATURE_BYTES or None]
        self.verify(kind, message, frame[len(message) :], sender)
        return message

    def verify(self, kind: Kind, message: bytes | memoryview, signature: bytes, sender: int) -> None:
        """Refuse what the party at a seat did not sign.

        Raises:
            SignatureError: naming who should have.
        """
        try:
            verify(self.federation.key(sender), signature, self._covered(kind, message))
        except SignatureRefused:
            raise SignatureError(
                f"the {kind} is not signed by {self.federation.name_of(sender)} under this federation file; drop it"
            ) from None

    def _covered(self, kind: Kind, message: bytes | memoryview) -> bytes:
        digest = hashlib.sha256(message).digest()
        return length_prefixed(b"privfed " + kind.encode(), bytes.fromhex(self.federation.digest), digest)


def read_identity(path: Path) -> Identity:
    """The signing key in a file.

    Raises:
        StateError: there is none.
    """
    try:
        return Identity.from_private(read_file(path))
    except SecureAggregationError as error:
        raise StateError(
            f"{path} is no signing key of {KEY_BYTES} bytes; restore it, or have a new key signed"
        ) from error


def found_federation(
    shards: Sequence[Int64[np.ndarray, " _"]],
    population: int,
    items: int,
    *,
    names: Sequence[str] | None = None,
    min_organisations: int = 3,
    corrupt: int = 1,
    keys: Sequence[bytes] | None = None,
    helper: bytes = b"",
) -> tuple[Party, list[Party], Identity]:
    """A new federation with keys for everybody, as an operator makes one for a trial on one machine.

    Args:
        shards: users of every organisation.
        population: users of all of them.
        items: size of the catalogue.
        names: of the organisations.
        min_organisations: smallest number in a sum.
        corrupt: how many may collude with the server.
        keys: private keys of server and organisations, where they are prescribed.
        helper: public key of the helper of sums between two servers; empty names none.

    Returns:
        The server, the organisations in the order of their seats, and the operator's key.
    """
    drawn = [
        Identity.from_private(key) for key in keys or [secrets.token_bytes(KEY_BYTES) for _ in range(len(shards) + 1)]
    ]
    organisations = tuple(
        Organisation(name=name, key=identity.public.hex(), users=to_ranges(users))
        for name, identity, users in zip(
            names or [f"organisation-{place}" for place in range(len(shards))], drawn[1:], shards, strict=True
        )
    )
    federation = FederationFile(
        name="trial", version=1, server=drawn[0].public.hex(), helper=helper.hex(), population=population, items=items,
        min_organisations=min_organisations, corrupt=corrupt, organisations=organisations,
    )  # fmt: skip
    parties = [Party.from_identity(federation, identity) for identity in drawn]
    return parties[0], parties[1:], Identity.generate()
