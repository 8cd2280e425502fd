"""From scores on one device, or from codes, to a list that a person can read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int32, Int64, UInt8
from torch import Tensor

from privfed.cli.directory import DirectoryRecord, checkpointed
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen
from privfed.cli.settings import DataSource, load_data
from privfed.data import Histories, Interactions
from privfed.experiment import Experiment
from privfed.federation import Message


@dataclass(frozen=True, slots=True)
class RecommendedItem:
    """One item of the list.

    Attributes:
        item: original id.
        title: where the data set has one.
        score: of the user's own model; comparable within the list only.
        held_out: the held-out part that the item is in, if any.
    """

    item: str
    title: str | None
    score: float
    held_out: Literal["validation", "test"] | None


def trained(directory: Path, screen: Screen, device: str = "cpu") -> tuple[Experiment, Interactions, int]:
    """A run as its folder holds it, the data it was trained on, and after how many rounds.

    Raises:
        CommandError: there is no such run, it has reached no checkpoint, or its data are not the same any more.
    """
    record = DirectoryRecord.read(directory, "run")
    config = record.experiment().model_copy(update={"device": device})
    interactions = load_data(DataSource(config.data, record.columns, chosen=True), screen)
    record.check_data(interactions, directory)
    checkpointed(directory)
    with screen.working(f"Rebuilding {config.method_name}, with its padding where it has some"):
        experiment = Experiment.on(config, interactions)
    return experiment, interactions, experiment.restore(directory)


def user_code(interactions: Interactions, user: str) -> int:
    """The code of an original user id.

    Raises:
        CommandError: the data set has no such user.
    """
    known = interactions.user_ids.astype(str)
    code = int(known.get_indexer(pd.Index([user]))[0])
    if code < 0:
        raise CommandError(
            f"{interactions.name} has no user {user!r}: its {len(known):,} ids run from {known[0]} to {known[-1]}"
        )
    return code


class CodeTable(Protocol):
    """Binary codes of a catalogue, in a file that a device downloads."""

    @property
    def d(self) -> int:
        """Bits of a code."""

    @property
    def nbytes(self) -> int:
        """Size of all codes."""

    def __len__(self) -> int:
        """Number of items."""

    def recommend(
        self, users: UInt8[np.ndarray, "users bytes"], k: int, exclude: Histories
    ) -> tuple[Int64[np.ndarray, "users k"], Int32[np.ndarray, "users k"]]:
        """The best `k` items for each packed user code, and their scores."""

    def save(self, path: Path) -> None:
        """Write the file."""

    def load(self, path: Path) -> object:
        """Read such a file; raises a ValueError for any other."""


@runtime_checkable
class HoldsCodes(Protocol):
    """Clients whose devices recommend with a binary code, compared bit by bit with those of the items."""

    def item_codes(self, message: Message, ids: Sequence[str]) -> CodeTable:
        """The catalogue as codes, under original ids."""

    def packed_codes(self, clients: Int64[Tensor, " clients"], message: Message) -> UInt8[np.ndarray, "clients bytes"]:
        """Codes with which devices recommend, having received `message`."""


def item_codes(experiment: Experiment, interactions: Interactions) -> CodeTable | None:
    """The catalogue as codes, with original ids; None where devices recommend with something else."""
    if not isinstance(experiment.clients, HoldsCodes):
        return None
    ids = [str(item) for item in interactions.item_ids]
    return experiment.clients.item_codes(experiment.server.public(), ids)


def best(
    experiment: Experiment, interactions: Interactions, user: int, k: int, next_round: int
) -> list[RecommendedItem]:
    """The `k` best items that the user did not train on, best first; equal scores in the order of ids.

    Raises:
        CommandError: the model's scores are not finite.
    """
    parts, k = experiment.parts, min(k, interactions.n_items)
    user = int(parts.rows_of(np.array([user]), interactions.user_ids)[0])
    codes, clients = item_codes(experiment, interactions), experiment.clients
    if codes is not None and isinstance(clients, HoldsCodes):
        with experiment.config.computing():
            users = torch.tensor([user])
            mine = clients.packed_codes(users, experiment.server.public().addressed_to(users))
        items, scores = _by_codes(mine, codes, parts.train.subset(np.array([user])), k)
    else:
        items, scores = _by_scores(experiment.recommend(user, next_round), parts.train.items_of(user), k)
    valid, test = set(parts.valid.items_of(user).tolist()), set(parts.test.items_of(user).tolist())
    titles = None if interactions.item_info is None else interactions.item_info.get("title")

    def described(item: int, score: float) -> RecommendedItem:
        title = None if titles is None or pd.isna(titles.iloc[item]) else str(titles.iloc[item])
        part: Literal["validation", "test"] | None = "test" if item in test else "validation" if item in valid else None
        return RecommendedItem(str(interactions.item_ids[item]), title, score, part)

    return [described(item, score) for item, score in zip(items, scores, strict=True)]


def _by_scores(
    scores: Float[Tensor, " items"], trained_on: Int64[np.ndarray, "history"], k: int
) -> tuple[list[int], list[float]]:
    values = scores.double().numpy()
    if not np.isfinite(values).all():
        raise CommandError("the trained model gives scores that are not finite: it diverged, so train again")
    order = np.argsort(-values, kind="stable")
    order = order[~np.isin(order, trained_on)][:k]
    return order.tolist(), values[order].tolist()


def _by_codes(
    mine: UInt8[np.ndarray, "1 bytes"], codes: CodeTable, trained_on: Histories, k: int
) -> tuple[list[int], list[float]]:
    items, scores = codes.recommend(mine, k, trained_on)
    found = items[0] >= 0
    return items[0][found].tolist(), scores[0][found].astype(float).tolist()
