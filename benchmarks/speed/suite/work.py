"""What a round must do at least: operations, bytes and cipher bytes, counted by short formulas.

A method's round is a list of phases. A phase cannot be faster than its slowest resource, so its limit is the largest
of operations / matrix rate, bytes / memory bandwidth and cipher bytes / cipher rate, and a round's limit is the sum
over its phases. Counted are multiplications and additions of the mathematics (a symmetric product once, a first layer
only where a history has entries), bytes that must pass between two stages of the protocol (an update is written by a
client and read by the sum), and random words that are used. Not counted: exponentials, sorting, index arithmetic,
Python, and anything that a cache could hold. `FORMULAS` has the same in words.

Notation: n users, m items, p training pairs, d width, k negatives per positive, S = p (1 + k) samples, T distinct
(user, item) pairs among them (expected), E local steps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from privfed.data import Histories

FLOAT, WORD = 4, 4
UNIFORM = 2 * WORD
"""Cipher bytes of a uniform number of 53 bits, and of a normal one."""
ADAM = 11
"""Multiplications and additions of a step on one number: 3 and 4 for its moments, 4 for the step between them."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a round: floating-point operations, bytes of memory and cipher bytes."""

    name: str
    flops: float = 0.0
    moved: float = 0.0
    cipher: float = 0.0

    def seconds(self, flops: float, moved: float, cipher: float) -> float:
        """The least time at these rates per second."""
        return max(self.flops / flops, self.moved / moved, self.cipher / cipher)


FORMULAS = {
    "fedmf": "train 6 S d operations (logits, the gradient of the head, the step of a row); 8 T d bytes of updates",
    "pfedrec": "train 8 S d operations (logits before and after the head's step, its gradient, the step of a row); "
    "8 T d bytes of updates",
    "fedncf": "train 6 S a operations, a the weights behind the item's half of the perceptron; 8 T d bytes of updates, "
    "16 bytes per weight of a client's perceptron",
    "gpfedrec": "train 6 S a operations and 8 n m d bytes (targets read, tables written); graph n (n + 1) m d "
    "operations (a symmetric product; of a sketch, its width for m d) and 4 n m d bytes; means 8 n m d bytes (tables "
    "read, targets written)",
    "fedvae": "per local step 6 n operations for every weight behind the first layer, 4 for every weight of the first "
    "layer whose item a user has and dropout kept",
    "feddae": "as FedVAE: the local encoder is a vector per user",
    "hetefedrec": "per sample and local step 6 operations for every weight behind the item's half of each nested head, "
    "6 w for the inner products of a vector of width w (those of its prefixes are parts of one sum) and w (3w + 1) "
    "where it is decorrelated, 4 w per positive of a star graph; distillation K (3K + 1) operations for every column "
    "of a table, K the items of a step; 8 bytes per number of an upload",
    "fair": "per sample and epoch 12 operations (a positive and its negative) for every weight behind the items' rows; "
    "11 (Adam) per step for every number with a gradient so far; 8 bytes per number of an upload",
    "private-gram": "sum n B (B + 1) operations for a head of B items; 8 n B bytes of vectors",
}
"""Method -> its formulas; random words are counted besides: 4 p (2k + 1) bytes for samples (4 per negative of
HeteFedRec and of FAIR), 4 E p for dropout, 8 n E latent for latent draws."""


def counted(method: str, settings: Any, train: Histories, server: Any) -> list[dict[str, Any]] | None:
    """Phases of a round of everybody, or None where there is no formula.

    Args:
        method: its name.
        settings: of the run.
        train: training items of every user.
        server: the server, for sizes that follow from a rule.
    """
    formula = _FORMULAS.get(method)
    phases = None if formula is None else formula(settings, train, server)
    return None if phases is None else [asdict(phase) for phase in phases]


def least_seconds(phases: list[dict[str, Any]], rates: dict[str, float]) -> float:
    """The limit of a round at measured rates: `gemm` operations, `triad` and `cipher` bytes per second."""
    return sum(Phase(**p).seconds(rates["gemm"], rates["triad"], rates["cipher"]) for p in phases)


def _samples(settings: Any, train: Histories) -> tuple[int, float, Phase]:
    """S, T, and the phase that draws."""
    k, unseen = settings.negatives, np.maximum(train.n_items - train.counts, 1)
    missed = np.power(1 - np.minimum(k / unseen, 1), train.counts)
    touched = float((train.counts + unseen * (1 - missed)).sum())
    count = len(train) * (1 + k)
    return count, touched, Phase("draw", cipher=WORD * len(train) * (2 * k + 1))


def _linear(passes: int) -> Callable[[Any, Histories, Any], list[Phase]]:
    def phases(settings: Any, train: Histories, server: Any) -> list[Phase]:
        del server
        samples, touched, draw = _samples(settings, train)
        d = settings.dim
        return [draw, Phase("train", flops=passes * samples * d), Phase("updates", moved=2 * FLOAT * touched * d)]

    return phases


def _perceptron(settings: Any) -> tuple[int, int]:
    """Weights that a sample passes, and all of one client's."""
    inner = sum(a * b for a, b in pairwise((*settings.hidden, 1)))
    first = settings.dim * settings.hidden[0]
    return first + inner, 2 * first + inner + sum(settings.hidden) + 1


def _fedncf(settings: Any, train: Histories, server: Any) -> list[Phase]:
    del server
    samples, touched, draw = _samples(settings, train)
    passed, weights = _perceptron(settings)
    moved = 2 * FLOAT * touched * settings.dim + 4 * FLOAT * train.n_users * weights
    return [draw, Phase("train", flops=6 * samples * passed), Phase("updates", moved=moved)]


def _gpfedrec(settings: Any, train: Histories, server: Any) -> list[Phase] | None:
    del server
    if settings.precision != "float32":
        return None
    samples, _, draw = _samples(settings, train)
    passed, _ = _perceptron(settings)
    n, table = train.n_users, train.n_items * settings.dim
    phases = [draw, Phase("train", flops=6 * samples * passed, moved=2 * FLOAT * n * table)]
    if settings.graph is None:
        return [*phases, Phase("sum", moved=FLOAT * n * table)]
    compared = table if settings.sketch is None else settings.sketch
    graph = Phase("graph", flops=n * (n + 1) * compared, moved=FLOAT * n * table)
    return [*phases, graph, Phase("means", moved=2 * FLOAT * n * table)]


def _autoencoder(settings: Any, train: Histories, server: Any) -> list[Phase] | None:
    if getattr(settings, "local_encoder", "embedding") != "embedding" or getattr(
        settings, "upload_local_encoder", False
    ):
        return None
    architecture, n, steps = server.architecture, train.n_users, settings.local_steps
    first, *deeper = (math.prod(sides) for sides in architecture.layers().values())
    read = len(train) * (1 - settings.dropout) * (first // train.n_items)
    flops = steps * (6 * n * sum(deeper) + 4 * read)
    cipher = steps * (WORD * len(train) * bool(settings.dropout) + UNIFORM * n * settings.latent)
    return [Phase("draw", cipher=cipher), Phase("train and sum", flops=flops)]


def _hetefedrec(settings: Any, train: Histories, server: Any) -> list[Phase] | None:
    """Sizes are drawn apart from activity, so every size has its share of the samples; expected, as T is."""
    layout = server.layout
    if settings.groups == "activity" or len(layout.sending) < len(layout.of_group):
        return None
    positives = len(train)
    drawn = float(np.minimum(settings.negatives * train.counts, train.n_items - train.counts).sum())
    train_flops = moved = 0.0
    for group, share in enumerate(settings.shares):
        model = layout.models[layout.of_group[group]]
        heads = [_head(layout.models[head].width, settings) for head in model.heads]
        inner = model.width * settings.inner
        everything = 6 * (sum(passed for passed, _ in heads) + inner)
        # A step on the user's vector alone needs neither the gradients of weights nor those of items.
        alone = sum(2 * passed + 2 * deeper for passed, deeper in heads) + 4 * inner
        everything += model.decorrelated * model.width * (3 * model.width + 1)
        star = 4 * model.width * (settings.base == "lightgcn")
        per_sample = settings.steps * everything + settings.user_steps * alone
        train_flops += share * (per_sample * (positives + drawn) + settings.steps * star * positives)
        numbers = (positives + drawn) * (model.width + settings.item_bias)
        weights = sum(p.numel() for head in model.heads for p in layout.head_of(server.parameters, head).values())
        moved += share * 2 * FLOAT * (numbers + train.n_users * weights)
    phases = [
        Phase("draw", cipher=WORD * drawn), Phase("train", flops=train_flops), Phase("updates", moved=moved),
    ]  # fmt: skip
    if layout.distils:
        items = min(settings.distillation_items, train.n_items)
        columns = sum(model.width for model in layout.models)
        phases.append(Phase("distil", flops=settings.distillation * items * (3 * items + 1) * columns))
    return phases


def _head(width: int, settings: Any) -> tuple[int, int]:
    """Weights of a head that a sample passes behind the item's half, and those of them behind the first layer."""
    deeper = sum(a * b for a, b in pairwise((*settings.hidden, 1)))
    return width * settings.hidden[0] + deeper, deeper


def _fair(settings: Any, train: Histories, server: Any) -> list[Phase] | None:
    """Every level has its share of every user; its slots are touched as often as by elements drawn at random."""
    if (settings.task, settings.subspace) != ("ranking", "balanced") or settings.assigned == "activity":
        return None
    if settings.variant not in ("fair", "hom", "fedavg"):
        return None
    model, tiers, epochs = settings.model, server.tiers, settings.epochs
    passed = sum(a * b for a, b in pairwise((model.dim, *model.hidden, 1))) + model.dim * model.gmf
    dense = model.size + len(model.tables) * model.dim
    moved = epochs * float(np.ceil(train.counts / settings.batch_size).sum()) * dense
    sent = float(train.n_users * model.size)
    for level, share in tiers.expected.items():
        slots = sum(tiers.subspaces[level][name].size for name in model.tables)

        def held(items: np.ndarray, slots: int = slots, merged: int = 2**level) -> float:
            return float(slots * (1 - (1 - items / train.n_items) ** merged).sum())

        moved += share * sum(map(held, _touched(train, epochs, settings.batch_size)))
        sent += share * held(_distinct(train, epochs * train.counts))
    return [
        Phase("draw", cipher=WORD * epochs * len(train)),
        Phase("train", flops=2 * 6 * passed * epochs * len(train) + ADAM * moved),
        Phase("updates", moved=2 * FLOAT * sent),
    ]


def _distinct(train: Histories, draws: np.ndarray, positives: np.ndarray | None = None) -> np.ndarray:
    """Expected distinct items of every user: positives, and negatives drawn one by one."""
    unseen = np.maximum(train.n_items - train.counts, 1)
    own = train.counts if positives is None else positives
    return np.asarray(own + unseen * (1 - (1 - 1 / unseen) ** draws))


def _touched(train: Histories, epochs: int, batch: int) -> Iterator[np.ndarray]:
    """Distinct items of every user by each of its local steps; 0 where its epoch is over."""
    for epoch in range(epochs):
        for start in range(0, int(train.counts.max(initial=0)), batch):
            seen = np.minimum(start + batch, train.counts)
            found = _distinct(train, epoch * train.counts + seen, train.counts if epoch else seen)
            yield np.where(start < train.counts, found, 0)


def _private_gram(settings: Any, train: Histories, server: Any) -> list[Phase]:
    del settings
    n, side = train.n_users, server.constants.head
    return [Phase("sum", flops=n * side * (side + 1), moved=2 * FLOAT * n * side)]


_FORMULAS: dict[str, Callable[[Any, Histories, Any], list[Phase] | None]] = {
    "fedmf": _linear(6),
    "pfedrec": _linear(8),
    "fedncf": _fedncf,
    "gpfedrec": _gpfedrec,
    "fedvae": _autoencoder,
    "feddae": _autoencoder,
    "hetefedrec": _hetefedrec,
    "fair": _fair,
    "private-gram": _private_gram,
}
