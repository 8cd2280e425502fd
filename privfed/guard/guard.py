"""`Guard`: between a server's message and a node's training, whatever framework carries the two.

The order is what makes it hold. Everything that may be refused is decided by the message, the policy and the ledger
alone; the upload is recorded; then the data is touched; and from there on nothing is refused any more.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.contracts import Block
from privfed.engines.nodes.errors import NodeRefused, PolicyRefused
from privfed.engines.nodes.policy import FILE, Policy
from privfed.federation import Call, Streams
from privfed.guard.charging import Charging
from privfed.guard.examination import examined, update_of, updated
from privfed.guard.terms import UPDATE, local_plan, own_policy
from privfed.guards import ClientGuard
from privfed.privacy import Guarantee, PrivacyPlan
from privfed.updates import ClientUpdates, Dense

_log = logging.getLogger("privfed.guard")

_OWN = torch.zeros(1, dtype=torch.int64)
"""The one user of a guard."""

ASSUMPTIONS = (
    "The server's words count for nothing: how many other nodes take part is not known to this one, so epsilon counts "
    "on no cohort and no noise but its own, and every message that is trained on is charged, replayed or not.",
    "The app that trains is the owner's or was read by the owner: whoever may replace it can leave the guard out.",
)
STATEMENTS = (
    "The unit is everything that this node trains on, together: one person on a device of one's own, and otherwise all "
    "people of the node, each of whom is protected at least as well.",
    "Next to the protected update a reply holds constants: numbers of examples, losses and other results of training "
    "stay at the node. When a reply comes, and how long training took, is seen.",
)
_METRICS = "Results of evaluation leave as they are, outside epsilon (evaluate = true)."


class Guard:
    """Bounds, noises and charges what a node uploads.

    Args:
        folder: of its ledger, the owner's alone and never restored from a copy. `node.toml` in it, where there is one,
            is the owner's policy (`privfed.engines.nodes.policy`); without one the policy allows what is given here.
        plan: local noise, in words such as `local-gaussian:clip_norm=1,epsilon=8`, or a `PrivacyPlan`.
        rounds: number of uploads under the plan, over all runs, that an epsilon is for; after them all is refused.
        people: number of people whose data the node trains on, by its owner's count.
        evaluate: whether messages that are not training are answered; an owner's policy overrules it.

    Attributes:
        plan: with its noise.
        policy: in force.

    Raises:
        PlanError: the plan is no local one, or cannot be read.
        PolicyRefused: the owner's policy does not allow it.
    """

    def __init__(
        self, folder: Path | str, plan: PrivacyPlan | str, *, rounds: int, people: int = 1, evaluate: bool = False
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_absolute():
            raise PolicyRefused(
                f"the guard's folder is {str(folder)!r}, which frameworks read from where they start an app: give an "
                "absolute one, or budgets would begin anew with every app"
            )
        given = PrivacyPlan.parse(plan) if isinstance(plan, str) else plan
        self.plan = local_plan(given, rounds)
        own = Policy.read(self.folder / FILE) if (self.folder / FILE).exists() else None
        epsilon = None if given.target is None else given.target.epsilon
        self.policy = own_policy(own, self.plan, epsilon, rounds, people)
        if own is None:
            self.policy = self.policy.model_copy(update={"evaluate": evaluate})
        self._charging = Charging(self.folder, self.plan, self.policy, rounds)
        # A plan that cannot protect one number (bounds of named blocks, say) is refused here, and not after training.
        self._protected(torch.zeros(1))

    def answer(self, received: Mapping[str, Any], train: Callable[[], Mapping[str, Any]]) -> dict[str, Tensor]:
        """What may leave of one training.

        Args:
            received: state dict of the server's model.
            train: trains that model on the node's data and returns its state dict.

        Returns:
            The received state dict plus the protected update.

        Raises:
            NodeRefused, LedgerError: before `train` was called; from there on, nothing is raised.
        """
        before = self.admit(received)
        return self.protect(before, train)

    def admit(self, received: Mapping[str, Any]) -> dict[str, Tensor]:
        """Check a received model and record the upload that answers it.

        Args:
            received: state dict of the server's model.

        Returns:
            A copy of it, for `protect`.

        Raises:
            NodeRefused: it cannot be bounded, or the policy has no room for it.
            LedgerError: what was spent is not known.
        """
        before = examined(received, self.policy.max_message_mib * 2**20)
        self._charging.record(sum(values.numel() for values in before.values()))
        return before

    def protect(self, before: Mapping[str, Tensor], train: Callable[[], Mapping[str, Any]]) -> dict[str, Tensor]:
        """Train, and protect what came of it; one admission is for one call.

        Args:
            before: from `admit`.
            train: as for `answer`.
        """
        return updated(before, self._protected(_update(before, train)))

    def accept_unprotected(self, kind: str) -> None:
        """Return quietly where the policy lets exact results of a message that is not training leave.

        Raises:
            PolicyRefused: it does not.
        """
        if not self.policy.evaluate:
            raise PolicyRefused(
                f"{kind[:40]!r} is no training, and what answers it would leave exactly and outside the ledger: this "
                "node's policy has evaluate = false"
            )

    def guarantee(self) -> Guarantee:
        """What may be claimed of all uploads under the current plan."""
        claim = self._charging.ledger().guarantee(seeded=False)
        others = [run for run in self._charging.costs()[:-1] if run.rounds]
        earlier = [
            f"Under earlier plans of this node {run.rounds} more uploads cost epsilon "
            f"{'inf' if run.epsilon is None else format(run.epsilon, '.4g')} at delta {run.delta:g}, which adds up."
            for run in others
        ]
        metrics = [_METRICS] if self.policy.evaluate else []
        return claim.model_copy(
            update={
                "assumptions": [*claim.assumptions, *ASSUMPTIONS],
                "statements": [*claim.statements, *STATEMENTS, *metrics, *earlier],
            }
        )

    def _protected(self, update: Float[Tensor, " coordinates"]) -> Float[Tensor, " coordinates"]:
        """Clip an update and add noise, under keys that nothing else is drawn from."""
        schema = {UPDATE: Block((len(update),))}
        # Fresh from the system each time: no replay, fork or restored folder can draw the same noise again.
        streams = Streams.from_system()
        guard, call = ClientGuard(self.plan, streams), Call(0, 0, "train", 0, _OWN, streams, schema)
        updates = ClientUpdates(_OWN, schema, [Dense(UPDATE, _OWN, update.view(1, -1))])
        guard.clip_(updates)
        return guard.protect(updates, call, _OWN)[UPDATE].view(-1)


def _update(before: Mapping[str, Tensor], train: Callable[[], Mapping[str, Any]]) -> Float[Tensor, " coordinates"]:
    """What training changed; zeros where it fails, because whether it does may depend on data."""
    try:
        return update_of(before, train())
    except NodeRefused as refused:
        _log.error("%s: zeros are sent in the place of this update", refused)
    except (Exception, SystemExit):
        _log.error("training failed: zeros are sent in the place of its update")
        _log.debug("training failed", exc_info=True)
    return torch.zeros(sum(values.numel() for values in before.values()))
