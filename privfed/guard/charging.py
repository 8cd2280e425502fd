"""A guard's own account: one ledger for each plan, a book over all of them, and a lock around both.

    ledger-<plan>.jsonl    uploads under one plan, a chain of digests
    state/book.json        how far each ledger has come, and what others cost
    state/lock             one message at a time, whichever process or thread serves it

Everything is written before a message is trained on. Ledgers of other plans count as earlier runs of a node do: their
epsilons and deltas add up.
"""

import hashlib
import logging
import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np

from privfed.engines.nodes.budget import Budget, run_cost
from privfed.engines.nodes.errors import PolicyRefused, StateError
from privfed.engines.nodes.files import locked, read_file
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import ActiveRun, Book, RunCost
from privfed.guard.terms import PERSON, cost_of, summary
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.hash_chain import unlink

_log = logging.getLogger("privfed.guard")

_STEP = "train"

Stamp = tuple[int, int]
"""Size of a file, and when it was changed; both 0 where there is none."""


class GuardBook(Book):
    """What a guard knows of all its ledgers.

    Attributes:
        fits: number of uploads under the current plan that the policy has room for, those that were made included.
        fits_for: what that number was computed for.
    """

    fits: int = 0
    fits_for: str = ""


class Charging:
    """Records what uploads cost, or refuses them.

    Args:
        folder: the guard's own.
        plan: of all its uploads from now on.
        policy: of the node's owner, with a bound on epsilon.
        rounds: largest number of uploads under the plan.
    """

    def __init__(self, folder: Path, plan: PrivacyPlan, policy: Policy, rounds: int) -> None:
        self._folder, self._states, self._plan, self._policy = folder, folder / "state", plan, policy
        self._rounds = rounds
        self._run = hashlib.sha256(plan.model_dump_json().encode()).hexdigest()[:16]
        self._epoch = secrets.token_hex(8)
        self._kept: tuple[Ledger, Stamp] | None = None

    def record(self, coordinates: int) -> None:
        """Record one upload; only then may its data be touched.

        Args:
            coordinates: numbers in it.

        Raises:
            PolicyRefused: the policy has no room for it.
            LedgerError, StateError: what was spent is not known, or cannot be written.
        """
        with locked(self._states):
            book, ledger = self._opened()
            number = len(ledger.entries)
            self._know_what_fits(book)
            self._accept(book, number + 1)
            ledger.record(
                cohort_id=number, round=number, step=_STEP, index=0, schema=summary(coordinates),
                participants=np.zeros(1, np.int64),
            )  # fmt: skip
            self._kept = ledger, _stamp(self._path(self._run))
            book.add(self._run, number + 1, ledger.head, self._epoch)
            book.save(self._states)
            self._tell(book, number + 1)

    def ledger(self) -> Ledger:
        """The ledger of the current plan."""
        with locked(self._states):
            return self._opened()[1]

    def costs(self) -> list[RunCost]:
        """What uploads under every plan of this folder have cost."""
        with locked(self._states):
            book, ledger = self._opened()
            return [*self._earlier(book), run_cost(self._run, ledger)]

    def _opened(self) -> tuple[GuardBook, Ledger]:
        """Book and ledger as they are on disk, whoever recorded last: another process, or one that died in between."""
        book, path = GuardBook.load(self._states), self._path(self._run)
        seen = book.active.setdefault(
            self._run, ActiveRun(cost=RunCost(run=self._run, epsilon=0.0, delta=0.0, rounds=0))
        )
        stamp = _stamp(path)
        if self._kept is None or self._kept[1] != stamp or self._kept[0].head != (seen.head or self._kept[0].head):
            # One that was made and holds nothing is of a process that died before it had written a line.
            begun = path.exists() or bool(seen.entries)
            ledger = self._resumed(seen) if begun else Ledger(self._plan, PERSON, path, run=self._run)
            self._kept = ledger, _stamp(path)
        return book, self._kept[0]

    def _resumed(self, seen: ActiveRun) -> Ledger:
        return _resumed(self._plan, self._path(self._run), self._run, seen)

    def _path(self, run: str) -> Path:
        return self._folder / f"ledger-{run}.jsonl"

    def _tell(self, book: GuardBook, uploads: int) -> None:
        """Log how far the budget is spent: numbers of uploads, plans and the policy, and nothing that data decides."""
        if _log.isEnabledFor(logging.INFO):
            epsilon, delta = Budget(self._policy, self._earlier(book)).total(cost_of(self._plan, uploads))
            _log.info(
                "upload %d of %d; epsilon so far %.4g of %.4g at delta %.2g, over all plans",
                uploads, book.fits, epsilon, self._policy.max_epsilon, delta,
            )  # fmt: skip

    def _know_what_fits(self, book: GuardBook) -> None:
        """Write down how many uploads fit, once for each plan, policy and state of the other ledgers."""
        others = {run: (active.entries, active.head) for run, active in book.active.items() if run != self._run}
        text = f"{self._policy.model_dump_json()} {self._rounds} {self._run} {sorted(others.items())}"
        given = hashlib.sha256(text.encode()).hexdigest()
        if book.fits_for != given:
            book.fits, book.fits_for = self._uploads_that_fit(book), given
            book.save(self._states)

    def _accept(self, book: GuardBook, uploads: int) -> None:
        """Return quietly where so many uploads under this plan fit the policy beside all others.

        Raises:
            PolicyRefused: they do not.
        """
        if uploads > book.fits:
            policy = self._policy
            raise PolicyRefused(
                f"this would be upload {uploads} of this node under its plan, and its policy has room for {book.fits} "
                f"(max_epsilon = {policy.max_epsilon:g}, max_delta = {policy.max_delta:g} and max_rounds = "
                f"{policy.max_rounds} over all runs together, {self._rounds} rounds under the plan); it takes part in "
                "no more"
            )

    def _uploads_that_fit(self, book: GuardBook) -> int:
        """The largest number of uploads that costs no more than the policy allows, found by doubling and halving."""
        earlier = self._earlier(book)
        budget = Budget(self._policy, earlier)
        budget.accept_run(self._plan)

        def fits(uploads: int) -> bool:
            with suppress(PolicyRefused):
                budget.accept_cost(cost_of(self._plan, uploads))
                return True
            return False

        most = max(min(self._rounds, self._policy.max_rounds - sum(run.rounds for run in earlier)), 0)
        if fits(most):
            return most
        least, less = 0, 1
        while less < most and fits(less):
            least, less = less, 2 * less
        most = min(less, most)
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
        return least

    def _earlier(self, book: GuardBook) -> list[RunCost]:
        """Costs under all other plans, from their own ledgers."""
        for run, active in book.active.items():
            if run != self._run and active.costed < active.entries:
                path = self._path(run)
                active.cost = run_cost(run, _resumed(_plan_of(path), path, run, active))
                active.costed = active.entries
        return [active.cost for run, active in book.active.items() if run != self._run]


def _stamp(path: Path) -> Stamp:
    if not path.exists():
        return 0, 0
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _resumed(plan: PrivacyPlan, path: Path, run: str, seen: ActiveRun) -> Ledger:
    """A ledger as it goes on, if it still begins with what the book has seen."""
    ledger = Ledger.resume(plan, PERSON, path, run=run, same_noise=False)
    if seen.entries:
        ledger.require(seen.entries, seen.head, "this guard's book")
    return ledger


def _plan_of(path: Path) -> PrivacyPlan:
    """The plan in a ledger's header."""
    first, _, _ = read_file(path).partition(b"\n")
    header, _ = unlink(None, first.decode(errors="replace"), f"ledger {path}, line 1")
    if not isinstance(header.get("plan"), dict):
        raise StateError(
            f"{path} names no plan, so what was spent under it is not known; bring that very file back, no older copy"
        )
    return PrivacyPlan.from_dict(header["plan"])
