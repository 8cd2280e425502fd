"""From what a run tapped to attribute rows: how well gender, age and occupation of the tapped users are guessed.

The adversary knows the attribute of three in four of these users and guesses the others', from one kind of evidence
about each: item rows as they were sent, the items that a membership attack recovers from these, the blocks without
item rows, or, in a sum that shows which rows a client sends, these rows.
Beside them stand baselines that no adversary sees: true interactions (what there is to leak), the same blind to
popularity, the number of interactions alone, and what the method keeps on the device. A sum over clients has no row for
one person, so there is no attribute to infer from it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float64, Int64

from attacks import Knowledge
from attacks.attributes import (
    Gram,
    activity,
    infer_attribute,
    item_rows,
    popularity_blind,
    recovered_items,
    unit_rows,
    upload_gram,
)
from attacks.membership import DecoderBias, RankOneSign
from privfed.audit.attack_runs.attack_run import UPLOAD_TAPS, AttackedTap, UploadTap, views
from privfed.audit.attack_runs.rows_seen import rows_seen
from privfed.audit.report.records import AttributeRow, Interval, NotRun, Tap
from privfed.contracts import Schema
from privfed.data import Attribute, DataError, UserClasses, user_classes
from privfed.data.attributes import UNKNOWN
from privfed.engines.transcript import Observation
from privfed.experiment import Experiment
from privfed.methods import ItemBlocks

DEFAULT: tuple[Attribute, ...] = ("gender", "age 35")

FOLDS = 4
MIN_PER_CLASS = 10
"""Fewest of the tapped users that a class must have to be told apart."""

NO_PERSON = (
    "a sum over clients has no part that belongs to one person, so there is nothing to guess that person's attribute "
    "from; what sums say of single interactions stands under the attacks on sums"
)

_OTHERS_KNOWN = f"the attribute of {1 - 1 / FOLDS:.0%} of the users"

TappedUploads = Mapping[UploadTap, Sequence[Observation]]


@dataclass(frozen=True, slots=True, eq=False)
class AttributeEvidence:
    """One kind of evidence about every tapped user.

    Attributes:
        name: what it is.
        tap: where it is seen; None for baselines.
        values: one row per user, or inner products of all pairs.
        knowledge: what the adversary knows besides the attribute of others.
    """

    name: str
    tap: Tap | None
    values: Float64[np.ndarray, "users columns"] | Gram
    knowledge: tuple[str, ...] = ()

    def subset(self, positions: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "n columns"] | Gram:
        """The same of some users."""
        if isinstance(self.values, Gram):
            return Gram(self.values.products[np.ix_(positions, positions)])
        rows: np.ndarray = self.values[positions]
        return rows


@dataclass(slots=True, eq=False)
class InferredAttributes:
    """Attribute rows of a run, and what could not be attacked."""

    rows: list[AttributeRow] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)


def attack_attributes(
    experiment: Experiment,
    tapped: Callable[[AttackedTap], Sequence[Observation]],
    *,
    attributes: Sequence[Attribute] = DEFAULT,
    baselines: bool = True,
    seed: int = 0,
) -> InferredAttributes:
    """Guess attributes of the users that were tapped, from everything that was seen of them.

    All evidence is about the same users. Who was tapped in some rounds only counts as silent in the others.

    Args:
        experiment: trained.
        tapped: tap -> its observations by round; none where nothing was seen there.
        attributes: what to guess.
        baselines: whether to guess from true interactions and activity too.
        seed: of folds and bootstrap.
    """
    inferred, targets = InferredAttributes(), list[UserClasses]()
    uploads = {tap: seen for tap in UPLOAD_TAPS if (seen := tapped(tap))}
    users = _tapped_users(uploads, experiment)
    for attribute in attributes:
        what = f"inference of {attribute}"
        try:
            classes = user_classes(experiment.parts.attributes, attribute, experiment.parts.source).among(
                users, MIN_PER_CLASS
            )
        except DataError as problem:
            inferred.not_run.append(NotRun(what=what, why=str(problem)))
            continue
        if len(classes.names) > 1:
            targets.append(classes)
        else:
            why = f"of the {len(users)} users looked at, fewer than two classes have {MIN_PER_CLASS}: raise taps.users"
            inferred.not_run.append(NotRun(what=what, why=why))
    if targets and not uploads and tapped("sum"):
        inferred.not_run.append(NotRun(what="inference of attributes from sums", why=NO_PERSON))
    if targets:
        for evidence in _everything(experiment, uploads, users, baselines=baselines):
            inferred.rows += [_row(evidence, classes, seed) for classes in targets]
    return inferred


def _tapped_users(uploads: TappedUploads, experiment: Experiment) -> Int64[np.ndarray, "users"]:
    """Everybody of whom an upload was seen, ascending; the audited users where nobody's was."""
    seen = [observation.users for observations in uploads.values() for observation in observations]
    return np.unique(torch.cat(seen).numpy()) if seen else experiment.audited().numpy()


def _everything(
    experiment: Experiment, uploads: TappedUploads, users: Int64[np.ndarray, "users"], *, baselines: bool
) -> Iterator[AttributeEvidence]:
    """All evidence about the users, one kind at a time, so that it need not be in memory together."""
    train = experiment.trained.train
    if baselines:
        rows = item_rows(train.mask(users))
        yield AttributeEvidence("true interactions", None, rows)
        yield AttributeEvidence(
            "true interactions, blind to popularity", None, popularity_blind(rows, train.popularity())
        )
        yield AttributeEvidence("number of interactions", None, activity(train.counts[users]))
    if (kept := _kept(experiment, users)) is not None:
        yield AttributeEvidence("what stays on the device", None, kept)
    sent_rows = rows_seen(experiment, experiment.config.rounds)
    if sent_rows is not None and sent_rows.by == "aggregators" and len(sent_rows.sent):
        yield AttributeEvidence("rows that clients send", "support", item_rows(sent_rows.sent.mask(users)))
    blocks = experiment.item_blocks
    knowledge = Knowledge(train.popularity().astype(np.float64))
    for tap, seen in uploads.items():
        if blocks is not None:
            yield from _from_items(seen, tap, users, blocks, knowledge)
        if others := _other_blocks(experiment.server.schema, blocks, train.n_items):
            yield AttributeEvidence(
                _over("blocks without item rows", seen), tap, _joined(_flat(o, others, users) for o in seen)
            )


def _from_items(
    seen: Sequence[Observation],
    tap: UploadTap,
    users: Int64[np.ndarray, "users"],
    blocks: ItemBlocks,
    knowledge: Knowledge,
) -> Iterator[AttributeEvidence]:
    """Item rows as they are, and the items that the strongest core attack finds in them."""
    attack = RankOneSign() if blocks.bias is None else DecoderBias()
    scores, grams = np.zeros((len(users), len(knowledge.popularity))), list[Gram]()
    for view in views(seen, users, blocks):
        scores += attack.score(view, knowledge)
        grams.append(upload_gram(view))
    yield AttributeEvidence(_over("item rows as sent", seen), tap, _joined(grams))
    yield AttributeEvidence(
        _over(f"items recovered by {attack.name}", seen), tap, recovered_items(scores), attack.knowledge
    )


def _over(name: str, seen: Sequence[Observation]) -> str:
    return name if len(seen) == 1 else f"{name}, {len(seen)} rounds"


def _joined(grams: "Iterator[Gram] | Sequence[Gram]") -> Gram:
    """Rounds side by side, each user's part of each round at length 1."""
    return Gram(np.sum([gram.unit().products for gram in grams], axis=0))


def _other_blocks(schema: Schema, blocks: ItemBlocks | None, n_items: int) -> list[str]:
    """Blocks of real numbers that say nothing about single items: heads, hidden layers."""
    zeros = {name: torch.zeros(1, *block.shape) for name, block in schema.items()}

    def read(name: str) -> bool:
        if blocks is None or blocks.rows is None:
            return blocks is not None and name in (blocks.output, blocks.input, blocks.bias)
        probe = torch.linspace(1, 2, zeros[name].numel()).view_as(zeros[name])
        return bool(blocks.rows(zeros | {name: probe}).any())

    real = [name for name, block in schema.items() if block.kind == "real" and block.shape[:1] != (n_items,)]
    return [name for name in real if not read(name)]


def _flat(seen: Observation, names: Sequence[str], users: Int64[np.ndarray, "users"]) -> Gram:
    """Products of some blocks of one round, zeros for whom it did not see."""
    positions = np.searchsorted(users, seen.users.numpy())
    sent = Gram.from_columns(seen.tensors[name].flatten(1).numpy() for name in names)
    products = np.zeros((len(users), len(users)))
    products[np.ix_(positions, positions)] = sent.products
    return Gram(products)


def _kept(
    experiment: Experiment, users: Int64[np.ndarray, "users"]
) -> Float64[np.ndarray, "users columns"] | Gram | None:
    """The private tensors that every user has; None where a method keeps none."""
    at = torch.from_numpy(users)
    private = [
        tensor[at].flatten(1).numpy()
        for tensor in experiment.clients.state().values()
        if tensor.is_floating_point() and tensor.shape[:1] == (experiment.n_users,)
    ]
    if not private:
        return None
    wide = sum(tensor.shape[1] for tensor in private) > len(users)
    return Gram.from_columns(private).unit() if wide else unit_rows(np.concatenate(private, axis=1).astype(np.float64))


def _row(evidence: AttributeEvidence, classes: UserClasses, seed: int) -> AttributeRow:
    known = np.flatnonzero(classes.codes != UNKNOWN)
    result = infer_attribute(evidence.subset(known), classes.codes[known], folds=FOLDS, seed=seed)
    return AttributeRow(
        attribute=classes.attribute,
        classes=classes.words,
        evidence=evidence.name,
        tap=evidence.tap,
        knowledge=[_OTHERS_KNOWN, *evidence.knowledge],
        auc=Interval(value=result.auc.value, lo=result.auc.lo, hi=result.auc.hi),
        balanced_accuracy=Interval(
            value=result.balanced_accuracy.value, lo=result.balanced_accuracy.lo, hi=result.balanced_accuracy.hi
        ),
        majority=result.majority,
        n_users=result.n_users,
    )
