"""What every membership attack declares about itself, and what it must be able to do."""

from typing import Protocol


class AttackInfo(Protocol):
    """What every attack says of itself, whatever it looks at.

    Attributes:
        name: Short name used in reports.
        observable: What must be visible for the attack to run.
        adversary: Who can see that.
        knowledge: What it uses besides the view, in words; () if nothing.
        unit: What one guess is about.
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
        """Who can see that."""

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the attack uses besides the view."""

    @property
    def unit(self) -> str:
        """What one guess is about."""

    @property
    def cost(self) -> str:
        """Work in big-O terms."""

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
