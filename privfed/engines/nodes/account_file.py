"""What has left a node's users of the norm of a year, in a file of the node's own: a chain of digests, a line a query.

A line is on disk before anything of its query leaves, and is never taken back. A process that starts again reads who
has sent how much, so a device that was restarted, or sent the same query twice, spends nothing twice or anew.
"""

import json
import os
from pathlib import Path

import torch

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.files import private, read_file, sync_folder
from privfed.guards.norm_accounts import NormAccounts
from privfed.privacy.errors import LedgerError
from privfed.privacy.hash_chain import link, unlink


class AccountFile:
    """Accounts of a run, and the file that they are kept in.

    Args:
        path: of the file; it is made with the first line.
        entries: number of lines that this node's record has seen.
        head: digest of the last of these.

    Attributes:
        accounts: as they are now.
        entries: number of lines.
        head: digest of the last; empty before the first.

    Raises:
        StateError: the file cannot be read, was edited, or is older than the record.
    """

    def __init__(self, path: Path, entries: int, head: str) -> None:
        self._path, self.accounts = path, NormAccounts()
        self.entries, self.head = 0, ""
        heads = [""]
        for line in self._lines():
            self._read(line)
            heads.append(self.head)
        if len(heads) <= entries or heads[entries] != head:
            raise StateError(
                f"{path} does not begin with the {entries} lines that this node's record has seen: what its users have "
                "sent is not known, so the run is refused; bring that very file back, no older copy, or begin a new run"
            )

    def record(self) -> None:
        """Write what the query in progress was charged with, and wait until the disk has it.

        Raises:
            StateError: it cannot be written; nothing may leave then.
        """
        charges, address = self.accounts.charges, self.accounts.address
        if not charges or address is None:
            return
        line, self.head = link(self.head or None, {"query": list(address), "charges": charges})
        try:
            descriptor = private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._path.parent)
        except OSError as error:
            raise StateError(f"{self._path} cannot be written ({error.strerror}); make room, then go on") from error
        self.entries += 1

    def _lines(self) -> list[str]:
        """Whole lines; what a process died in was never followed by anything that left."""
        if not self._path.exists():
            return []
        whole, newline, cut = read_file(self._path).rpartition(b"\n")
        if cut:
            with self._path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
        return whole.decode(errors="replace").split("\n") if newline else []

    def _read(self, line: str) -> None:
        try:
            entry, self.head = unlink(self.head or None, line, f"{self._path}, line {self.entries + 1}")
            cohort, number = entry["query"]
            self.accounts.begin((int(cohort), int(number)))
            for name, (users, squares) in entry["charges"].items():
                self.accounts.record_sent(name, torch.tensor(users), torch.tensor(squares, dtype=torch.float64))
        except (LedgerError, KeyError, ValueError, TypeError, json.JSONDecodeError) as error:
            raise StateError(
                f"{self._path} was edited or is damaged ({type(error).__name__}): what this node's users have sent is "
                "not known, so the run is refused; bring that very file back, no older copy, or begin a new run"
            ) from error
        self.entries += 1
