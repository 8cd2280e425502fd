"""Whether clients that pad the rows they name do so once: padding drawn anew in every round names the true rows."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int64

from attacks.implementation import intersect_rounds
from privfed.audit.report.records import Check
from privfed.engines.transcript import SentRows
from privfed.experiment import Experiment, RunResult

NAME = "padding is the same in every round"


def check_named_rows(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """For every table whose rows are named with padding: what the audited users named, round against round."""
    sharing = experiment.config.privacy.mechanism.secret_sharing
    if sharing is None or sharing.padding.sampler is None:
        return
    users, heard = experiment.audited().cpu(), result.transcript.sent_rows
    for block in dict.fromkeys(one.block for one in heard):
        calls = [one for one in heard if one.block == block]
        exchanges = dict.fromkeys((one.round, one.query_id) for one in calls)
        rows = [_by_user([one for one in calls if (one.round, one.query_id) == at], users.numpy()) for at in exchanges]
        test = intersect_rounds(rows, experiment.parts.train.n_items).test
        detail = f"in table {block!r}, {test.where} ({len(exchanges)} exchanges), and one draw of padding is claimed"
        yield Check(name=NAME, passed=not test.rejects(), detail=detail)


def _by_user(calls: Sequence[SentRows], users: Int64[np.ndarray, "users"]) -> list[Int64[np.ndarray, "rows"]]:
    """The rows that each user named in one exchange."""
    keys, rows_of_table = np.concatenate([one.keys.numpy() for one in calls]), len(calls[0].counts)
    who, rows = np.divmod(keys, rows_of_table)
    audited = np.isin(who, users)  # kept for every exchange of a run, so without everybody else's rows
    who, rows = who[audited], rows[audited]
    order = who.argsort(kind="stable")
    who, rows = who[order], rows[order]
    bounds = who.searchsorted(users), who.searchsorted(users, "right")
    return [rows[first:last] for first, last in zip(*bounds, strict=True)]
