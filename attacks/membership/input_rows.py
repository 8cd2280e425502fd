"""Attacks on the first layer: its rows move only for the items that a user fed in.

A model that reads the user's history x_u multiplies it by the first layer's weights, so the gradient of row i is x_ui
times a vector. It is exactly zero for every item outside the history, and for those inside it that input dropout hid in
every local step. That is the observation behind row support and row norm, on another block; :class:`InputRows` lets
them look there.
"""

from dataclasses import dataclass

from attacks.membership.row_support import RowNorm, RowSupport
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores, ViewError


@dataclass(frozen=True)
class InputRows:
    """Row support or row norm, run on the first layer's rows.

    Attributes:
        of: Which of the two.
    """

    of: RowSupport | RowNorm

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return f"input {self.attack.name}"

    @property
    def observable(self) -> str:
        """What must be visible for the attack to run."""
        return "individual uploads of the first layer's item rows of one round"

    @property
    def adversary(self) -> str:
        """Who can see that."""
        return self.attack.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Nothing: the server puts no pull into a first layer."""
        return ()

    @property
    def unit(self) -> str:
        """What one guess is about."""
        return self.attack.unit

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return self.attack.cost

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
        return (
            f"Runs the {self.attack.name} attack on the model's first layer, whose rows move only for the items that a "
            "user's own history feeds in."
        )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """What the attack says of the input rows.

        Raises:
            ViewError: If the view has no input rows.
        """
        if view.inputs is None:
            raise ViewError(
                f"The {self.name} attack needs ServerView.inputs, which is None; pass the first layer's rows."
            )
        return self.attack.score(ServerView(view.round, view.inputs), knowledge)
