"""The last lines of a run: how good it is beside popularity, what is guaranteed, and what to do next."""

import math
from pathlib import Path

from privfed.audit.report import formatting
from privfed.audit.report.grades import guarantee_words
from privfed.cli.show import synthetic_mark
from privfed.evaluation import EvaluationResult, difference
from privfed.experiment import RunResult
from privfed.setup.controls import NOTHING_SENT, SILENT


def closing_lines(name: str, result: RunResult, popular: EvaluationResult | None, *, synthetic: bool) -> list[str]:
    """Quality beside popularity, where items are ranked, and the guarantee, in a sentence each; bad news comes last."""
    mark = synthetic_mark(synthetic=synthetic)
    if result.test.mu is not None:
        quality = _noisy_quality(name, result.test, mark)
    elif popular is None:
        return [_privacy(result)]
    else:
        quality = _quality(name, result, popular, mark)
    lines = [quality, _privacy(result)]
    return lines[::-1] if (_gain(result, popular) or 0.0) < 0 else lines


def next_step(out: Path, result: RunResult, popular: EvaluationResult | None) -> str:
    """The command that is worth giving next."""
    if result.config.control is not None:
        return f"privfed run {result.config.method_name}, the method that this control stands beside"
    gain = _gain(result, popular)
    if gain is None or gain > 0:
        return f"privfed attack {out}"
    alternative = "guaranteed, and better than popularity on ml-100k: privfed run private-gram --epsilon 1"
    if result.config.method_name.startswith("private-gram"):
        alternative = "what more people or a larger epsilon would be worth: privfed forecast"
    worse = "this run is worse than recommending the most popular items; " if gain < 0 else ""
    return f"privfed attack {out}; {worse}{alternative}"


def _quality(name: str, result: RunResult, popular: EvaluationResult, mark: str) -> str:
    k = result.test.metrics[0].k
    ours, theirs = (one.metric("ndcg", k).value for one in (result.test, popular))
    numbers = f"NDCG@{k} {ours:.3f}, popularity {theirs:.3f}{mark}"
    if ours < theirs:
        return f"Quality: {name} is worse than recommending the most popular items ({numbers})."
    if ours == theirs:
        return f"Quality: {name} is as good as recommending the most popular items ({numbers})."
    above = "" if not theirs else f"{ours / theirs - 1:.0%} "
    return f"Quality: {name} is {above}above recommending the most popular items ({numbers})."


def _noisy_quality(name: str, test: EvaluationResult, mark: str) -> str:
    """Quality as a noisy sum tells it, and whether it can be told from popularity by that."""
    if test.warning is not None:
        return f"Quality: not known. {test.warning}"
    ours, gap = test.metrics[0], difference(test)
    metric = formatting.metric(ours.name, ours.k)
    outside = "" if ours.lo >= 0 and ours.hi <= 1 else ", not cut to 0 to 1 since that would bias it"
    ends = f"[{ours.lo:.3f}, {ours.hi:.3f}]{outside}"
    numbers = f"{metric} {ours.value:.3f}{mark}, 95 % interval of noise and people {ends}"
    if gap is None:
        return (
            f"Quality: {numbers}; it is not compared with popularity, of which {name} publishes nothing and an exact "
            "count would be outside epsilon."
        )
    verdict = "cannot be told from" if gap.lo <= 0 <= gap.hi else "is above" if gap.lo > 0 else "is worse than"
    return (
        f"Quality: {name} {verdict} recommending the most popular items by {metric}, by {formatting.signed(gap.value)} "
        f"[{formatting.signed(gap.lo)}, {formatting.signed(gap.hi)}] ({numbers}; mu = {test.mu:g} of the budget)."
    )


def _gain(result: RunResult, popular: EvaluationResult | None) -> float | None:
    """NDCG above popularity's; None where popularity was not measured, or noise hides which of both is better."""
    if result.test.mu is not None:
        gap = difference(result.test)
        return None if gap is None or gap.lo <= 0 <= gap.hi else gap.value
    if popular is None:
        return None
    k = result.test.metrics[0].k
    return result.test.metric("ndcg", k).value - popular.metric("ndcg", k).value


def _privacy(result: RunResult) -> str:
    claim = result.guarantee
    if result.config.control in SILENT:
        return f"Privacy: {NOTHING_SENT}."
    if math.isinf(claim.epsilon):
        return "Privacy: no guarantee (epsilon is infinite)."
    words = guarantee_words(claim.epsilon, claim.delta, result.test.n_users)
    unit = formatting.named(formatting.UNITS, claim.unit)
    trust = formatting.named(formatting.TRUST, claim.trust)
    chosen = f"; by what each person chose: {formatting.tiers(claim.tiers)}" if claim.tiers else ""
    return f"Privacy: epsilon {claim.epsilon:.3g} for {unit}, {words}; trusts {trust}{chosen}."
