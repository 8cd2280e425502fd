"""The list of everything in a dossier, by SHA-256: what is signed, and what a folder is compared with.

A name in it is a path below the dossier of plain letters, digits, dots, dashes and underscores. Whatever else it could
be (a way out of the folder, an absolute path, a second spelling of the same file) is refused before a file is opened.
"""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from privfed.dossier.errors import DossierError
from privfed.dossier.reading import read

MANIFEST, SIGNATURES = "manifest.json", "signatures"
FORMAT: Literal["privfed-dossier/1"] = "privfed-dossier/1"
MAX_DEPTH = 4
"""Folders above a file of a dossier, at most."""

_PART = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")


def _below(name: str) -> str:
    parts = name.split("/")
    if not all(_PART.fullmatch(part) for part in parts) or parts[0] in (MANIFEST, SIGNATURES):
        raise ValueError(f"{name[:80]!r} is no name of a file of a dossier")
    return name


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, AfterValidator(_below)]


class Manifest(BaseModel):
    """Every file of a dossier.

    Attributes:
        format: of the dossier.
        created: when it was made.
        privfed: version that made it.
        about: what it is about, in a sentence.
        files: name -> SHA-256.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["privfed-dossier/1"] = FORMAT
    created: AwareDatetime
    privfed: str
    about: str
    files: dict[FileName, Digest]


def list_files(folder: Path) -> dict[str, str]:
    """Every file of a folder but manifest and signatures, with its SHA-256.

    Raises:
        DossierError: one of them is a link, no plain file, or too large.
    """
    names = sorted(_names(folder))
    return {name: read(folder, name).sha256 for name in names if name.split("/")[0] not in (MANIFEST, SIGNATURES)}


def write_manifest(folder: Path, *, about: str, version: str, now: datetime | None = None) -> Manifest:
    """List what is in a folder, in a file there."""
    made = Manifest(
        created=(now or datetime.now(UTC)).replace(microsecond=0),
        privfed=version,
        about=about,
        files=list_files(folder),
    )
    (folder / MANIFEST).write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return made


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest of a folder, and its SHA-256.

    Raises:
        DossierError: there is none, or it is none.
    """
    if not os.path.lexists(folder / MANIFEST):
        missing = "holds no dossier" if folder.is_dir() else "is not there"
        raise DossierError(f"{folder} {missing}: give the --out folder of 'privfed dossier make'")
    file = read(folder, MANIFEST)
    return file.record(Manifest), file.sha256


def differences(folder: Path, manifest: Manifest) -> list[str]:
    """What is not as the manifest says, a sentence for each file that was changed, added or is missing."""
    there = set(_names(folder)) - {MANIFEST}
    problems = [f"{name} is missing" for name in sorted(manifest.files.keys() - there)]
    for name in sorted(there):
        if name.split("/")[0] == SIGNATURES:
            continue
        if name not in manifest.files:
            problems.append(f"{name} was added")
            continue
        try:
            digest = read(folder, name).sha256
        except DossierError as error:
            problems.append(str(error))
            continue
        if digest != manifest.files[name]:
            problems.append(f"{name} was changed")
    return problems


def _names(folder: Path) -> Iterator[str]:
    """Names of everything below a folder that is not a folder, or lies deeper than a dossier goes.

    What lies behind a link is not looked at.
    """
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with os.scandir(folder / above) as entries:
            for entry in entries:
                name = f"{above}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and name.count("/") < MAX_DEPTH:
                    waiting.append(f"{name}/")
                else:
                    yield name
