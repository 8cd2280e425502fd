"""Top-k lists: of people in the data, and of new people by their history."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float64, Int64

from privfed.api.errors import UseError
from privfed.data import Histories, Interactions
from privfed.experiment import Experiment
from privfed.federation import MEMORY
from privfed.methods import ClientData

Ids = Int64[np.ndarray, " n"]


def for_users(experiment: Experiment, data: Interactions, users: Sequence[Any], k: int, t: int) -> pd.DataFrame:
    """The best `k` items of each user, without those that the user trained on.

    Raises:
        UseError: a user is not in the data, or the model's scores are not finite.
    """
    codes = codes_of(data.user_ids, users, "user", data.name)
    ids = data.user_ids.take(codes)
    rows = experiment.parts.rows_of(codes, data.user_ids)
    lists = _best(experiment, data, rows, experiment.parts.train.mask(rows), k, t)
    return pd.concat([one.assign(user=user)[["user", *one]] for user, one in zip(ids, lists, strict=True)])


def for_history(experiment: Experiment, data: Interactions, history: Sequence[Any], k: int, t: int) -> pd.DataFrame:
    """The best `k` items for somebody new, as their device would find them: download, local training, ranking.

    Raises:
        UseError: an item is not in the catalogue, there is none, or the method cannot answer from a history.
    """
    items = pd.unique(codes_of(data.item_ids, history, "item", data.name))
    own = Histories.from_pairs(np.zeros(len(items), np.int64), items, 1, data.n_items)
    return _best(_with_newcomer(experiment, own), data, np.array([0]), own.mask(np.array([0])), k, t)[0]


def why_not_from_history(experiment: Experiment) -> str | None:
    """Why a method cannot recommend from a history alone; None where it can."""
    registered, clients = experiment.registered, experiment.clients
    name = experiment.config.method_name
    if registered.training.task(experiment.config.settings()) == "rating":
        return f"{name} predicts ratings, and a list of items has none"
    if registered.traits.public_target:
        return f"{name} learns from behaviours besides the recommended one, which a list of items does not say"
    if kept := sorted(clients.state()):
        return f"{name} trains private parameters ({', '.join(kept)}) for each person over the rounds"
    if experiment.server.public().personal:
        return f"the server of {name} sends everybody parameters of their own"
    return None


def _with_newcomer(experiment: Experiment, own: Histories) -> Experiment:
    """The trained experiment, with the one device of a new person in the place of everybody's."""
    if (reason := why_not_from_history(experiment)) is not None:
        raise UseError(
            f"{reason}, so somebody new has to take part in a run before there is anything to recommend: use a method "
            f"that answers from a history, such as private-gram, ease or fedvae"
        )
    other = copy.copy(experiment)
    data = ClientData(own, own, storage=MEMORY)
    with experiment.config.computing():
        other.clients = experiment.registered.training.clients(experiment.config.settings(), data, experiment.streams)
    return other


def _best(
    experiment: Experiment, data: Interactions, users: Ids, trained_on: Bool[np.ndarray, "n items"], k: int, t: int
) -> list[pd.DataFrame]:
    """Lists in the order of `users`."""
    scores = experiment.recommend_each(torch.from_numpy(users), t).double().numpy()
    titles = None if data.item_info is None else data.item_info["title"].to_numpy()
    return [described(data.item_ids, titles, *one) for one in ranked(scores, trained_on, k)]


def ranked(
    scores: Float64[np.ndarray, "n items"], left_out: Bool[np.ndarray, "n items"], k: int
) -> list[tuple[Int64[np.ndarray, " _"], Float64[np.ndarray, " _"]]]:
    """Item numbers of the best `k` of every row and their scores; equal ones stand in the order of numbers.

    Raises:
        UseError: there is no best.
    """
    if k < 1:
        raise UseError(f"k={k} asks for no items: give a whole number of at least 1")
    if not np.isfinite(scores).all():
        raise UseError("the trained model gives scores that are not finite: it diverged, so train again")
    scores[left_out] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1)
    return [(items[np.isfinite(row)], row[np.isfinite(row)]) for items, row in zip(order, best, strict=True)]


def described(ids: pd.Index, titles: np.ndarray | None, items: Ids, scores: np.ndarray) -> pd.DataFrame:
    """item, title and score of item numbers."""
    named = None if titles is None else titles[items]
    return pd.DataFrame({"item": ids.take(items), "title": named, "score": scores})


def codes_of(known: pd.Index, given: Sequence[Any], what: str, name: str) -> Ids:
    """Codes of original ids, whether these are given as numbers or as texts.

    Raises:
        UseError: one of them is not known, or there is none.
    """
    if not len(given):
        raise UseError(f"no {what} is given: name at least one")
    texts = [_text(one) for one in given]
    codes = known.astype(str).get_indexer(pd.Index(texts))
    if (codes < 0).any():
        missing = texts[int((codes < 0).argmax())]
        raise UseError(
            f"{name} has no {what} {missing!r}: its {len(known):,} ids run from {known[0]!s} to {known[-1]!s}"
        )
    return codes.astype(np.int64)


def _text(given: Any) -> str:
    """An id as text; 7.0, which pandas makes of 7 in a column with a gap, is 7."""
    whole = isinstance(given, float | np.floating) and float(given).is_integer()
    return str(int(given)) if whole else str(given)
