"""Public keys on the command line, as themselves or as the file of one."""

from contextlib import suppress
from pathlib import Path

from privfed.cli.failures import CommandError

_KEY_HEX = 64


def public_key(text: str) -> bytes:
    """A public key, given as itself or as a file.

    Raises:
        CommandError: it is neither.
    """
    with suppress(OSError, UnicodeDecodeError):
        text = Path(text).read_text(encoding="ascii").strip()
    with suppress(ValueError):
        if len(text) == _KEY_HEX:
            return bytes.fromhex(text)
    raise CommandError(f"{text[: _KEY_HEX + 1]!r} is no public key: give 64 hexadecimal digits, or the file of them")
