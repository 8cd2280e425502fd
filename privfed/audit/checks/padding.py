"""Checks of padding: the rows that clients sent, round after round, against the claimed padding.

Fake rows hide true ones only as long as a client names the same rows in every query: what is named in every round
is the history, if fake items are drawn anew. How many rows a client names follows from the padding's rule, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import torch
from scipy import stats

from privfed.audit.report.records import Check
from privfed.engines.transcript import SentRows
from privfed.experiment import Experiment, RunResult
from privfed.methods import ClientData
from privfed.privacy.padding.base import SampledPadding
from privfed.setup.padding import private_items

P_VALUE = 1e-9
_SAME_ROWS = ", and every audited user named the same rows each time, as many as the padding says"


def check_padding(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Rows that audited users named over the run, and rows that were revealed."""
    sharing, sent = experiment.config.privacy.mechanism.secret_sharing, result.transcript.sent_rows
    if sharing is None or not sent:
        return
    padding = sharing.padding.sampler
    faults = [*_opened_too_early(result, sharing.min_cohort)]
    if padding is not None:
        named = _first_named(experiment, sent)
        faults += [*_redrawn(sent, named), *_amount(experiment, padding, named)]
    yield Check(
        name="padding of row names",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"in {len({one.round for one in sent})} rounds every row that was revealed had {sharing.min_cohort} "
        f"clients or more{'' if padding is None else _SAME_ROWS}",
    )


def _users_rows(one: SentRows) -> Mapping[int, frozenset[int]]:
    """Rows that each audited user named in one chunk."""
    rows = len(one.counts)
    keys, users = one.keys.sort().values, one.audited.tolist()
    bounds = torch.searchsorted(keys, torch.tensor([[user * rows, (user + 1) * rows] for user in users]).view(-1, 2))
    return {
        user: frozenset((keys[low:high] - user * rows).tolist())
        for user, (low, high) in zip(users, bounds.tolist(), strict=True)
    }


def _first_named(experiment: Experiment, sent: Iterable[SentRows]) -> dict[int, frozenset[int]]:
    """Rows of an item table that each audited user named in its first query."""
    named: dict[int, frozenset[int]] = {}
    for one in sent:
        if len(one.counts) == experiment.parts.train.n_items:
            named |= {user: rows for user, rows in _users_rows(one).items() if user not in named}
    return named


def _redrawn(sent: Iterable[SentRows], named: Mapping[int, frozenset[int]]) -> Iterator[str]:
    """A user who named other rows later than at first."""
    for one in sent:
        for user, rows in _users_rows(one).items():
            if user in named and rows != named[user]:
                yield (
                    f"user {user} names other rows in round {one.round + 1} than at first: {len(rows & named[user])} "
                    f"of {len(rows)} are the same, so padding is drawn anew and what stays over the rounds is the "
                    "history"
                )
                return


def _amount(experiment: Experiment, padding: SampledPadding, named: Mapping[int, frozenset[int]]) -> Iterator[str]:
    """Padding of another size than its rule gives."""
    config, settings = experiment.config, experiment.config.settings()
    data = ClientData.from_split(experiment.trained, config.protocol.negatives)
    private = private_items(data, experiment.registered, settings)
    public = data.positives if experiment.registered.traits.public_target else None
    private_rows, other, kept, fake_items = 0, 0, 0, 0
    for user, rows in named.items():
        known = frozenset() if public is None else frozenset(public.items_of(user).tolist())
        history = frozenset(private.items_of(user).tolist()) - known
        private_rows, kept = private_rows + len(history), kept + len(rows & history)
        added = len(rows - history - known)
        other, fake_items = other + data.n_items - len(history | known), fake_items + added
        wanted = min(
            int(np.rint(padding.fake_items_per_row * len(history | known))), data.n_items - len(history | known)
        )
        if added < wanted:
            yield f"user {user} names {added} fake rows, and the padding promises {wanted}"
            return
    q, p = padding.answer_rates
    if p is not None and (_unlikely(kept, private_rows, q) or _unlikely(fake_items, other, p)):
        yield (
            f"{kept} of {private_rows} private rows and {fake_items} of {other} others are named, and "
            f"randomised response with probabilities {q:.4g} and {p:.4g} is claimed"
        )


def _unlikely(count: int, of: int, rate: float) -> bool:
    return bool(2 * min(stats.binom.cdf(count, of, rate), stats.binom.sf(count - 1, of, rate)) < P_VALUE)


def _opened_too_early(result: RunResult, min_clients: int) -> Iterator[str]:
    """Rows that were revealed although too few clients named them."""
    exchanges = {(e.cohort.round, e.index): e for e in (result.witness.exchanges if result.witness is not None else ())}
    for address, chunks in groupby(result.transcript.sent_rows, key=lambda one: (one.round, one.query_id)):
        counts: dict[str, torch.Tensor] = {}
        for one in chunks:
            counts[one.block] = counts.get(one.block, torch.zeros_like(one.counts)) + one.counts
        revealed = exchanges[address].revealed if address in exchanges else {}
        for block, naming in counts.items():
            if block in revealed and bool((revealed[block] & (naming < min_clients)).any()):
                yield (
                    f"round {address[0] + 1}: {int((revealed[block] & (naming < min_clients)).sum())} rows of "
                    f"{block!r} were revealed that fewer than {min_clients} clients named"
                )
                return
