"""Who stands for a dossier, as what and until when: Ed25519 over the manifest, by role.

    signatures/engineer.json   {role, public, issued, expires, manifest, signature}

A signature covers the role, both dates and the SHA-256 of the manifest, and so every file. It cannot be moved to
another role or another dossier, and nobody can lengthen it. Keys are made by `privfed federation keys`. Who a key
belongs to is for the people who exchange them to know, and a dossier brings no key that it is verified with.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from privfed.dossier.errors import DossierError
from privfed.dossier.manifest import SIGNATURES, Digest, Manifest, differences, read_manifest
from privfed.dossier.reading import read
from secure_agg.errors import SignatureRefused
from secure_agg.primitives.keys import Identity, length_prefixed, verify

Role = Literal["engineer", "officer"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_DAYS = 3 * 366
_LABEL = b"privfed dossier"


class RoleSignature(BaseModel):
    """A signature of one role.

    Attributes:
        role: as what somebody signed.
        public: Ed25519 key that verifies it; whose key it is, the dossier cannot say.
        issued: when it was signed.
        expires: from when it says nothing any more.
        manifest: SHA-256 of the manifest.
        signature: over all of these.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    public: Digest
    issued: AwareDatetime
    expires: AwareDatetime
    manifest: Digest
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    @property
    def message(self) -> bytes:
        """What is signed."""
        dates = (date.astimezone(UTC).isoformat().encode() for date in (self.issued, self.expires))
        return length_prefixed(_LABEL, self.role.encode(), bytes.fromhex(self.public), *dates, self.manifest.encode())


def sign(
    folder: Path, role: Role, identity: Identity, *, days: int = 365, now: datetime | None = None
) -> RoleSignature:
    """Sign a dossier, once it is what its manifest says.

    Args:
        folder: of the dossier.
        role: as what.
        identity: the key.
        days: until it expires.
        now: the date; None takes the clock's.

    Raises:
        DossierError: the folder is no dossier, differs from its manifest, or the dates make no sense.
    """
    if not 1 <= days <= MAX_DAYS:
        raise DossierError(f"{days} days were given: a signature holds from 1 to {MAX_DAYS} days")
    manifest, digest = read_manifest(folder)
    if problems := differences(folder, manifest):
        raise DossierError(f"{folder} is not what was made ({'; '.join(problems)}): make the dossier again")
    _refuse_other_roles(folder, role, identity)
    issued = (now or datetime.now(UTC)).replace(microsecond=0)
    if issued < manifest.created:
        raise DossierError(
            f"the clock says {issued:%Y-%m-%d %H:%M} and the dossier was made {manifest.created:%Y-%m-%d %H:%M}: set "
            "the clock"
        )
    unsigned = RoleSignature(
        role=role, public=identity.public.hex(), issued=issued, expires=issued + timedelta(days=days),
        manifest=digest, signature="0" * 128,
    )  # fmt: skip
    signed = unsigned.model_copy(update={"signature": identity.sign(unsigned.message).hex()})
    place = folder / SIGNATURES
    if place.is_symlink():
        raise DossierError(f"{place} is a link: make the dossier again")
    place.mkdir(exist_ok=True)
    partial = place / f"{role}.json.partial"
    partial.write_text(signed.model_dump_json(indent=1) + "\n", encoding="utf-8")
    partial.replace(place / f"{role}.json")
    return signed


def _refuse_other_roles(folder: Path, role: Role, identity: Identity) -> None:
    """Return quietly where a key has not signed in another role.

    Raises:
        DossierError: it has.
    """
    for other in ROLES:
        name = f"{SIGNATURES}/{other}.json"
        if other == role or not os.path.lexists(folder / name):
            continue
        if read(folder, name).record(RoleSignature).public == identity.public.hex():
            raise DossierError(f"this key has signed as {other}: two people sign, each with a key of their own")


def problems_of(folder: Path, keys: Mapping[Role, bytes], now: datetime | None = None) -> list[str]:
    """Why a dossier does not verify, a sentence each; none where it does.

    Args:
        folder: of the dossier.
        keys: public key of every role that has to have signed.
        now: the date; None takes the clock's.

    Raises:
        DossierError: the folder is no dossier, or the keys make no sense.
    """
    if not keys:
        raise DossierError("no key was given: nobody's signature can be checked, so give --key engineer=FILE")
    if len(set(keys.values())) < len(keys):
        raise DossierError(f"{' and '.join(keys)} have the same key: two people sign, each with a key of their own")
    manifest, digest = read_manifest(folder)
    now = now or datetime.now(UTC)
    problems = differences(folder, manifest)
    if now < manifest.created:
        problems.append(f"it says that it was made {manifest.created:%Y-%m-%d %H:%M}, which is later than the clock")
    problems += _strangers(folder)
    for role in ROLES:
        if role in keys:
            problems += _of_role(folder, role, keys[role], manifest, digest, now)
    return problems


def _strangers(folder: Path) -> list[str]:
    """Files beside the signatures that are none."""
    place = folder / SIGNATURES
    if not os.path.lexists(place):
        return []
    if place.is_symlink() or not place.is_dir():
        return [f"{SIGNATURES} is no folder"]
    known = {f"{role}.json" for role in ROLES}
    return [
        f"{SIGNATURES}/{name} was added" for name in sorted(path.name for path in place.iterdir()) if name not in known
    ]


def _of_role(folder: Path, role: Role, key: bytes, manifest: Manifest, digest: str, now: datetime) -> list[str]:
    name = f"{SIGNATURES}/{role}.json"
    if not os.path.lexists(folder / name):
        return [f"the {role} has not signed"]
    try:
        found = read(folder, name).record(RoleSignature)
    except DossierError as error:
        return [f"the signature of the {role} cannot be read: {error}"]
    if (why := _not_of(found, role, key, digest)) is not None:
        return [why]
    return _out_of_date(found, manifest, now)


def _not_of(found: RoleSignature, role: Role, key: bytes, digest: str) -> str | None:
    """Why a signature is not one of this key in this role over this manifest; None where it is."""
    if found.role != role:
        return f"the signature of the {role} was made as {found.role}"
    if found.manifest != digest:
        return f"the {role} signed another manifest: the dossier was made again, or exchanged, afterwards"
    if found.public != key.hex():
        return f"the signature of the {role} is of another key than the given one"
    try:
        verify(key, bytes.fromhex(found.signature), found.message)
    except SignatureRefused:
        return f"the signature of the {role} is not one of this key over this dossier, this role and these dates"
    return None


def _out_of_date(found: RoleSignature, manifest: Manifest, now: datetime) -> list[str]:
    """Which of its dates speaks against a signature."""
    if found.issued < manifest.created:
        return [f"the {found.role} signed before the dossier was made"]
    if now < found.issued:
        return [f"the {found.role} signed {found.issued:%Y-%m-%d %H:%M}, which is later than the clock"]
    if now >= found.expires:
        return [f"the signature of the {found.role} expired {found.expires:%Y-%m-%d}"]
    return []
