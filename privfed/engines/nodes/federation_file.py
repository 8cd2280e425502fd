"""The federation file: which organisations take part, by key, and whose users each hosts, signed by the operator.

    federation.toml   the file
    federation.sig    Ed25519 of its digest by the operator, hexadecimal
    operator.pub      the operator's public key, hexadecimal; got from the operator in person

Every party pins all three in its folder. Nobody else's word decides who a key belongs to, who hosts a user, or how many
organisations a sum must have: a server cannot invite organisations of its own making, and no organisation can claim
another's users. A changed file has a higher version; parties never go back to a lower one.
"""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.files import read_file, write_file
from privfed.engines.nodes.protocol import OLDEST, PROTOCOL
from privfed.privacy import PlanError, configure
from privfed.privacy.user_ranges import from_ranges
from secure_agg.errors import SignatureRefused
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, length_prefixed, verify

FILE, SIGNATURE, OPERATOR = "federation.toml", "federation.sig", "operator.pub"

SERVER, SERVER_SEAT = "server", -1
HELPER = "helper"

_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_LABEL = b"privfed federation file"


class Organisation(BaseModel):
    """One organisation of a federation; its place in the file is its seat.

    Attributes:
        name: for people.
        key: Ed25519, by which its node signs.
        users: numbers of the users that it hosts, as ranges.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    key: _Key
    users: str


class FederationFile(BaseModel):
    """Who takes part in a federation, and what holds for every run of it.

    Attributes:
        name: of the federation.
        version: rises with every change.
        min_protocol: oldest version of the messages that parties may fall back to.
        server: Ed25519 key of the server.
        helper: Ed25519 key of the second server of sums between two servers, which must not collude with the first;
            empty where no run has such sums.
        population: users of all organisations.
        items: size of the catalogue.
        min_organisations: smallest number of organisations in a sum that is opened.
        corrupt: number of organisations that may collude with the server without learning more than the sum.
        mechanisms: kinds that runs may use; None leaves the choice to the nodes' policies.
        build: digest of the aggregator's build, for audits; empty where none is pinned.
        organisations: who takes part, in the order of their seats.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$")
    version: int = Field(ge=1, lt=2**31)
    min_protocol: int = Field(OLDEST, ge=OLDEST, lt=2**31)
    server: _Key
    helper: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    population: int = Field(ge=1, lt=2**40)
    items: int = Field(ge=1, lt=2**40)
    min_organisations: int = Field(3, ge=3)
    corrupt: int = Field(1, ge=0)
    mechanisms: tuple[str, ...] | None = None
    build: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    organisations: tuple[Organisation, ...] = Field(min_length=3, max_length=65_535)

    @model_validator(mode="after")
    def _parties_differ(self) -> Self:
        if self.min_protocol > PROTOCOL:
            raise ValueError(f"min_protocol = {self.min_protocol} and this software speaks {PROTOCOL}; update it")
        helping = bool(self.helper)
        for what, values in (
            ("name", [SERVER, *[HELPER] * helping, *(one.name for one in self.organisations)]),
            ("key", [self.server, *[self.helper] * helping, *(one.key for one in self.organisations)]),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"two parties have the same {what}; every party needs a {what} of its own")
        if self.min_organisations > len(self.organisations):
            raise ValueError(
                f"min_organisations = {self.min_organisations} of {len(self.organisations)} organisations; no sum "
                "would ever be opened"
            )
        everybody = np.sort(np.concatenate([self.users(seat) for seat in range(len(self.organisations))]))
        if (np.diff(everybody) == 0).any():
            raise ValueError(f"two organisations host user {everybody[:-1][np.diff(everybody) == 0][0]}")
        return self

    def users(self, seat: int) -> Int64[np.ndarray, " users"]:
        """The users that the organisation at a seat hosts, ascending."""
        return from_ranges(self.organisations[seat].users, limit=self.population)

    @property
    def canonical(self) -> bytes:
        """The content in JSON, which has one spelling: what devices read, which check it by its digest."""
        return self.model_dump_json(exclude_defaults=True).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever its spacing and comments; runs and signatures are bound to it."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def helper_seat(self) -> int | None:
        """The seat after those of the organisations, which is the helper's; None where there is no helper."""
        return len(self.organisations) if self.helper else None

    @property
    def seats(self) -> range:
        """Seats of all parties but the server."""
        return range(len(self.organisations) + bool(self.helper))

    def key(self, seat: int) -> bytes:
        """Public key of a party."""
        if seat == SERVER_SEAT:
            return bytes.fromhex(self.server)
        return bytes.fromhex(self.helper if seat == self.helper_seat else self.organisations[seat].key)

    def directory(self) -> dict[int, bytes]:
        """Public keys of the organisations, by seat."""
        return {seat: self.key(seat) for seat in range(len(self.organisations))}

    def seat_of(self, key: bytes) -> int | None:
        """The party that a public key belongs to; None where it is nobody's."""
        keys = {self.key(seat): seat for seat in (SERVER_SEAT, *self.seats)}
        return keys.get(key)

    def name_of(self, seat: int) -> str:
        """The party at a seat, for people."""
        if seat == SERVER_SEAT:
            return SERVER
        return HELPER if seat == self.helper_seat else self.organisations[seat].name

    def signature(self, operator: Identity) -> str:
        """The operator's signature, hexadecimal."""
        return operator.sign(_signed(self)).hex()

    def to_toml(self) -> str:
        """The file's text."""
        head = self.model_dump(mode="json", exclude={"organisations"}, exclude_defaults=True)
        lines = [f"{key} = {json.dumps(value)}" for key, value in head.items()]
        for one in self.organisations:
            lines += ["", "[[organisations]]", *(f"{k} = {json.dumps(v)}" for k, v in one.model_dump().items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, path: Path) -> "FederationFile":
        """The federation in a text.

        Raises:
            StateError: the text is no federation, in one sentence.
        """
        try:
            return configure(cls, tomllib.loads(text))
        except (tomllib.TOMLDecodeError, PlanError) as error:
            raise StateError(f"{path} is no federation file: {error}") from error


def write_federation(folder: Path, federation: FederationFile, signature: str, operator: bytes) -> None:
    """Put the file, its signature and the operator's public key into a party's folder.

    Raises:
        StateError: they cannot be written.
    """
    for name, content in (
        (FILE, federation.to_toml().encode()),
        (SIGNATURE, signature.encode() + b"\n"),
        (OPERATOR, operator.hex().encode() + b"\n"),
    ):
        write_file(folder / name, content, public=True)


def read_federation(folder: Path, operator: bytes | None = None) -> FederationFile:
    """The federation in a folder, once its signature is verified.

    Args:
        folder: of a party, or as it came from the operator.
        operator: public key that it has to be signed with; None takes the one that the folder pins.

    Raises:
        StateError: a file is missing or damaged, or the operator did not sign this content.
    """
    federation, signature = read_unsigned(folder / FILE), _hexadecimal(folder / SIGNATURE, SIGNATURE_BYTES)
    try:
        verify(operator or read_operator(folder), signature, _signed(federation))
    except SignatureRefused as error:
        key = f"whose key is in {folder / OPERATOR}" if operator is None else f"with the key {operator.hex()}"
        raise StateError(
            f"{folder / FILE} is not signed by the operator {key}; get the file and its signature from the operator "
            "again"
        ) from error
    return federation


def read_unsigned(path: Path) -> FederationFile:
    """The federation in a file, whoever wrote it.

    Raises:
        StateError: it cannot be read, or is no federation.
    """
    return FederationFile.from_toml(read_file(path).decode(errors="replace"), path)


def read_operator(folder: Path) -> bytes:
    """The operator's public key in a folder.

    Raises:
        StateError: there is none.
    """
    return _hexadecimal(folder / OPERATOR, KEY_BYTES)


def _hexadecimal(path: Path, size: int) -> bytes:
    try:
        value = bytes.fromhex(read_file(path).decode().strip())
    except StateError:
        raise
    except ValueError:
        value = b""
    if len(value) != size:
        raise StateError(f"{path} is not {size} bytes in hexadecimal digits; get it from the operator again")
    return value


def _signed(federation: FederationFile) -> bytes:
    return length_prefixed(_LABEL, bytes.fromhex(federation.digest))
