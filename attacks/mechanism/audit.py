"""Audit of any mechanism: search for the worst neighbours, then measure them on fresh trials."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import poisson

from attacks.empirical import CanaryGuesses, TrialCounts, clopper_pearson_epsilon, epsilon_from_mu, gdp_epsilon
from attacks.empirical.bounds import ASSUMES_GDP
from attacks.implementation.claimed_noise import MAX_FALSE_ALARM, ClaimedNoise
from attacks.mechanism.canaries import one_call
from attacks.mechanism.claim import Claim
from attacks.mechanism.findings import Finding, MechanismReport, Verdict
from attacks.mechanism.floats import fit_bits
from attacks.mechanism.grids import grid_step
from attacks.mechanism.inputs import Inputs, NeighbourPair, neighbour_pairs, read_example
from attacks.mechanism.release import CapturedRelease, Release, Trials, untouched_randomness
from attacks.mechanism.replay import Alignment, Law, align, noise_law, replayed_epsilon, seems_gaussian
from attacks.mechanism.scores import FittedScore, fit_certain, fit_score
from attacks.mechanism.search import Category, TriedPair, choose, growth, strongest, try_pairs

ALPHA = 0.05
"""Probability with which a true claim may be rejected, over all bounds of a report."""

TRIALS = 2_000
"""Fresh trials in each world; a claim that needs more to be rejected gets them as time allows."""

_MAX_TRIALS = 100_000
_MAX_COMPOSED = 8
"""Calls that one trial composes at most; fewer calls than claimed bound epsilon from below all the same."""

UNSEEN = (
    "what only inputs between the tried ones do, and branches that a rare input takes",
    "state that the mechanism keeps between calls (momentum, residuals, a seed that starts anew with every process), "
    "unless it shows as the same noise twice",
    "time, memory, messages on the way, and what is written to disk",
    "a budget that is composed over other queries than the claimed steps",
    "an epsilon below the claim: a bound from trials lies under the truth, and 0 is no evidence of privacy",
)


@dataclass(frozen=True, eq=False)
class _Measured:
    """A pair on fresh trials.

    Attributes:
        epsilon: Larger of the bounds.
        single: Bound for one call, where it is known.
        method: Its estimator.
        sentence: What told the worlds apart.
        evidence: Counts and measures.
    """

    epsilon: float
    single: float
    method: str
    sentence: str
    evidence: dict[str, float | str]


@dataclass(frozen=True, eq=False)
class _Measuring:
    """What every measurement needs to know.

    Attributes:
        release: The mechanism.
        claim: The claim.
        seed: First seed.
        trials: Fresh trials in each world.
        alpha: Share of each bound.
        begun: When the audit began.
        deadline: When to stop.
    """

    release: CapturedRelease
    claim: Claim
    seed: int
    trials: int
    alpha: float
    begun: float
    deadline: float

    @property
    def composed(self) -> int:
        """Calls in one trial."""
        return min(self.claim.steps, _MAX_COMPOSED)

    def worlds(self, pair: NeighbourPair, start: int, n: int) -> tuple[Trials, Trials]:
        """Both worlds under the same seeds."""
        seeds = list(range(self.seed + start, self.seed + start + n * self.composed))
        without = self.release.trials(pair.without, seeds)
        member = self.release.trials(pair.member, seeds, without.layout)
        return without, member


def audit_mechanism(
    release: Release,
    claim: Claim,
    *,
    inputs: Inputs | None = None,
    shape: tuple[int, ...] = (8,),
    users: int = 8,
    records: int = 1,
    min_users: int = 0,
    extremes: bool = True,
    seed: int = 0,
    trials: int = TRIALS,
    alpha: float = ALPHA,
    budget_seconds: float = 60.0,
) -> MechanismReport:
    """Audit a mechanism against a claim of differential privacy.

    Inputs are chosen on some trials and measured on others, and all bounds of a report share `alpha`.

    Args:
        release: The mechanism: (inputs, generator) -> arrays, tensors or numbers, or a mapping or sequence of them.
        claim: What is claimed of it.
        inputs: Example that it takes: an array or tensor with one row per record, or a mapping of them, of which
            "user" is the user of each row, if present. By default `users` times `records` small random rows.
        shape: Shape of one row, if there is no example.
        users: Number of users, if there is no example.
        records: Consecutive rows that belong to one user, if no column says whose they are.
        min_users: Least number of other users; a mechanism that promises nothing in small company needs it.
        extremes: Whether NaN, infinity, and the largest and smallest numbers are inputs too.
        seed: First seed of its randomness.
        trials: Fresh trials in each world.
        alpha: Probability with which a true claim may be rejected.
        budget_seconds: When this time has passed, no measurement is begun.

    Raises:
        ValueError: If the mechanism refuses the example or releases no numbers, or an argument is out of range.
    """
    if not (0 < alpha < 1 and trials >= 100 and users >= 1 and records >= 1):
        raise ValueError(
            f"Got alpha={alpha}, trials={trials}, users={users}, records={records}; pass an alpha between 0 and 1, at "
            "least 100 trials, and at least one user and record."
        )
    begun = time.monotonic()
    example = read_example(inputs, shape, users, records, seed)
    captured = CapturedRelease(release, example)
    kept: dict[str, object] = {"records": records, "min_users": min_users, "extremes": extremes, "seed": seed}
    rows: dict[str, object] = {"shape": shape, "users": users} if inputs is None else {"inputs": "inputs"}
    arguments = _arguments(rows | kept)
    with untouched_randomness():
        captured.begin()
        pairs = neighbour_pairs(example, claim, min_users=min_users, extremes=extremes)
        candidates = try_pairs(captured, pairs, [seed + 1 + k for k in range(16)], begun + 0.25 * budget_seconds)
        if not candidates:
            raise ValueError(
                "The mechanism refused every pair of neighbouring inputs; pass inputs that it takes, or min_users."
            )
        chosen = choose(candidates)
        if "influence" in chosen:
            rivals = [c for c in candidates if c.pair.kind == "finite" and not c.unnoised]
            chosen["influence"] = strongest(captured, rivals or candidates, list(range(seed + 100, seed + 200)))
        # At most three bounds for every pair, one for bits, one from one call, by an estimator that trials under other
        # seeds decide: fixed before any fresh trial.
        task = _Measuring(
            captured, claim, seed + 1_000, trials, alpha / (3 * len(chosen) + 2), begun, begun + budget_seconds
        )
        findings = [
            finding
            for category, candidate in chosen.items()
            if category == next(iter(chosen)) or time.monotonic() < task.deadline
            for finding in _measure(task, category, candidate, growth(candidates), arguments)
        ]
        findings += _one_call(task, gaussian=any(map(_moves_gaussian_noise, findings)))
        if time.monotonic() < task.deadline:
            findings += _bits(task, candidates, arguments)
    return _report(claim, findings, captured, chosen, alpha)


def neighbouring_inputs(
    claim: Claim,
    *,
    inputs: Inputs | None = None,
    shape: tuple[int, ...] = (8,),
    users: int = 8,
    records: int = 1,
    min_users: int = 0,
    extremes: bool = True,
    seed: int = 0,
) -> dict[str, tuple[Inputs, Inputs]]:
    """The pairs that an audit tries, by name: without the unit (or with another in its place), and with it.

    Args:
        claim: As in :func:`audit_mechanism`.
        inputs: As there.
        shape: As there.
        users: As there.
        records: As there.
        min_users: As there.
        extremes: As there.
        seed: As there.
    """
    example = read_example(inputs, shape, users, records, seed)
    pairs = neighbour_pairs(example, claim, min_users=min_users, extremes=extremes)
    return {pair.name: (example.pack(pair.without), example.pack(pair.member)) for pair in pairs}


def _measure(
    task: _Measuring,
    category: Category,
    candidate: TriedPair,
    grown: tuple[float, float] | None,
    arguments: str,
) -> Iterator[Finding]:
    """Findings about the most telling pair of a category."""
    pair, claim = candidate.pair, task.claim
    half = max(100, task.trials // 4)
    without, member = task.worlds(pair, 0, half)
    single_a, single_b = _stacked(without, task.composed), _stacked(member, task.composed)
    kinds = ("values", "form", "noiseless", "grid") if category == "unnoised outputs" else None
    fitted = fit_score(single_a, single_b, claim.delta, kinds)
    alignment = align(without.numbers, member.numbers)
    fresh_without, fresh_member = task.worlds(pair, half * task.composed, task.trials)
    law = None
    if without.layout == fresh_without.layout and not (without.odd.any() or fresh_without.odd.any()):
        law = noise_law(_noisy(np.concatenate([without.numbers, fresh_without.numbers])))
    linear = fit_score(single_a, single_b, claim.delta, ("form", "linear"))
    measured = _best(task, (fitted, linear), alignment, law, (without, fresh_without, fresh_member))
    if measured.epsilon <= claim.epsilon:
        certain, rate = fit_certain(single_a, single_b)
        if more := _trials_to_reject(task, rate, len(single_a)):
            # Decided without these trials, so that they are as fresh as the first ones.
            extended = task.worlds(pair, (half + task.trials) * task.composed, more)
            measured = max(measured, _by_errors(task, certain, *extended), key=lambda bound: bound.epsilon)
    reproduction = _reproduction(task, pair, arguments)
    yield _influence_finding(claim, category, pair, measured, task.alpha, grown, reproduction)
    if category == "influence":
        yield from _steps_finding(claim, measured, task.alpha, pair, reproduction)
        yield _fresh_finding(without, fresh_without, law, pair, reproduction)


def _best(
    task: _Measuring,
    scores: tuple[FittedScore, FittedScore],
    alignment: Alignment | None,
    law: Law | None,
    trials: tuple[Trials, Trials, Trials],
) -> _Measured:
    """The larger of the bound from error rates and the one through the law of the noise."""
    fitted, linear = scores
    selected, without, member = trials
    bounds = [_by_errors(task, fitted, without, member)]
    if law is not None and alignment is not None and alignment.holds(without.numbers, member.numbers):
        bounds.append(_by_replay(task, alignment, law, selected, without))
    elif law == "gaussian" and task.claim.delta > 0 and linear.name == "linear":
        bounds += _by_gdp(task, linear, without, member)
    return max(bounds, key=lambda measured: measured.epsilon)


def _by_errors(task: _Measuring, fitted: FittedScore, without: Trials, member: Trials) -> _Measured:
    a, b = _stacked(without, task.composed), _stacked(member, task.composed)
    bound = clopper_pearson_epsilon(
        fitted.function(b),
        fitted.function(a),
        delta=task.claim.delta,
        threshold=fitted.threshold,
        confidence=1 - task.alpha,
    )
    counts = bound.evidence
    shown = (counts.true_positives, counts.false_positives) if isinstance(counts, TrialCounts) else (0, 0)
    sentence = f"{fitted.detail}: {shown[0]} of {len(b)} trials with the unit, {shown[1]} of {len(a)} without"
    evidence: dict[str, float | str] = {
        "score": fitted.name,
        "threshold": fitted.threshold,
        "member trials": len(b),
        "member hits": shown[0],
        "other trials": len(a),
        "other hits": shown[1],
    }
    return _Measured(bound.epsilon, 0.0, "Clopper-Pearson, no assumption", sentence, evidence)


def _by_replay(task: _Measuring, alignment: Alignment, law: Law, selected: Trials, without: Trials) -> _Measured:
    claim = task.claim
    worlds = alignment, law, without.numbers, selected.numbers
    epsilon, single = (
        replayed_epsilon(*worlds, delta=claim.delta, steps=steps, confidence=1 - task.alpha)
        for steps in (claim.steps, 1)
    )
    noise = float(without.numbers[:, alignment.noisy].std(axis=0).mean())
    shift = float(np.linalg.norm(alignment.shift))
    factor = float(alignment.factor[np.abs(np.log(np.abs(alignment.factor))).argmax()])
    scaled = f", and the noise by a factor of {factor:.4g}" if alignment.scaled else ""
    pure = " (which has no finite epsilon at delta 0)" if law == "gaussian" and claim.delta == 0 else ""
    sentence = (
        f"replayed under the same randomness, the unit moves the release by exactly {shift:.4g} (L2) against {law} "
        f"noise of standard deviation {noise:.4g}{scaled}{pure}"
    )
    evidence: dict[str, float | str] = {
        "shift": shift,
        "noise": noise,
        "noise factor": factor,
        "law": law,
        "replays": len(without),
    }
    return _Measured(epsilon, single, f"replay, given that the noise is {law} as it seems to be", sentence, evidence)


def _by_gdp(task: _Measuring, fitted: FittedScore, without: Trials, member: Trials) -> Iterator[_Measured]:
    """Bound through mu, where both worlds scatter alike."""
    a, b = fitted.function(_stacked(without, task.composed)), fitted.function(_stacked(member, task.composed))
    ratio = math.log(max(float(a.std()), 1e-300) / max(float(b.std()), 1e-300)) * math.sqrt(len(a))
    if abs(ratio) > 3 or not seems_gaussian((b - b.mean()) / max(float(b.std()), 1e-300)):
        return
    bound = gdp_epsilon(b, a, delta=task.claim.delta, confidence=1 - task.alpha)
    per_call = (bound.mu or 0.0) / math.sqrt(task.composed)
    epsilon = epsilon_from_mu(per_call * math.sqrt(task.claim.steps), task.claim.delta)
    yield _Measured(
        epsilon,
        epsilon_from_mu(per_call, task.claim.delta),
        f"GDP, where {ASSUMES_GDP}",
        f"the sum of scores gives mu >= {per_call:.4g} a call",
        {"mu": per_call, "trials": len(a)},
    )


def _influence_finding(
    claim: Claim,
    category: Category,
    pair: NeighbourPair,
    measured: _Measured,
    alpha: float,
    grown: tuple[float, float] | None,
    reproduction: str,
) -> Finding:
    verdict: Verdict = (
        "violation" if measured.epsilon > claim.epsilon else "consistent" if measured.epsilon > 0 else "not seen"
    )
    sentence = f"With {pair.name}: {measured.sentence}; epsilon >= {measured.epsilon:.4g}."
    if category == "unnoised outputs" and verdict != "violation":
        verdict = "not seen"
        sentence += (
            " No noise was seen there; it takes more trials, or budget_seconds, to reject a claim of this epsilon."
        )
    if category == "influence" and grown is not None:
        sentence += f" Nothing clips: the influence grows from {grown[0]:.3g} to {grown[1]:.3g} with the size."
    return Finding(
        category,
        verdict,
        sentence,
        measured.epsilon,
        measured.method,
        1 - alpha,
        pair.name,
        measured.evidence,
        reproduction,
    )


def _steps_finding(
    claim: Claim, measured: _Measured, alpha: float, pair: NeighbourPair, reproduction: str
) -> Iterator[Finding]:
    if claim.steps == 1 or measured.single == 0:
        return
    once = measured.single <= claim.epsilon < measured.epsilon
    yield Finding(
        "steps",
        "violation" if once else "consistent" if measured.epsilon <= claim.epsilon else "violation",
        f"One call has epsilon >= {measured.single:.4g}, {claim.steps} calls have epsilon >= {measured.epsilon:.4g}"
        + ("; the claim fits one call and not all." if once else "."),
        measured.epsilon,
        measured.method,
        1 - alpha,
        pair.name,
        {"one call": measured.single, "all calls": measured.epsilon},
        reproduction,
    )


def _fresh_finding(selected: Trials, fresh: Trials, law: Law | None, pair: NeighbourPair, reproduction: str) -> Finding:
    """Whether noise came twice, bit by bit, under different seeds."""
    numbers = np.concatenate([selected.numbers, fresh.numbers])
    noisy = _noisy(numbers)
    n = len(numbers)
    if law is None or not noisy.shape[1] or len(np.unique(noisy[:, 0])) < 3 or grid_step(noisy[:, 0]):
        return Finding(
            "fresh noise", "not seen", "The outputs are discrete or of no known law, where repeats are natural."
        )
    repeated = n - len(np.unique(np.ascontiguousarray(noisy), axis=0))
    scale = max(float(noisy[:, 0].std()), 1e-300)
    expected = n * (n - 1) / 2 * 2.0 ** ClaimedNoise(law, scale).log2_atom
    p = float(poisson.sf(repeated - 1, expected)) if repeated else 1.0
    return Finding(
        "fresh noise",
        "violation" if p < MAX_FALSE_ALARM else "consistent",
        f"{repeated} of {n} calls under different seeds released what an earlier one had released, bit by bit.",
        pair=pair.name,
        evidence={"repeated": repeated, "calls": n, "p-value": p},
        reproduction=reproduction,
    )


def _moves_gaussian_noise(finding: Finding) -> bool:
    """Whether a unit was seen to shift Gaussian noise, exactly and by nothing else; sampling shows no such relation."""
    seen = finding.evidence or {}
    return finding.subject == "influence" and seen.get("law") == "gaussian" and seen.get("noise factor") == 1.0


def _one_call(task: _Measuring, *, gaussian: bool) -> Iterator[Finding]:
    """Bound from canaries in a single call, where the mechanism's form allows it."""
    claim = task.claim
    # The seeds from task.seed on are those of trials, which decided on the estimator.
    bound = one_call(task.release, task.release.example, claim, task.seed - 1, 1 - task.alpha, gaussian=gaussian)
    if bound is None or not isinstance(bound.evidence, CanaryGuesses):
        return
    counts = bound.evidence
    yield Finding(
        "one call",
        "violation" if bound.rejects(claim.epsilon) else "consistent" if bound.epsilon > 0 else "not seen",
        f"{counts.correct} of {counts.guesses} guesses at the inclusion bits of {counts.canaries} canaries were "
        f"correct; epsilon >= {bound.epsilon:.4g}.",
        bound.epsilon,
        f"{bound.estimator}, where {bound.assumes}",
        1 - task.alpha,
        evidence={"canaries": counts.canaries, "guesses": counts.guesses, "correct": counts.correct},
    )


def _bits(task: _Measuring, candidates: list[TriedPair], arguments: str) -> Iterator[Finding]:
    """Whether floating-point numbers tell apart what the law of the noise does not."""
    alone = [
        c
        for c in candidates
        if c.pair.kind == "finite"
        and not c.unnoised
        and c.alignment is not None
        and c.pair.name.endswith("nobody else")
    ]
    if not alone:
        return
    pair = max(alone, key=lambda candidate: candidate.influence).pair
    half = max(100, task.trials // 4)
    start = (half + _MAX_TRIALS) * task.composed
    single = replace(task, claim=replace(task.claim, steps=1))
    without, member = single.worlds(pair, start, half)
    fitted = fit_bits(without, member, task.claim.delta, noise_law(_noisy(without.numbers)))
    fresh = single.worlds(pair, start + half, task.trials)
    measured = _by_errors(single, fitted, *fresh)
    rejected = measured.epsilon > task.claim.epsilon
    machine = task.claim.arithmetic == "machine"
    yield Finding(
        "floating-point numbers",
        ("violation" if machine else "beyond the claim")
        if rejected
        else "consistent"
        if measured.epsilon
        else "not seen",
        f"With {pair.name}: {measured.sentence}; epsilon >= {measured.epsilon:.4g}."
        + ("" if machine or not rejected else " The claim is about real numbers; arithmetic=machine includes bits."),
        measured.epsilon if machine else None,
        measured.method,
        1 - task.alpha,
        pair.name,
        measured.evidence,
        _reproduction(task, pair, arguments),
    )


def _trials_to_reject(task: _Measuring, rate: float, fitted: int) -> int:
    """Trials with which an event that one world never shows rejects the claim; 0 without such an event, or time.

    Args:
        task: What is measured.
        rate: Of the event in the other world.
        fitted: Trials in each world in which it was looked for.
    """
    allowed = math.exp(min(task.claim.epsilon, 50.0))
    # What one world never showed in n trials has a rate there of up to about 1 / n.
    if rate * fitted < 3 * allowed:
        return 0
    needed = max(1.3 * math.log(2 / task.alpha) * allowed / rate, task.trials)
    speed = task.release.calls / max(time.monotonic() - task.begun, 1e-3)
    affordable = min(speed * max(task.deadline - time.monotonic(), 0.0), 2 * _MAX_TRIALS)
    return math.ceil(needed) if 2 * needed * task.composed <= affordable else 0


def _stacked(trials: Trials, calls: int) -> Trials:
    """Trials of several calls each."""
    if calls == 1:
        return trials
    n = len(trials) // calls
    layout = tuple((f"{name}, call {call}", shape) for call in range(calls) for name, shape in trials.layout)
    return Trials(trials.numbers.reshape(n, -1), np.asarray(trials.odd.reshape(n, calls).any(axis=1)), layout)


def _noisy(numbers: np.ndarray) -> np.ndarray:
    """Finite coordinates that vary."""
    usable = np.isfinite(numbers).all(axis=0)
    spread = np.where(usable, np.where(usable, numbers, 0.0).std(axis=0), 0.0)
    size = np.abs(np.where(usable, numbers, 0.0)).max(axis=0, initial=0.0)
    return numbers[:, usable & (spread > 1e-9 * size)]


def _arguments(given: dict[str, object]) -> str:
    """Arguments of `neighbouring_inputs` that differ from its defaults, as text."""
    defaults = {"shape": (8,), "users": 8, "records": 1, "min_users": 0, "extremes": True, "seed": 0}
    return "".join(f", {name}={value}" for name, value in given.items() if value != defaults.get(name))


def _reproduction(task: _Measuring, pair: NeighbourPair, arguments: str) -> str:
    """Two lines that release three times on each of two neighbouring inputs."""
    claim = task.claim
    fields = {"epsilon": claim.epsilon, "delta": claim.delta, "neighbours": claim.neighbours, "unit": claim.unit}
    text = ",".join(f"{name}={value}" for name, value in fields.items())
    # `torch.manual_seed` seeds and returns the global generator, from which modules and optimisers draw.
    generator = "torch.manual_seed" if task.release.example.torch else "numpy.random.default_rng"
    return (
        f'pair = neighbouring_inputs(Claim.parse("{text}"){arguments})["{pair.name}"]\n'
        f"[[release(rows, {generator}(seed)) for seed in range(3)] for rows in pair]"
    )


def _report(
    claim: Claim, findings: list[Finding], captured: CapturedRelease, chosen: dict[Category, TriedPair], alpha: float
) -> MechanismReport:
    order = ["violation", "beyond the claim", "consistent", "not seen"]
    bounds = [finding for finding in findings if finding.epsilon is not None]
    best = max(bounds, key=lambda finding: finding.epsilon or 0.0, default=None)
    unseen = list(UNSEEN)
    if chosen.get("influence") is not None and chosen["influence"].alignment is None:
        unseen.append("exact sensitivity: its randomness does not follow the seed, or follows the input")
    if captured.refusals:
        name, reason = next(iter(captured.refusals.items()))
        unseen.append(
            f"{len(captured.refusals)} inputs that it refused, such as {name} ({reason}); whoever sees that it failed "
            "learns that"
        )
    if captured.unread:
        unseen.append(f"outputs that are no numbers: {', '.join(captured.unread)}")
    if whole := captured.example.whole_columns():
        unseen.append(f"whole numbers and flags other than the example's: {', '.join(whole)}")
    return MechanismReport(
        claim,
        tuple(sorted(findings, key=lambda finding: order.index(finding.verdict))),
        (best.epsilon or 0.0) if best is not None else 0.0,
        1 - alpha,
        best.method if best is not None and best.epsilon else "",
        captured.calls,
        tuple(unseen),
    )
