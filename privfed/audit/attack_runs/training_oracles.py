"""Local training as a server can repeat it: a training oracle for every method that trains in one step.

An honest but curious server knows the clients' code and settings, the message that it sent, and what it received.
It does not know histories, private parameters, or any key of a device. So the oracle runs the method's own training
step on freshly built clients with guessed histories: their private parameters are a newcomer's, and all their
randomness comes from keys of the adversary's own (`Streams.of_outsider`). Nothing here holds a reference to the run
that is attacked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from attacks import ServerView, ViewError
from privfed.audit.report.records import Tap
from privfed.contracts import Schema
from privfed.data import Histories
from privfed.engines.transcript import CLIP_NORM, QUERY, Observation, received
from privfed.experiment import Experiment
from privfed.federation import Call, Clients, Message, Streams, begin_query, perform
from privfed.guards import ClientGuard
from privfed.methods import ClientData, ItemBlocks, Method, MethodConfig
from privfed.privacy import PrivacyPlan
from privfed.updates import ClientUpdates, Dense

_TRAINED_AT_ONCE = 32
"""Users who are trained together, so that the update buffers of a few are alive."""


def why_no_training_oracle(experiment: Experiment) -> str | None:
    """Why nobody can repeat the local training of a run, in a sentence; None where a server can."""
    registered, settings = experiment.registered, experiment.config.settings()
    if registered.training.step is None:
        return (
            f"what {registered.name} uploads does not come from one training step that could be repeated on a "
            "guessed history"
        )
    if experiment.item_blocks is None:
        return f"uploads of {registered.name} have no row per item to compare a repeated training with"
    if registered.training.task(settings) == "rating":
        return "local training learns from ratings, which an adversary who guesses items does not know"
    dependence = registered.disclosure.cross_user_dependence(settings)
    if registered.attack_surface.infer_sizes is None and dependence is not None:
        return f"what a device trains depends on everybody's data, which no oracle has: {dependence}"
    return None


def build_training_oracle(
    experiment: Experiment, tap: Tap, uploads: Sequence[Observation], messages: Sequence[Observation]
) -> "MethodTrainingOracle | None":
    """The training oracle for what was seen at one tap; None where training cannot be repeated or no message is known.

    Args:
        experiment: of the run; its method, settings, plan and the public key of initial values are taken from it.
        tap: `raw`, or `wire`, where what the oracle trains is clipped as uploads are.
        uploads: what was seen there, by round.
        messages: observations of tap `message`.
    """
    blocks = experiment.item_blocks
    if blocks is None or why_no_training_oracle(experiment) is not None or not messages:
        return None
    return MethodTrainingOracle(
        experiment.registered,
        experiment.config.settings(),
        experiment.config.privacy,
        experiment.server.schema,
        blocks,
        experiment.n_users,
        experiment.parts.train.n_items,
        experiment.audited().numpy(),
        {seen.round: seen for seen in uploads},
        {seen.round: seen for seen in messages},
        clipped=tap == "wire",
        streams=partial(Streams.of_outsider, Streams.of_outsider(experiment.streams, 0)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MethodTrainingOracle:
    """A training oracle (`attacks.views.TrainingOracle`) made from a registered method.

    Attributes:
        registered: the method.
        settings: of the run.
        plan: its privacy plan, which a device trains and clips by.
        schema: of the training step.
        blocks: which of its blocks say something about single items.
        n_users, n_items: of the federation.
        users: audited users, ascending; what all views are about.
        uploads: what was seen of them, by round.
        messages: what was sent to them, by round.
        clipped: whether what the oracle trains is clipped as what leaves a device is.
        streams: number of a world -> keys of clients in it.
    """

    registered: Method
    settings: MethodConfig
    plan: PrivacyPlan
    schema: Schema
    blocks: ItemBlocks
    n_users: int
    n_items: int
    users: Int64[np.ndarray, "users"]
    uploads: Mapping[int, Observation]
    messages: Mapping[int, Observation]
    clipped: bool
    streams: Callable[[int], Streams]

    @property
    def can_score(self) -> bool:
        """Whether a model can be asked for scores without a history to read, which autoencoders rank by."""
        return self.blocks.input is None

    def simulate_uploads(
        self,
        round: int,
        positives: Bool[np.ndarray, "users items"],
        candidates: Bool[np.ndarray, "users items"],
        world: int,
    ) -> ServerView:
        """What the audited users would have sent in `round`, had they trained on `positives`.

        Where fewer candidates than one positive takes negatives are left, negatives come from the whole catalogue.

        Args:
            round: whose message training starts from; users who were sent none send zeros.
            positives: guessed histories.
            candidates: items that negatives may come from.
            world: of the clients' randomness.

        Raises:
            ViewError: no message of the round is known.
        """
        seen, streams = self._message(round), self.streams(world)
        clients = self._clients(positives, self._excluded(positives, candidates), streams, round)
        who = torch.from_numpy(self.users[positives.any(1) & np.isin(self.users, seen.users.numpy())])
        arrays: dict[str, Float32[np.ndarray, "users items ..."]] = {}
        for users, message in self._addressed(seen, who):
            call = self._call(seen, users, streams)
            begin_query(clients, call.step, message)
            updates = perform(clients, call, message)
            if self.clipped:
                ClientGuard(self.plan, streams).clip_(updates, self._clip_norm(seen))
            blocks = self.blocks.read(updates.materialise(torch.arange(len(users))))
            if (direction := self.registered.attack_surface.proximal_direction) is not None:
                blocks["proximal"] = direction(message, torch.arange(len(users)))
            for role, values in blocks.items():
                whole = arrays.setdefault(role, np.zeros((len(self.users), *values.shape[1:]), np.float32))
                whole[self._places(users)] = values.numpy()
        clients.discard()
        return ServerView(round, **(arrays or self._silence()))

    def public_scores(self, view: ServerView) -> Float64[np.ndarray, "users items"]:
        """Scores of all items by the model that each user sent, with a newcomer's private parameters and no history.

        Users of the view who sent only zeros are scored by the model they had been sent; 0 for those who were sent
        none.

        Raises:
            ViewError: no message of the round is known, or scores follow from a history that is read.
        """
        if not self.can_score:
            raise ViewError(
                f"{self.registered.name} ranks by a history that it reads, so its model alone gives no scores; leave "
                f"this attack out."
            )
        seen, sent = self._message(view.round), self.uploads.get(view.round)
        nothing = np.zeros((len(self.users), self.n_items), dtype=bool)
        clients = self._clients(nothing, nothing, self.streams(0), view.round)
        scores = np.zeros(nothing.shape)
        present = torch.from_numpy(view.present())
        for users, message in self._addressed(seen, seen.users):
            updates = None
            if sent is not None and present[self._places(users)].any():
                updates = self._sent(sent, users, present[self._places(users)])
            scores[self._places(users)] = clients.score(users, message, updates, None).numpy()
        return scores

    def _sent(self, seen: Observation, users: Int64[Tensor, " n"], present: Bool[Tensor, " n"]) -> ClientUpdates:
        """What users sent in a round, nothing for those who are not present."""
        at, owners = torch.searchsorted(seen.users, users[present]), present.nonzero().squeeze(1)
        return ClientUpdates(users, self.schema, [Dense(name, owners, seen.tensors[name][at]) for name in self.schema])

    def _message(self, round: int) -> Observation:
        if round not in self.messages:
            raise ViewError(
                f"No message of round {round} is known (rounds {sorted(self.messages)} are); ask about one of these."
            )
        return self.messages[round]

    def _addressed(self, seen: Observation, users: Int64[Tensor, " n"]) -> Iterator[tuple[Tensor, Message]]:
        """A few users at a time with the message as they received it."""
        whole = received(seen)
        for some in torch.split(users, _TRAINED_AT_ONCE) if len(users) else ():
            at = torch.searchsorted(seen.users, some)
            personal = {name: values[at] for name, values in whole.personal.items()}
            yield some, Message(whole.shared, personal, whole.config)

    def _call(self, seen: Observation, users: Int64[Tensor, " n"], streams: Streams) -> Call:
        step, noisy_steps = self.registered.training.step, self.plan.mechanism.noisy_steps
        return Call(
            seen.round, -1, str(step), int(seen.tensors[QUERY]), users, streams, self.schema, self._clip_norm(seen),
            noisy_steps,
        )  # fmt: skip

    def _clip_norm(self, seen: Observation) -> float | None:
        return float(seen.tensors[CLIP_NORM]) if CLIP_NORM in seen.tensors else None

    def _clients(
        self,
        positives: Bool[np.ndarray, "users items"],
        excluded: Bool[np.ndarray, "users items"],
        streams: Streams,
        round: int,
    ) -> Clients:
        """Fresh clients of the whole federation, of whom the audited users have histories."""
        data = ClientData(self._histories(positives), self._histories(excluded))
        clients = self.registered.training.clients(self.settings, data, streams)
        infer_sizes, sent = self.registered.attack_surface.infer_sizes, self.uploads.get(round)
        if infer_sizes is not None and sent is not None:
            infer_sizes(clients, sent.users, sent.tensors)
        return clients

    def _excluded(
        self, positives: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
    ) -> Bool[np.ndarray, "users items"]:
        """Items that no negative may come from; of users who train on nothing, none are kept."""
        left = (candidates & ~positives).sum(axis=1)
        sampling = self.registered.training.negatives(self.settings)
        enough = left >= max(1, 1 if sampling is None else sampling.per_positive)
        barred = positives | (~candidates & enough[:, None])
        return np.asarray(barred & positives.any(axis=1, keepdims=True))

    def _histories(self, mask: Bool[np.ndarray, "users items"]) -> Histories:
        row, item = np.nonzero(mask)
        return Histories.from_pairs(self.users[row], item, self.n_users, self.n_items)

    def _places(self, users: Int64[Tensor, " n"]) -> Int64[np.ndarray, "n"]:
        return np.searchsorted(self.users, users.numpy())

    def _silence(self) -> dict[str, Float32[np.ndarray, "users items ..."]]:
        """Uploads of nobody: zeros in the shape of those that can be sent."""
        zeros = {
            name: torch.zeros((1, *block.shape), dtype=torch.float32 if block.kind == "real" else torch.int64)
            for name, block in self.schema.items()
        }
        shapes = {role: values.shape[1:] for role, values in self.blocks.read(zeros).items()}
        return {role: np.zeros((len(self.users), *shape), np.float32) for role, shape in shapes.items()}
