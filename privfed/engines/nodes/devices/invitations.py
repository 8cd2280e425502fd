"""What a device is given before it takes part: where to ask, a token, and the federation that the operator signed.

tokens.json          by seat; the server's alone
invitations/N.json   for device N: address, token, federation file and its signature, ids of items in their order
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.federation_file import SIGNATURE
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.party import Party

TOKENS, INVITATIONS = "tokens.json", "invitations"
_BYTES = 32
_TOKENS = TypeAdapter(dict[str, Annotated[str, Field(min_length=_BYTES)]])


def tokens_of(folder: Path, seats: int) -> dict[int, str]:
    """Tokens of all seats, drawn once; a file that has fewer is added to.

    Raises:
        StateError: the file is damaged.
    """
    path, known = folder / TOKENS, dict[str, str]()
    if path.exists():
        try:
            known = _TOKENS.validate_json(read_file(path))
        except ValidationError as error:
            raise StateError(f"{path} holds no tokens: take it away, and invite all devices anew") from error
    tokens = {seat: known.get(str(seat)) or secrets.token_urlsafe(_BYTES) for seat in range(seats)}
    write_file(path, json.dumps({str(seat): token for seat, token in tokens.items()}, indent=1).encode())
    return tokens


def invite(folder: Path, party: Party, tokens: dict[int, str], address: str, items: Sequence[str]) -> Path:
    """Write an invitation for every seat of the server in a folder; returns where they are."""
    place, federation = folder / INVITATIONS, party.federation
    make_folder(place)
    signature = read_file(folder / SIGNATURE).decode().strip()
    for seat, token in tokens.items():
        said = {
            "address": address, "token": token, "federation": federation.canonical.decode(), "signature": signature,
            "items": list(items),
        }  # fmt: skip
        write_file(place / f"{federation.name_of(seat)}.json", json.dumps(said).encode() + b"\n")
    return place
