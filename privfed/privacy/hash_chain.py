"""A chain of digests through the lines of a file, so that no line can change, vanish or move unnoticed.

Every line is a JSON object that ends with its own SHA-256 digest, and every line but the first begins with the digest
of the line before it. The digest of the last line, the head, therefore depends on every byte of the file. There is no
key in it: who can write the file and every copy of its head can write another chain.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from privfed.privacy.errors import LedgerError

PREVIOUS, DIGEST = "previous", "digest"

_AFTERWARDS = "no guarantee from this ledger could be honest: restore the file from a copy, or begin again elsewhere"
_TAIL = len(f',"{DIGEST}":"') + hashlib.sha256().digest_size * 2 + len('"}')


def link(previous: str | None, record: Mapping[str, Any]) -> tuple[str, str]:
    """The line of `record` behind the line of digest `previous` (None begins a chain), and its digest."""
    before = {} if previous is None else {PREVIOUS: previous}
    body = json.dumps(before | dict(record), separators=(",", ":"))[:-1]
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body},"{DIGEST}":"{digest}"}}', digest


def unlink(previous: str | None, line: str, where: str) -> tuple[dict[str, Any], str]:
    """The record of a line and its digest.

    Args:
        previous: digest of the line before; None for the first.
        line: as it stands in the file, without its newline.
        where: file and line, for the error.

    Raises:
        LedgerError: the line was edited, or does not follow the line before it.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        # Not all that the parser refuses is a wrong character: numbers of thousands of digits, and deep nesting.
        raise LedgerError(f"{where} is damaged ({getattr(error, 'msg', error)}): {_AFTERWARDS}") from None
    digest = hashlib.sha256(line[:-_TAIL].encode(errors="replace")).hexdigest()
    if not isinstance(record, dict) or line[-_TAIL:] != f',"{DIGEST}":"{digest}"}}':
        raise LedgerError(f"{where} was edited, for its digest does not fit it: {_AFTERWARDS}")
    if record.get(PREVIOUS) != previous:
        raise LedgerError(
            f"{where} does not follow the line before it, so lines were removed, added or moved: {_AFTERWARDS}"
        )
    return {key: value for key, value in record.items() if key not in (PREVIOUS, DIGEST)}, digest
