"""From what a run tapped to attack rows: build the adversary's views, let every attack that applies look, measure.

Two games on every tap: training items against items never seen, and training items against held-out items of the
same user. Where training items are public (DFMR's purchases), there is one: examinations against the rest. The
adversary knows item popularity and what the server itself sent.

Uploads are attacked where single ones were seen, the sums they went into (`privfed.audit.sums`), and the rows that
clients send where only these are seen (`privfed.audit.supports`). What a device shows its own user can always be
attacked, and no protection of uploads covers it; its rows stand under a tap of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from attacks import (
    ALL_ITEMS,
    BIAS,
    CORE,
    INPUT,
    TOUCHED_ITEMS,
    Attack,
    Knowledge,
    ScoreView,
    ServerView,
    Targets,
    measure,
    observe,
    observe_scores,
    observe_sums,
)
from attacks import Observation as Said
from privfed.audit.report import AttackRow, SupportLeak, Tap
from privfed.audit.rows_seen import own_items
from privfed.audit.sums import sums_seen
from privfed.audit.supports import attack_supports
from privfed.data import Split
from privfed.engines import PULL, Observation, load_observations
from privfed.engines.checkpoint import Checkpoint
from privfed.engines.simulation import Costs
from privfed.experiment import Experiment, ExperimentConfig
from privfed.methods.method import ItemBlocks
from privfed.updates import Schema

UploadTap = Literal["raw", "wire"]
UPLOAD_TAPS: tuple[UploadTap, ...] = ("raw", "wire")
AttackedTap = Literal["raw", "wire", "sum"]
ATTACKED_TAPS: tuple[AttackedTap, ...] = (*UPLOAD_TAPS, "sum")

_SCORED_AT_ONCE = 32
"""Users whose devices train and score together, so that the update buffers of a few are alive."""


def views(observations: Sequence[Observation], users: np.ndarray, blocks: ItemBlocks) -> Iterator[ServerView]:
    """One view per round of `users` (ascending); those absent from a round have zero rows."""
    for seen in observations:
        if not np.isin(seen.users.numpy(), users).all():
            raise ValueError(f"round {seen.round} was tapped for users outside the audited ones")
        place = np.searchsorted(users, seen.users.numpy())
        said = blocks.read(seen.tensors)
        if PULL in seen.tensors:
            said["pull"] = seen.tensors[PULL]
        arrays = {role: _spread(values.numpy(), place, len(users)) for role, values in said.items()}
        yield ServerView(seen.round, **arrays)


def applicable(blocks: ItemBlocks) -> tuple[Attack, ...]:
    """The attacks that a server which sees these blocks can run, the popularity guesser first."""
    return CORE + (INPUT if blocks.input is not None else ()) + (BIAS if blocks.bias is not None else ())


def attack(
    observations: Sequence[Observation], tap: Tap, split: Split, users: np.ndarray, blocks: ItemBlocks | str
) -> list[AttackRow]:
    """Every attack that applies on the observations of one tap, in both games.

    Asked about all items, and about those whose row moved; not where the model reads histories, because there the
    softmax over the catalogue moves every row.

    Args:
        observations: of one tap, by round.
        tap: where they were made.
        split: the truth, and the popularity that the adversary knows.
        users: audited users, ascending.
        blocks: which block plays which role; a name alone is the block with one row per item.
    """
    if isinstance(blocks, str):
        blocks = ItemBlocks(blocks)
    knowledge = _knowledge(split)
    said = observe(applicable(blocks), views(observations, users, blocks), knowledge)
    return _rows(said, knowledge, split, users, _scopes(blocks), tap, [o.round + 1 for o in observations])


def attack_sums(
    observations: Sequence[Observation], split: Split, users: np.ndarray, blocks: ItemBlocks, schema: Schema
) -> list[AttackRow]:
    """Every attack that applies on the released sums, whole and by groups of blocks, against everybody in them.

    The scope of a row about some blocks names them; its note says how many clients are in the sums.

    Args:
        observations: of tap `sum`, by round.
        split: the truth, and the popularity that the adversary knows.
        users: audited users, ascending.
        blocks: which block plays which role.
        schema: of the training step.
    """
    knowledge, rows = _knowledge(split), list[AttackRow]()
    for seen in sums_seen(observations, users, blocks, schema):
        said = observe_sums(applicable(blocks), seen.views, knowledge)
        for row in _rows(said, knowledge, split, users, _scopes(blocks), "sum", seen.rounds):
            scope = f"{row.scope}, sum of {seen.blocks}" if seen.blocks else row.scope
            note = "; ".join(filter(None, (seen.note, row.note)))
            rows.append(row.model_copy(update={"scope": scope, "note": note}))
    return rows


def attack_scores(experiment: Experiment, t: int) -> list[AttackRow]:
    """The score threshold on what the audited users' devices show after round `t` - 1, in every game.

    A device downloads and trains alone before it recommends, as `Experiment.recommend` does; nothing is sent.
    """
    shown = []
    for users in torch.split(experiment.audited(), _SCORED_AT_ONCE):
        message, updates = experiment.rehearse(users, t, experiment.server.schema)
        shown.append(experiment.clients.score(users, message, updates, None))
        experiment.clients.discard()
    parts, knowledge = experiment.parts, _knowledge(experiment.parts)
    said = observe_scores(ScoreView(t - 1, torch.cat(shown).numpy()), knowledge)
    who = experiment.audited().numpy()
    if not experiment.registered.public_target:
        return _rows(said, knowledge, parts, who, (ALL_ITEMS,), "scores", [t])
    public = parts.train.mask(who)
    examined = own_items(experiment).mask(who) & ~public
    if not examined.any():
        return []
    results = measure(said, knowledge, Targets.examined_vs_rest(examined, public))
    about = {"unit": "examination"}
    return [AttackRow.of(result, tap="scores", rounds_seen=[t]).model_copy(update=about) for result in results]


def attack_trained(
    experiment: Experiment, tapped: Callable[[AttackedTap], Sequence[Observation]], t: int
) -> list[AttackRow]:
    """Everything that can be attacked after `t` rounds: the uploads of every tap, their sums, what devices show.

    Args:
        experiment: trained.
        tapped: tap -> its observations by round; none where nothing was seen there.
        t: rounds trained.
    """
    users = experiment.audited().numpy()
    blocks = experiment.item_blocks
    rows = [
        row
        for tap in UPLOAD_TAPS
        if blocks is not None and (seen := tapped(tap))
        for row in attack(seen, tap, experiment.parts, users, blocks)
    ]
    if blocks is not None:
        rows += attack_sums(tapped("sum"), experiment.parts, users, blocks, experiment.server.schema)
    return rows + attack_scores(experiment, t)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What a run directory gave away: attack rows, and what the rows that clients send say besides."""

    rows: list[AttackRow]
    support: SupportLeak | None


def attack_run(directory: Path, config: ExperimentConfig, split: Split) -> Attacked:
    """Attack what a run directory tapped, the rows that its clients send, and what its devices show.

    Raises:
        ValueError: nothing was tapped there although the plan lets the server see single uploads.
    """
    experiment = Experiment(config, split)
    seen = {tap: load_observations(directory / "taps", (tap,)) for tap in ATTACKED_TAPS}
    has_rows = experiment.item_blocks is not None
    if has_rows and not any(seen[tap] for tap in UPLOAD_TAPS) and config.privacy.protection.release == "individual":
        raise ValueError(
            f"{directory} holds no tapped uploads; run again with --set 'taps.places=[\"wire\"]' and a new --out"
        )
    t = experiment.restore(directory)
    costs = Costs(*Checkpoint.load(directory / "checkpoint").progress["costs"])
    rows, support = attack_supports(experiment, t, costs)
    return Attacked(attack_trained(experiment, seen.__getitem__, t) + rows, support)


def _scopes(blocks: ItemBlocks) -> tuple[str, ...]:
    """All items, and touched ones; not where the model reads histories, because there every row moves."""
    return (ALL_ITEMS,) if blocks.input is not None else (ALL_ITEMS, TOUCHED_ITEMS)


def _knowledge(split: Split) -> Knowledge:
    return Knowledge(split.train.popularity().astype(np.float64))


def _rows(
    said: Said,
    knowledge: Knowledge,
    split: Split,
    users: np.ndarray,
    scopes: Sequence[str],
    tap: Tap,
    rounds: Sequence[int],
) -> list[AttackRow]:
    """Both games; `rounds` are those looked at, counted from 1."""
    train, seen = split.train.mask(users), split.seen.mask(users)
    games = (
        Targets.trained_vs_never_seen(train, seen),
        Targets.trained_vs_held_out(train, seen & ~train),
    )
    return [
        AttackRow.of(result, tap=tap, rounds_seen=rounds)
        for targets in games
        for result in measure(said, knowledge, targets, scopes=scopes)
    ]


def _spread(values: np.ndarray, place: np.ndarray, users: int) -> np.ndarray:
    out = np.zeros((users, *values.shape[1:]), np.float32)
    out[place] = values
    return out
