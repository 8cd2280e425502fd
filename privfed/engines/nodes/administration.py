"""What people do with a federation file: make keys, sign it, change keys and members, install it at a party.

    operator's folder   federation.toml, federation.sig, operator.pub, and under signed/ every version that was signed
    party's folder      the same three, and identity.key; identity.pub is its public half, which the operator gets

A version that was signed never changes: whoever changes a federation signs the next one. A party takes a file only from
the operator whose key it has pinned, and never one that is older than its own.
"""

from pathlib import Path

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import (
    FILE,
    HELPER,
    OPERATOR,
    SERVER,
    SIGNATURE,
    FederationFile,
    read_federation,
    read_operator,
    read_unsigned,
)
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.party import KEY_FILE, Party, read_identity
from privfed.privacy import configure
from secure_agg.primitives.keys import Identity

PUBLIC_FILE, SIGNED = "identity.pub", "signed"


def make_identity(folder: Path) -> Identity:
    """Make a key pair in a folder: `identity.key`, for its owner alone, and `identity.pub`, for the operator.

    Raises:
        StateError: there is a key already, or the folder cannot be written.
    """
    make_folder(folder)
    if (folder / KEY_FILE).exists():
        raise StateError(f"{folder} holds a key already, and keys are never overwritten; name a new folder")
    identity = Identity.generate()
    write_file(folder / KEY_FILE, identity.private_bytes())
    write_file(folder / PUBLIC_FILE, identity.public.hex().encode() + b"\n", public=True)
    return identity


def sign(folder: Path, operator: Identity) -> FederationFile:
    """Sign the federation file in the operator's folder, and keep it among all that were signed.

    Raises:
        StateError: it is no federation, another operator's, or of a version that was signed with another content.
    """
    return _publish(folder, read_unsigned(folder / FILE), read_file(folder / FILE), operator)


def rotate(folder: Path, name: str, key: bytes, operator: Identity) -> FederationFile:
    """Sign the next version of a federation, in which a party has another key.

    Args:
        folder: of the operator.
        name: of the organisation, `server` or `helper`.
        key: its new public key.
        operator: who signs.

    Raises:
        StateError: the folder has no signed federation, or there is no such party.
        PlanError: the key is a party's already.
    """
    federation = read_federation(folder)
    if name == SERVER or (name == HELPER and federation.helper):
        _refuse_known(federation, key)
        return _sign_next(folder, federation, operator, {name: key.hex()})
    seat = _seat(federation, name)
    _refuse_known(federation, key)
    organisations = [one.model_dump() for one in federation.organisations]
    organisations[seat]["key"] = key.hex()
    return _sign_next(folder, federation, operator, {"organisations": organisations})


def revoke(folder: Path, name: str, operator: Identity) -> FederationFile:
    """Sign the next version of a federation, in which an organisation takes no part any more.

    Raises:
        StateError: the folder has no signed federation, or there is no such organisation.
        PlanError: too few are left.
    """
    federation = read_federation(folder)
    seat = _seat(federation, name)
    left = [one.model_dump() for one in federation.organisations]
    del left[seat]
    return _sign_next(folder, federation, operator, {"organisations": left})


def install(source: Path, folder: Path, operator: bytes | None = None, key: Path | None = None) -> Party:
    """Take over a signed federation at a party, and a new key with it where one is given.

    Args:
        source: folder with the three files, as they came from the operator.
        folder: of the party.
        operator: the operator's public key, got in person; needed where the folder has pinned none yet.
        key: file of the party's new private key; None keeps the one in the folder.

    Raises:
        StateError: the pinned operator did not sign this federation, it is older than the one that is pinned, or it
            does not know the party's key; nothing was changed.
    """
    pinned = read_operator(folder) if (folder / OPERATOR).exists() else operator
    if pinned is None:
        raise StateError(f"no operator's key is pinned in {folder} yet; give the one that the operator gave you")
    if operator not in (None, pinned):
        raise StateError(f"{folder / OPERATOR} pins another operator's key than the given one; find out who is right")
    federation = read_federation(source, pinned)
    if (folder / FILE).exists():
        _require_newer(federation, read_unsigned(folder / FILE), "is pinned")
    party = Party.from_identity(federation, read_identity(key or folder / KEY_FILE))
    if key is not None:
        write_file(folder / KEY_FILE, party.identity.private_bytes())
    for name in (FILE, SIGNATURE):
        write_file(folder / name, read_file(source / name), public=True)
    write_file(folder / OPERATOR, pinned.hex().encode() + b"\n", public=True)
    return party


def _require_newer(federation: FederationFile, before: FederationFile, what: str) -> None:
    """Return quietly where a federation follows another one, or is that one.

    Raises:
        StateError: it is older, or another one of the same version.
    """
    if federation.version <= before.version and federation.digest != before.digest:
        raise StateError(
            f"version {before.version} {what} already and this is version {federation.version} with another content; "
            f"take a version above {before.version}"
        )


def _seat(federation: FederationFile, name: str) -> int:
    names = [one.name for one in federation.organisations]
    if name not in names:
        raise StateError(f"{name!r} is no organisation of this federation; choose one of {', '.join(names)}")
    return names.index(name)


def _refuse_known(federation: FederationFile, key: bytes) -> None:
    if (seat := federation.seat_of(key)) is not None:
        raise StateError(f"that is the key of {federation.name_of(seat)} already; have a new one made")


def _sign_next(
    folder: Path, federation: FederationFile, operator: Identity, changes: dict[str, object]
) -> FederationFile:
    following = configure(FederationFile, federation.model_dump() | {"version": federation.version + 1} | changes)
    return _publish(folder, following, following.to_toml().encode(), operator)


def _publish(folder: Path, federation: FederationFile, text: bytes, operator: Identity) -> FederationFile:
    """Write a federation and its signature, unless they contradict what was signed before."""
    if (folder / OPERATOR).exists() and read_operator(folder) != operator.public:
        raise StateError(f"{folder / OPERATOR} is another operator's key; sign with the key that belongs to it")
    signed = [read_unsigned(path) for path in (folder / SIGNED).glob("*.toml")]
    if signed:
        _require_newer(federation, max(signed, key=lambda one: one.version), "was signed")
    make_folder(folder / SIGNED)
    for path, content in (
        (folder / SIGNED / f"{federation.version}.toml", text),
        (folder / FILE, text),
        (folder / SIGNATURE, federation.signature(operator).encode() + b"\n"),
        (folder / OPERATOR, operator.public.hex().encode() + b"\n"),
    ):
        write_file(path, content, public=True)
    return federation
