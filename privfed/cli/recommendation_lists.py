"""Top-k lists of many users, made in chunks of bounded memory and written as they are made."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import torch
from jaxtyping import Float64, Int64

from privfed.cli.failures import CommandError
from privfed.cli.recommender import HoldsCodes, item_codes
from privfed.data import Donors, Interactions, read_ids
from privfed.data.identifiers import comparable
from privfed.experiment import Experiment

Sink = Callable[[pa.Table], None]

_SCORES_AT_ONCE = 2**22
_USERS_AT_ONCE = 1024


def codes_of(interactions: Interactions, file: Path | None, donors: Donors | None = None) -> Int64[np.ndarray, "users"]:
    """The codes of the users of a file, in its order and each once, or of all users but the donors.

    Raises:
        CommandError: The file names a user that the data set does not have.
    """
    if file is None:
        everybody = np.arange(interactions.n_users)
        return everybody if donors is None else np.setdiff1d(everybody, donors.users)
    wanted, known = comparable(read_ids(file, "user").unique(), interactions.user_ids)
    codes: np.ndarray = known.get_indexer(wanted).astype(np.int64)
    if (codes < 0).any():
        missing = wanted[codes < 0]
        raise CommandError(
            f"{interactions.name} has no user {str(missing[0])!r}, which {file} names ({len(missing):,} such in all): "
            f"its {len(known):,} ids run from {known[0]} to {known[-1]}"
        )
    return codes


def lists(
    experiment: Experiment, interactions: Interactions, users: Int64[np.ndarray, "users"], k: int, next_round: int
) -> Iterator[tuple[int, pa.Table]]:
    """How many users are done, and a table of their lists, chunk by chunk.

    Raises:
        CommandError: The model's scores are not finite.
    """
    k, size = min(k, interactions.n_items), min(_USERS_AT_ONCE, max(1, _SCORES_AT_ONCE // interactions.n_items))
    titles = None if interactions.item_info is None else interactions.item_info.get("title")
    for start in range(0, len(users), size):
        some = users[start : start + size]
        items, scores = _best(experiment, interactions, some, k, next_round)
        kept = items >= 0
        rank = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)[kept]
        columns = {
            "user": pa.array(interactions.user_ids.take(np.repeat(some, kept.sum(1)))),
            "rank": pa.array(rank, pa.int32()),
            "item": pa.array(interactions.item_ids.take(items[kept])),
            "score": pa.array(scores[kept]),
        }
        if titles is not None:
            columns["title"] = pa.array(titles.iloc[items[kept]].astype("string"), pa.string())
        yield start + len(some), pa.table(columns)


def _best(
    experiment: Experiment, interactions: Interactions, users: Int64[np.ndarray, "users"], k: int, next_round: int
) -> tuple[Int64[np.ndarray, "users k"], Float64[np.ndarray, "users k"]]:
    """Items and scores of each user's list, the best first; -1 where there are no more items."""
    users = experiment.parts.rows_of(users, interactions.user_ids)
    trained_on, clients = experiment.parts.train.subset(users), experiment.clients
    codes = item_codes(experiment, interactions)
    if codes is not None and isinstance(clients, HoldsCodes):
        with experiment.config.computing():
            chosen = torch.as_tensor(users)
            packed = clients.packed_codes(chosen, experiment.server.public().addressed_to(chosen))
        items, agreements = codes.recommend(packed, k, trained_on)
        return items, agreements.astype(np.float64)
    scores = experiment.recommend_each(torch.as_tensor(users), next_round).double().numpy()
    if not np.isfinite(scores).all():
        raise CommandError("the trained model gives scores that are not finite: it diverged, so train again")
    scores[trained_on.owners, trained_on.items] = -np.inf
    return top(scores, k)


def top(
    scores: Float64[np.ndarray, "users items"], k: int
) -> tuple[Int64[np.ndarray, "users k"], Float64[np.ndarray, "users k"]]:
    """The `k` best items of each row, the best first, equal scores in the order of items; -1 where a score is -inf."""
    users, n = scores.shape
    lowest = np.partition(scores, n - k, axis=1)[:, n - k, None]  # [users, 1]
    above = scores > lowest
    # Of the items with the lowest score on the list the first ones fill it up, so that exactly k of each row stay.
    level = scores == lowest
    kept = above | (level & (np.cumsum(level, axis=1) <= k - above.sum(axis=1, keepdims=True)))
    items = np.nonzero(kept)[1].reshape(users, k)
    found = np.take_along_axis(scores, items, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    items, found = np.take_along_axis(items, order, axis=1), np.take_along_axis(found, order, axis=1)
    return np.where(np.isneginf(found), -1, items), found


def writer(out: Path) -> AbstractContextManager[Sink]:
    """What writes tables to a file of the format that its name says; the file appears when all is written.

    Raises:
        CommandError: The name says none of the formats.
    """
    formats = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines}
    if out.suffix.lower() not in formats:
        raise CommandError(f"{out} does not end in .parquet, .csv or .jsonl: choose one of these formats for the lists")
    return _whole_or_not_at_all(out, formats[out.suffix.lower()])


@contextmanager
def _whole_or_not_at_all(out: Path, opened: Callable[[Path], AbstractContextManager[Sink]]) -> Iterator[Sink]:
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    try:
        with opened(partial) as sink:
            yield sink
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _tables(opened: Callable[[pa.Schema], Any]) -> Iterator[Sink]:
    """Writes to a file of Arrow's that is opened with the first table, whose schema it needs."""
    files: list[Any] = []

    def write(table: pa.Table) -> None:
        if not files:
            files.append(opened(table.schema))
        files[0].write_table(table)

    try:
        yield write
    finally:
        for file in files:
            file.close()


def _parquet(path: Path) -> AbstractContextManager[Sink]:
    return _tables(lambda schema: pa_parquet.ParquetWriter(path, schema, compression="zstd"))


def _csv(path: Path) -> AbstractContextManager[Sink]:
    quoting = pa_csv.WriteOptions(quoting_style="needed")
    return _tables(lambda schema: pa_csv.CSVWriter(path, schema, write_options=quoting))


@contextmanager
def _json_lines(path: Path) -> Iterator[Sink]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda table: _write_lines(file, table)


def _write_lines(file: TextIO, table: pa.Table) -> None:
    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())
