"""`RunResult`: what a run measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from privfed.engines.costs import Costs
from privfed.engines.transcript import Transcript
from privfed.engines.witness import Witness
from privfed.evaluation import EvaluationResult, RoundEvaluation
from privfed.federation import (
    Clients,
    Server,
)
from privfed.privacy import Guarantee
from privfed.privacy.composition import Composition
from privfed.privacy.ledger import Entry
from privfed.setup.config import ExperimentConfig


@dataclass(slots=True, eq=False)
class RunResult:
    """What a run measured.

    Attributes:
        config: of the run.
        history: utility at every evaluated round.
        guarantee: what the ledger can claim.
        composition: what it claims that from.
        costs: seconds by stage and bytes on the wire.
        clipped_fraction: share of uploads that the clip changed; None without a clip.
        transcript: what was tapped.
        server, clients: the trained parties.
        cpu_seconds, wall_seconds: of training and evaluation.
        entries: what the ledger holds.
        witness: what crossed the border of the privacy layer; None where raw uploads are not tapped, as audits do.
        notices: what the ledger had to drop when the run was resumed, a sentence each.
    """

    config: ExperimentConfig
    history: list[RoundEvaluation]
    guarantee: Guarantee
    composition: Composition
    costs: Costs
    clipped_fraction: float | None
    transcript: Transcript
    server: Server
    clients: Clients
    cpu_seconds: float
    wall_seconds: float
    entries: Sequence[Entry]
    witness: Witness | None
    notices: tuple[str, ...] = ()

    @property
    def decisions(self) -> dict[str, float]:
        """What the method decided from what had been released to it, so that choosing cost no privacy."""
        return dict(getattr(self.server, "decisions", {}))

    @property
    def selected(self) -> RoundEvaluation:
        """The round the protocol reports: the last, or the best on validation by `merit` (the later of equals)."""
        return selected(self.config, self.history)

    @property
    def test(self) -> EvaluationResult:
        """Test utility at the selected round."""
        return self.selected.results["test"]


def selected(config: ExperimentConfig, history: Sequence[RoundEvaluation]) -> RoundEvaluation:
    """The evaluation that the protocol reports: of the last round, or of the best on validation (the later of equals).

    Args:
        config: of the run.
        history: all its evaluations, by round.
    """
    if config.protocol.select == "last":
        return history[-1]
    return max(history, key=lambda e: (e.results["valid"].merit, e.round))
