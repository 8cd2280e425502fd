"""Inclusion bits guessed from the bits of the noise, where `privfed.audit.epsilon.inclusion` guesses from values.

Score, number of guesses and confidence are fixed beforehand: a tenth of the bits on either side, and a confidence that
leaves an honest run its small part of false alarms.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float64

from attacks.empirical import CanaryGuesses, LowerBound, count_guesses, one_run_epsilon
from attacks.implementation import FloatNoise, UntouchedBits
from privfed.audit.checks.implementation.claims import FALSE_ALARM, ReleasedValues, claims_epsilon, padded_tap, released
from privfed.audit.epsilon.inclusion import GUESSED, MIN_BITS
from privfed.audit.report.ceilings import interaction_level
from privfed.audit.report.records import Check, GuaranteeRow
from privfed.engines.transcript import Observation
from privfed.experiment import Experiment, RunResult
from privfed.privacy.epsilon import MIN_DELTA
from privfed.privacy.guarantee import guarantee_for
from privfed.setup.inclusion import InclusionBits

NAME = "bits of the noise say nothing of training items"


def check_inclusion_bits(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """Single uploads alone, where a row of a block stands for an item and inclusion was randomised."""
    plan, inclusion, blocks = experiment.config.privacy, experiment.inclusion, experiment.item_blocks
    local = padded_tap(plan) == "wire"
    if inclusion is None or blocks is None or not local or not claims_epsilon(experiment, result):
        return
    tables = [one for one in released(experiment, result) if one.name == blocks.output and len(one.block.shape) == 2]
    seen = result.transcript.joined("wire")
    guess = _Guesses.of(inclusion, tables, [one for one in seen if blocks.output in one.tensors])
    if guess is None:
        return
    epsilon, delta = _claim(experiment, result)
    best = max(guess.bounds(delta), key=lambda bound: bound.epsilon)
    right = best.evidence.correct if isinstance(best.evidence, CanaryGuesses) else 0
    yield Check(
        name=NAME,
        passed=best.epsilon <= epsilon,
        detail=f"{right} of {guess.number} guesses at inclusion bits are right, so epsilon of one interaction is at "
        f"least {best.epsilon:.3g} (wrong with a chance of {1 - best.confidence:.0e}), and {epsilon:.3g} is claimed at "
        f"delta = {delta:.1g}; the game cannot deny claims above {guess.largest(delta):.3g}",
    )


def _claim(experiment: Experiment, result: RunResult) -> tuple[float, float]:
    """What the run's releases claim for one interaction at the smallest delta that is accounted.

    A one-run bound adds up delta over all inclusion bits, so at the plan's own it could not be as sure as it has to be.
    """
    plan = experiment.config.privacy.model_copy(update={"delta": MIN_DELTA})
    guarantee = guarantee_for(plan, result.composition, experiment.n_users)
    epsilon, delta = interaction_level(GuaranteeRow.model_validate(guarantee.model_dump()))
    return epsilon, min(delta, 1.0 - MIN_DELTA)


class _Guesses:
    """The rows that inclusion bits are about, round by round.

    Args:
        kept: what the bits said.
        rows: of every round, `[bits, width]`, with zeros for users who were absent.
        everything: that was released in every round.
        samplers: of the noise of every round, as floating-point numbers would give it.
    """

    def __init__(
        self,
        kept: Bool[np.ndarray, "bits"],
        rows: Sequence[np.ndarray],
        everything: Sequence[np.ndarray],
        samplers: Sequence[FloatNoise],
    ) -> None:
        self.kept, self._rows, self._everything, self._samplers = kept, rows, everything, samplers
        self.each = int(GUESSED * len(kept))
        self.number = 2 * self.each

    @classmethod
    def of(
        cls, inclusion: InclusionBits, tables: Sequence[ReleasedValues], seen: Sequence[Observation]
    ) -> "_Guesses | None":
        """The game of a run; None where there are too few bits, or no table was seen."""
        users, items = np.nonzero(inclusion.decided)
        rows, everything, samplers = [], [], []
        present = np.zeros(len(inclusion.users), dtype=bool)
        for table, observed in zip(tables, seen, strict=True):
            who = observed.users.numpy()
            at = np.full(len(inclusion.users), -1)
            at[np.searchsorted(inclusion.users, who)] = np.arange(len(who))
            present[at >= 0] = True
            uploads = table.values.reshape(-1, *table.block.shape).astype(np.float32)
            rows.append(np.where((at[users] >= 0)[:, None], uploads[at[users], items], np.float32(0)))
            everything.append(uploads)
            if table.noise is not None:
                samplers.append(FloatNoise(table.noise.law, table.noise.scale))
        decided = present[users]
        if not rows or decided.sum() < MIN_BITS:
            return None
        return cls(inclusion.kept[users, items][decided], [row[decided] for row in rows], everything, samplers)

    def scores(self) -> list[Float64[np.ndarray, "bits"]]:
        """By the bits alone, and by the sampler where it is known; summed over rounds."""
        pairs = list(zip(self._rows, self._everything, strict=True))
        scores = [np.sum([UntouchedBits().score_rows(rows, among) for rows, among in pairs], axis=0)]
        if len(self._samplers) == len(pairs):
            known = zip(self._samplers, self._rows, strict=True)
            scores.append(np.sum([UntouchedBits(noise).score_rows(rows) for noise, rows in known], axis=0))
        return scores

    def bounds(self, delta: float) -> list[LowerBound]:
        """Lower bounds on epsilon, all of which hold together."""
        scores = self.scores()
        confidence = 1 - FALSE_ALARM / len(scores)
        counted = [count_guesses(one, self.kept, guess_in=self.each, guess_out=self.each) for one in scores]
        return [one_run_epsilon(guesses, delta=delta, confidence=confidence) for guesses in counted]

    def largest(self, delta: float) -> float:
        """The bound if every guess were right."""
        perfect = count_guesses(self.kept.astype(np.float64), self.kept, guess_in=self.each, guess_out=self.each)
        return one_run_epsilon(perfect, delta=delta, confidence=1 - FALSE_ALARM / 2).epsilon
