"""FedNCF as one would write it in plain PyTorch for one client: the same in Flower's simulation and in pfl.

A client has an item table, a perceptron and its own vector, draws 4 distinct negatives per positive anew in every
round, and takes one epoch of joint SGD in batches of 256 (Perifanis and Efraimidis, Knowledge-Based Systems 2022); the
table and the perceptron are averaged. Sizes, rates and protocol are those of `privfed`'s defaults; nothing of `privfed`
is imported here. Needs numpy and torch.
"""

import math
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

DIM, HIDDEN, LR, USER_FACTOR, ITEM_FACTOR, NEGATIVES, BATCH, SCALE = 32, (32, 16, 8), 0.1, 80.0, 80.0, 4, 256, 0.1
DATA, MARK = "PEER_DATA", "PEER_MARK"
"""Environment variables: the file of histories, and a word that all processes of a peer share."""
CUT = 10


@dataclass(frozen=True)
class World:
    """Histories of every user as rows of offsets and items, and one test item each (-1: none)."""

    offsets: np.ndarray
    items: np.ndarray
    test: np.ndarray
    left_out: np.ndarray
    n_items: int

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.offsets) - 1

    def positives(self, user: int) -> np.ndarray:
        """Training items of a user."""
        return self.items[self.offsets[user] : self.offsets[user + 1]]


@cache
def world() -> World:
    """The data, read once in every process."""
    with np.load(os.environ[DATA]) as read:
        return World(read["offsets"], read["items"], read["test"], read["valid"], int(read["n_items"]))


class FedNCF(nn.Module):
    """Item table, perceptron, and the vector of whoever trains."""

    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items, DIM)
        nn.init.normal_(self.items.weight, std=SCALE)
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip((2 * DIM, *HIDDEN[:-1]), HIDDEN, strict=True):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.perceptron = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 1))

    def logits(self, user: Tensor, items: Tensor) -> Tensor:
        """Scores of items for the owner of the vector."""
        return self.perceptron(torch.cat([user.expand(len(items), -1), self.items(items)], 1)).squeeze(1)


def optimiser(model: FedNCF, user: Tensor, n_items: int) -> torch.optim.SGD:
    """One SGD over perceptron, vector and table, each at its own rate."""
    return torch.optim.SGD(
        [
            {"params": list(model.perceptron.parameters()), "lr": LR},
            {"params": [user], "lr": LR * USER_FACTOR},
            {"params": [model.items.weight], "lr": LR * ITEM_FACTOR * n_items},
        ],
        lr=LR,
    )


def samples(user: int, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Items and labels of one epoch, shuffled: every positive and its distinct negatives."""
    known = world()
    positives = known.positives(user)
    others = np.setdiff1d(np.arange(known.n_items), positives, assume_unique=True)
    ranks = draw.integers(len(others), size=(len(positives), NEGATIVES))
    while len(twice := np.flatnonzero((np.diff(np.sort(ranks, 1), axis=1) == 0).any(1))):
        ranks[twice] = draw.integers(len(others), size=(len(twice), NEGATIVES))
    items = np.concatenate([positives, others[ranks].ravel()])
    labels = np.zeros(len(items), np.float32)
    labels[: len(positives)] = 1
    order = draw.permutation(len(items))
    return torch.from_numpy(items[order]), torch.from_numpy(labels[order])


def epoch(model: FedNCF, user: Tensor, items: Tensor, labels: Tensor) -> None:
    """One pass of joint SGD."""
    steps, loss = optimiser(model, user, world().n_items), nn.BCELoss()
    for batch, wanted in zip(items.split(BATCH), labels.split(BATCH), strict=True):
        steps.zero_grad()
        loss(model.logits(user, batch).sigmoid(), wanted).backward()
        steps.step()


@torch.no_grad()
def rank(model: FedNCF, user: int, vector: Tensor) -> tuple[float, float] | None:
    """HR@10 and NDCG@10 of a user's test item among all items that are neither trained on nor held out for validation.

    Equal scores count against it half.
    """
    known = world()
    if known.test[user] < 0:
        return None
    scores = model.logits(vector, torch.arange(known.n_items))
    others = torch.ones(known.n_items, dtype=torch.bool)
    others[torch.from_numpy(known.positives(user))] = False
    others[[i for i in (int(known.left_out[user]), int(known.test[user])) if i >= 0]] = False
    mine, rivals = scores[int(known.test[user])], scores[others]
    place = int((rivals > mine).sum()) + int((rivals == mine).sum()) // 2
    return (1.0, 1 / math.log2(place + 2)) if place < CUT else (0.0, 0.0)


def first_vector(user: int) -> Tensor:
    """A user's vector before its first round."""
    return SCALE * torch.from_numpy(np.random.default_rng([1, user]).standard_normal(DIM, dtype=np.float32))


def cpu_seconds() -> float:
    """CPU-seconds of all living processes that carry our mark, children that they waited for included (Linux)."""
    mark, ticks, total = f"{MARK}={os.environ[MARK]}".encode(), os.sysconf("SC_CLK_TCK"), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
                total += sum(int(field) for field in fields[11:15])
        except (OSError, PermissionError):
            continue
    return total / ticks


class Marks:
    """CPU and wall seconds at the end of every round."""

    def __init__(self) -> None:
        self.cpu, self.wall = [cpu_seconds()], [time.perf_counter()]

    def mark(self) -> None:
        """A round is over."""
        self.cpu.append(cpu_seconds())
        self.wall.append(time.perf_counter())

    def rows(self, left_out: int) -> dict[str, float]:
        """Mean of the rounds but the first and the last `left_out`, in which other things happen."""
        last = len(self.cpu) - 1 - left_out
        rounds = last - 1
        return {
            "cpu_s": (self.cpu[last] - self.cpu[1]) / rounds,
            "wall_s": (self.wall[last] - self.wall[1]) / rounds,
            "cpu_s_first": self.cpu[1] - self.cpu[0],
            "rounds": rounds,
        }
