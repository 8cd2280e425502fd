"""Declaration that every attack makes about itself: what it sees and knows, who can run it, what it costs."""

from typing import Protocol


class AttackInfo(Protocol):
    """Declaration of an attack, for reports.

    Attributes:
        name: Short name used in reports.
        observable: What must be visible for the attack to run.
        adversary: Party that can see the observable.
        knowledge: Prior knowledge that the attack uses, in words; () if none.
        unit: Subject of one guess: an interaction, an examination or a user.
        cost: Work in big-O terms.
        explains: One sentence for a newcomer: what the attack does and why it works.
    """

    @property
    def name(self) -> str:
        """Short name used in reports."""

    @property
    def observable(self) -> str:
        """What must be visible for the attack to run."""

    @property
    def adversary(self) -> str:
        """Party that can see the observable."""

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Prior knowledge that the attack uses."""

    @property
    def unit(self) -> str:
        """Subject of one guess."""

    @property
    def cost(self) -> str:
        """Work in big-O terms."""

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
