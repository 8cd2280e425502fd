"""The server's half of the privacy layer: charge the ledger, then open the release with its denominator."""

from collections.abc import Mapping

from jaxtyping import Int64
from torch import Tensor

from privfed.federation import Cohort, Individual, Total
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan
from privfed.updates import Schema


class ServerGuard:
    """Opens releases, each only after the ledger has recorded what it costs.

    Args:
        plan: the run's privacy plan.
        ledger: where every ask is charged before anything is opened.
    """

    def __init__(self, plan: PrivacyPlan, ledger: Ledger) -> None:
        self.plan, self.ledger = plan, ledger

    def charge(
        self, cohort: Cohort, step: str, ask: int, schema: Schema, participants: Int64[Tensor, " members"]
    ) -> None:
        """Record one ask of `cohort`; must return before a release is opened."""
        real = tuple(name for name, block in schema.items() if block.kind == "real")
        integer = tuple(name for name, block in schema.items() if block.kind == "integer")
        self.ledger.charge(
            draw=cohort.draw,
            round=cohort.round,
            step=step,
            index=ask,
            real_blocks=real,
            integer_blocks=integer,
            participants=participants.numpy(),
        )

    def total(self, sums: Mapping[str, Tensor], cohort: Cohort, members: int) -> Total:
        """A sum with its denominator: the expected cohort under sampling or noise, else the realised one."""
        fixed = self.plan.protection.noise is not None or self.plan.sampling.kind == "poisson"
        return Total(sums, cohort.expected if fixed else float(members))

    def individual(self, members: Int64[Tensor, " members"], uploads: Mapping[str, Tensor]) -> Individual:
        """Every upload under its pseudonym."""
        return Individual(members, uploads)
