"""Attacks on the first layer, whose rows move only for the items of a user's own history.

A model that reads the user's history x_u multiplies it by the first layer's weights, so the gradient of row i is x_ui
times a vector. It is exactly zero for every item outside the history, and for those inside it that input dropout hid in
every local step. Row support and row norm rest on the same observation about another block; :class:`InputRows` runs
them on this one.
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
        attack: Attack to run, one of the two.
    """

    attack: RowSupport | RowNorm

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
        """Party that can see the observable."""
        return self.attack.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """No knowledge: the server puts no proximal term into a first layer."""
        return ()

    @property
    def unit(self) -> str:
        """Subject of one guess."""
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
        """Scores of the attack on the input rows.

        Raises:
            ViewError: If the view has no input rows.
        """
        if view.inputs is None:
            raise ViewError(
                f"The {self.name} attack needs ServerView.inputs, which is None; pass the first layer's rows."
            )
        return self.attack.score(ServerView(view.round, view.inputs), knowledge)
