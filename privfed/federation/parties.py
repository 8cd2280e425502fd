"""Server side and client side of a method, and the only thing the server side ever holds: a `Federation`."""

from collections.abc import Mapping
from typing import Protocol

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.federation.messages import Call, Cohort, Individual, Message, Total
from privfed.federation.private_state import Ranges
from privfed.updates import ClientUpdates


class Federation(Protocol):
    """All a server can do: sample a cohort, query it for a declared upload, receive what the plan releases."""

    def sample_cohort(self, round: int) -> Cohort:
        """Sample this round's cohort. A second cohort in one round is refused."""

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Send `message`, run `step` on every member, and release the sum of the blocks of `schema`."""

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Like `aggregate`, but release every upload under its pseudonym; a plan that hides uploads refuses."""


class Server(Protocol):
    """Server side: public parameters and a program of queries. It holds no reference to data.

    Attributes:
        schema: blocks that its training step may upload.
    """

    schema: Schema

    def round(self, federation: Federation, t: int) -> None:
        """One round of the method."""

    def public(self) -> Message:
        """What a device downloads to recommend with, and the next round starts from."""

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""


class Clients(Protocol):
    """Client side of one user or many, stacked on a leading clients axis.

    A step is a method `name(call, message) -> ClientUpdates`. It stages private state, which `commit` makes
    current once the release is confirmed and `discard` forgets. An attribute `noisy`, where there is one, names the
    steps that train as `Call.noisy_steps` says; the others are never run under a plan that needs it.
    """

    @property
    def steps(self) -> frozenset[str]:
        """Names of all steps that clients answer; a server that queries any other is refused."""

    def receive(self, step: str, message: Message) -> None:
        """A query of `step` begins; called once, before the clients are called in chunks. Most have nothing to do.

        What is kept of `message`, which is not addressed yet, lasts until `commit` or `discard`.
        """

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Scores of `candidates` (None: the whole catalogue) on each device.

        With `updates`, the device's own model right after the step that made them, before anything left the
        device (`private`); without, what it has just downloaded with its committed private state (`received`).
        `message` is addressed to `clients`.
        """

    def commit(self) -> None:
        """The release was confirmed: staged private state becomes current."""

    def discard(self) -> None:
        """The round was aborted: forget staged state."""

    def state(self) -> dict[str, Tensor]:
        """Committed private tensors, for a simulation's checkpoint."""

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""


class FederationError(RuntimeError):
    """A method or a client broke the contract of the federation."""


def begin_query(clients: Clients, step: str, message: Message) -> None:
    """Let clients hear that a query begins, before they are called for it.

    Raises:
        FederationError: the step is not declared.
    """
    _require_declared(clients, step)
    clients.receive(step, message)


def perform(clients: Clients, call: Call, message: Message) -> ClientUpdates:
    """Run `call.step` on `clients` and hold them to the contract.

    Raises:
        FederationError: the step is not declared, cannot train with the noise of the call, or updates came
            back for other clients or in another order.
    """
    _require_declared(clients, call.step)
    if call.noisy_steps is not None and call.step not in getattr(clients, "noisy", ()):
        raise FederationError(
            f"the plan protects single interactions, but step {call.step!r} of {type(clients).__name__} trains without "
            f"that noise; clients name the steps that follow Call.noisy_steps in `noisy`"
        )
    updates: ClientUpdates = getattr(clients, call.step)(call, message)
    if not updates.clients.equal(call.clients):
        raise FederationError(
            f"step {call.step!r} returned updates of other clients or in another order than it was called with"
        )
    return updates


def _require_declared(clients: Clients, step: str) -> None:
    """Refuse a step that clients do not declare, whatever attributes they have besides.

    Raises:
        FederationError: it is not declared.
    """
    if step not in clients.steps:
        raise FederationError(
            f"the server queried step {step!r}, which {type(clients).__name__} lacks; it answers "
            f"{', '.join(sorted(clients.steps))}"
        )
