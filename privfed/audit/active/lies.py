"""Lies: what a server may do besides sending a crafted model, and what stops it.

| lie | who takes part | who is sent what | stopped by |
|---|---|---|---|
| crafted model | the cohort | all the same | nothing but noise |
| small roster | the target and as few others as the plan opens a sum of | all the same | a minimum cohort |
| unequal models | the cohort | all but the target a broken model | signed terms, whose masks are bound to one model |
"""

from dataclasses import dataclass

from privfed.privacy import PrivacyPlan


@dataclass(frozen=True, slots=True)
class DeviceTerms:
    """What devices insist on besides the plan.

    Attributes:
        min_users: smallest number of users in a sum (`Policy.min_users` of a node).
        signed: whether a sum is opened only if all who are in it signed who they are and were sent the same model
            (`privfed.engines.nodes.masking`).
    """

    min_users: int = 0
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Lie:
    """One way to have a sum speak of one person.

    Attributes:
        name: in tables.
        small_roster: whether as few take part as the plan opens a sum of.
        unequal_models: whether all but the target are sent a broken model.
    """

    name: str
    small_roster: bool = False
    unequal_models: bool = False

    @property
    def isolates(self) -> bool:
        """Whether it is told about one person at a time."""
        return self.small_roster or self.unequal_models

    def roster_size(self, plan: PrivacyPlan, cohort: int) -> int:
        """How many take part, where a cohort would have so many."""
        return max(plan.mechanism.min_clients, 1) if self.small_roster else cohort

    def refusal(self, plan: PrivacyPlan, terms: DeviceTerms, cohort: int) -> str | None:
        """Why the lie does not work under a plan and terms, in a sentence; None where it does."""
        if self.isolates and plan.mechanism.release == "individual":
            return "single uploads are released, so nobody has to be isolated"
        if self.small_roster and plan.sampling.kind == "poisson":
            return "each device decides by its own secret random bit whether it takes part"
        if self.small_roster and self.roster_size(plan, cohort) < terms.min_users:
            return f"devices ask for {terms.min_users} users in a sum"
        if self.small_roster and terms.signed:
            return "devices take part only in the cohort that the sampling rule chooses"
        if self.unequal_models and terms.signed and plan.mechanism.masking is not None:
            return "masks are bound to the model, so that those of unequal models do not cancel"
        return None


CRAFTED = Lie("one model for all")
LIES = (CRAFTED, Lie("small roster", small_roster=True), Lie("unequal models", unequal_models=True))
