"""Bytes as Flower records: one `ArrayRecord` with one uint8 array, and nothing beside it.

Flower cuts arrays into objects of 5 MiB by itself, names every object by its SHA-256 and stores equal ones once, so
that one message to many nodes is uploaded once. Each object is a request of its own on every leg of the way, which is
why there is one record only. Whatever comes back may come from anybody: it is read without pickle, and anything but one
flat uint8 array is refused.
"""

import re

import numpy as np
from flwr.app import ArrayRecord, RecordDict

_PAYLOAD = "payload"
_STAGE = re.compile(r"train\.[a-z_][a-z0-9_]*")


class PayloadError(ValueError):
    """A message does not carry what it must."""


def message_type(stage: str) -> str:
    """Flower's type of messages of `stage`, which is its name: `train.<step>`.

    Raises:
        PayloadError: Flower routes no such name.
    """
    if not _STAGE.fullmatch(stage):
        raise PayloadError(f"{stage!r} cannot name a stage: use train. and a word of lower-case letters, digits and _")
    return stage


def packed(payload: bytes) -> RecordDict:
    """A message's content."""
    return RecordDict({_PAYLOAD: ArrayRecord([np.frombuffer(payload, np.uint8)])})


def unpacked(content: RecordDict) -> bytes:
    """What a message carries.

    Raises:
        PayloadError: there is something else in it.
    """
    record = content.get(_PAYLOAD)
    if len(content) != 1 or not isinstance(record, ArrayRecord) or len(record) != 1:
        raise PayloadError(f"a message holds the records {sorted(content)} instead of one array of bytes")
    try:
        values = next(iter(record.values())).numpy()
    except (TypeError, ValueError, EOFError) as error:
        raise PayloadError(f"a message's array cannot be read ({type(error).__name__})") from error
    if values.dtype != np.uint8 or values.ndim != 1:
        raise PayloadError(f"a message carries {values.dtype} of {values.ndim} axes instead of bytes")
    return values.tobytes()
