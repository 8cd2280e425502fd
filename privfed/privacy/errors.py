"""Named errors of the privacy layer, and sentences about keys and values that are wrong."""

import difflib
from collections.abc import Iterable
from typing import Any


class PrivacyError(ValueError):
    """Base of every named error of the privacy layer."""


class PlanError(PrivacyError):
    """A privacy plan (or another configuration) cannot be read, or asks for something impossible."""


class LedgerError(PrivacyError):
    """An entry or a ledger file is not consistent with what was recorded before."""


class EntryRefused(LedgerError):
    """A query cannot be recorded for what it is; the sentence is about the query, and names no file."""


class AccountingError(PrivacyError):
    """No accountant covers an event, or two accountants disagree about it."""


def unknown_key(key: str, known: Iterable[str]) -> str:
    """One sentence about a key that nobody knows, with those there are."""
    return f"{key} is not a known key{nearest(key.rpartition('.')[2], known)}"


def not_allowed(key: str, value: Any, rule: str, description: str) -> str:
    """One sentence about a value that breaks a rule; the description says what the key is, where it is not empty."""
    return f"{key} = {_short(value)} is not allowed: {rule}{f' ({description})' if description else ''}"


def nearest(word: str, allowed: Iterable[str], *, listing: bool = True) -> str:
    """The tail of a sentence about an unknown word: the closest known word, and all of them.

    Args:
        word: what was given.
        allowed: the known words.
        listing: whether to list all of `allowed`.
    """
    allowed = list(allowed)
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.5)
    guess = f"; did you mean '{close[0]}'?" if close else ""
    return guess + (f"{'' if guess else ';'} allowed: {', '.join(allowed)}" if listing and allowed else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
