"""What an audit of a mechanism found, and how to see it again."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from attacks.mechanism.claim import Claim

Verdict: TypeAlias = Literal["violation", "beyond the claim", "consistent", "not seen"]
"""Violation: the claim is rejected. Beyond the claim: a fault that the claim does not speak of. Consistent: something
was measured and the claim allows it. Not seen: nothing was measured."""


@dataclass(frozen=True)
class Finding:
    """One thing that was tested.

    Attributes:
        subject: What was tested.
        verdict: What came of it.
        sentence: The same in words, with numbers.
        epsilon: Lower bound on epsilon; None if the test gives none.
        method: Estimator of the bound and what it assumes, or "".
        confidence: Confidence of the bound alone; that of a report is shared among its bounds.
        pair: Name of the neighbouring inputs.
        evidence: Counts and measures.
        reproduction: Two lines of Python that show it again.
    """

    subject: str
    verdict: Verdict
    sentence: str
    epsilon: float | None = None
    method: str = ""
    confidence: float | None = None
    pair: str = ""
    evidence: dict[str, float | str] | None = None
    reproduction: str = ""


@dataclass(frozen=True)
class MechanismReport:
    """Result of an audit of a mechanism.

    Attributes:
        claim: The audited claim.
        findings: One for each thing that was tested, violations first.
        epsilon: Largest lower bound on epsilon, at the claim's delta and for all its steps.
        confidence: Probability with which no bound of the report exceeds the truth.
        method: Estimator of that bound and what it assumes.
        calls: Calls of the mechanism.
        unseen: What this audit cannot see.
    """

    claim: Claim
    findings: tuple[Finding, ...]
    epsilon: float
    confidence: float
    method: str
    calls: int
    unseen: tuple[str, ...]

    @property
    def violated(self) -> bool:
        """Whether the claim is rejected."""
        return any(finding.verdict == "violation" for finding in self.findings)

    def finding(self, subject: str) -> Finding:
        """The finding about a subject.

        Raises:
            KeyError: If it was not tested.
        """
        for finding in self.findings:
            if finding.subject == subject:
                return finding
        raise KeyError(f"Nothing was tested about {subject!r}; it was {[f.subject for f in self.findings]}.")

    def to_json(self) -> dict[str, Any]:
        """The report as what JSON can hold."""
        return dict(_without_infinities(asdict(self)), violated=self.violated)

    def text(self) -> str:
        """The report for people."""
        verdict = "The claim is rejected" if self.violated else "The claim was not rejected"
        lines = [
            f"Claim: {self.claim.sentence()}.",
            f"{verdict}. Measured epsilon >= {self.epsilon:.3g} at delta {self.claim.delta:g}, with confidence "
            f"{self.confidence:.0%} over all bounds ({self.method or 'nothing told neighbours apart'}; "
            f"{self.calls} calls).",
            "",
        ]
        for finding in self.findings:
            lines.append(f"{finding.verdict.upper()}: {finding.subject}. {finding.sentence}")
            if finding.verdict in {"violation", "beyond the claim"} and finding.reproduction:
                lines += [f"    {line}" for line in finding.reproduction.splitlines()]
        return "\n".join([*lines, "", "Not seen by this audit:", *(f"- {text}" for text in self.unseen)])


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
