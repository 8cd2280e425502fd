"""Checks of padding: the rows that clients sent, round after round, against the claimed padding.

Fake rows hide true ones only as long as a client names the same rows in every query: what is named in every round
is the history, if fake items are drawn anew. How many rows a client names follows from the padding's rule, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from scipy import stats

from privfed.audit.report.records import Check
from privfed.engines.transcript import SentRows
from privfed.experiment import Experiment, RunResult
from privfed.methods import ClientData
from privfed.privacy.padding.base import SampledPadding
from privfed.setup.padding import private_items

P_VALUE = 1e-9
_DRAWS, _GROUPS = 50, 10
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
    fakes, free = np.zeros((len(named), data.n_items), dtype=bool), np.zeros((len(named), data.n_items), dtype=bool)
    for place, (user, rows) in enumerate(named.items()):
        known = frozenset() if public is None else frozenset(public.items_of(user).tolist())
        history = frozenset(private.items_of(user).tolist()) - known
        private_rows, kept = private_rows + len(history), kept + len(rows & history)
        added = len(rows - history - known)
        free[place] = ~np.isin(np.arange(data.n_items), [*history, *known])
        fakes[place, list(rows - history - known)] = True
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
    if p is None and not padding.fake_items_per_row:
        # Its fake rows follow no rule that is known here.
        return
    counts = private.popularity() if public is None else public.popularity()
    weights = (counts.astype(np.float64) + 1) ** (padding.popularity_power or 0.0)
    yield from _law(fakes, _drawn_again(fakes, free, weights, p), counts, config.seed)


def _drawn_again(
    fakes: Bool[np.ndarray, "users items"],
    free: Bool[np.ndarray, "users items"],
    weights: Float64[np.ndarray, " items"],
    rate: float | None,
) -> Float64[np.ndarray, " items"]:
    """How often each row is fake, over the same users and many draws by arithmetic of the audit's own."""
    rng, often = np.random.default_rng(29), np.zeros(fakes.shape[1])
    last = fakes.sum(1, keepdims=True) - 1
    for _ in range(_DRAWS):
        if rate is not None:
            often += (free & (rng.random(free.shape) < rate)).sum(0)
            continue
        # The k first of arrivals at these rates are k draws without replacement.
        arrivals = np.where(free, rng.exponential(size=free.shape) / weights, np.inf)
        bound = np.take_along_axis(np.sort(arrivals, 1), last.clip(0), 1)
        often += ((last >= 0) & (arrivals <= bound)).sum(0)
    return often


def _law(
    fakes: Bool[np.ndarray, "users items"],
    again: Float64[np.ndarray, " items"],
    counts: Int64[np.ndarray, " items"],
    seed: int,
) -> Iterator[str]:
    """Fake rows that fall on other items than independent draws of the padding's law do."""
    users, items = fakes.shape
    by_count = np.lexsort(np.stack([np.random.default_rng([31, seed]).random(items), counts]))
    groups = [*np.arange(items)[:, None], *np.array_split(by_count, min(_GROUPS, items))]
    for group in groups:
        cases, here, there = users * len(group), int(fakes[:, group].sum()), int(again[group].sum())
        law = stats.hypergeom(cases * (1 + _DRAWS), here + there, cases)
        if 2 * min(law.cdf(here), law.sf(here - 1)) * len(groups) < P_VALUE:
            what = f"item {group[0]}" if len(group) == 1 else f"{len(group)} items of like popularity"
            yield (
                f"{here} fake rows of {users} users fall on {what}, where draws of each user's own by the padding's "
                f"law give about {there / _DRAWS:.1f}: fake rows can be told from true ones"
            )
            return


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
