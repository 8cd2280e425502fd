"""FedDAE's clients: own row, local encoder and gate."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import PUBLIC, Call, Message, Purpose, Ranges, Start, StatefulClients, Streams, alike
from privfed.methods.client_data import ClientData
from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.feddae.local_encoders import ROWS, LocalEncoding, Own, local_encoding
from privfed.methods.feddae.vae_personal import LocalOptimiser, PersonalGate
from privfed.methods.shared.vae import Posterior, SharedLayers, decode, encode, train
from privfed.methods.shared.vae_clients import LocalRound, UserRows, changes_in, counted, uploaded, whole
from privfed.methods.shared.vae_server import initial_parameters
from privfed.updates import ClientUpdates

LOCAL_START, _GATE = 2, 3
"""Query ids that address the public random words of the first local encoder and of a random gate."""


class PersonalMemoryError(ValueError):
    """The personal states of all users do not fit the memory they were given."""


class FedDAEClients(StatefulClients):
    """The clients. `private` has one entry per user, `ragged` one per interaction.

    Raises:
        PersonalMemoryError: the personal states need more than `personal_memory_gib`.
    """

    steps = frozenset({"count", "train"})

    def __init__(self, config: FedDAEConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.architecture = config, config.architecture(data.n_items)
        self.rows = UserRows(data.positives)
        self.local: LocalEncoding = local_encoding(config, self.architecture)
        if data.storage.in_memory:
            self._refuse_what_does_not_fit()
        drawn = initial_parameters(self.architecture, config, streams, query_id=LOCAL_START)
        gate = self._initial_gate(streams)
        self.ragged = data.storage.keep(
            "entries", len(self.rows.items), lambda entries: self.local.initial_rows(self.rows.items[entries], drawn)
        )
        self.private = data.private_state(lambda users: self.local.initial(len(users), drawn) | gate(users))

    def count(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """Own items, for the popularity prior."""
        return counted(self.rows.select(call.clients), call)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local steps on everything; only the shared layers' changes are uploaded."""
        c = self.config
        dtype = message.shared["encoder.0.weight"].dtype
        local = LocalRound.from_call(c, self.rows.select(call.clients), call, dtype)
        own = self._own(call.clients, staged=False)
        optimiser = LocalOptimiser(
            c.personal_lr, adam=c.personal_optimiser == "adam", accumulate=c.accumulate_gradients
        )
        shared = SharedLayers(self.architecture, message.shared, local.coefficients, local.inputs)
        encoders = self.local.training(shared, own, local, optimiser)
        gate = PersonalGate(own["gate"], local.rows.counts, optimiser if c.learns_gate else None)
        train(encoders, gate, shared.decoder(), local.rows, local.noise, local.scale, local.beta)
        self._stage(call.clients, own)
        return uploaded(self.architecture, call, shared.changes())

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the decoder at the mixed posterior mean, nothing dropped."""
        changes, shared = changes_in(self.architecture, updates), message.shared
        inputs = whole(self.rows.select(clients), shared["encoder.0.weight"].dtype)
        own = self._own(clients, staged=updates is not None)
        both = [
            encode(self.architecture, shared, inputs, changes),
            self.local.outputs(shared, own, inputs, changes),
        ]
        mean = Posterior(torch.stack(both, 1), own["gate"].softmax(1)).mean
        logits = decode(self.architecture, shared, mean, changes)
        return logits if candidates is None else torch.gather(logits, 1, candidates)

    def commit(self) -> None:
        """The release was confirmed: staged state becomes current, unless personal state is forgotten."""
        if self.config.forget_personal_state:
            self.discard()
            return
        super().commit()
        self.ragged.commit()

    def discard(self) -> None:
        """Forget staged state after an aborted round."""
        super().discard()
        self.ragged.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed personal tensors."""
        return super().state() | self.ragged.state()

    def ranges(self) -> Mapping[str, Ranges]:
        """Committed personal tensors, to be written away range by range."""
        return {**super().ranges(), **self.ragged.ranges()}

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""
        super().load({name: value for name, value in state.items() if name != ROWS})
        self.ragged.load({name: value for name, value in state.items() if name == ROWS})

    def _own(self, users: Int64[Tensor, " n"], *, staged: bool) -> Own:
        entries = self.rows.entries(users) if self.ragged.names else users
        if staged:
            return self.private.staged(users) | self.ragged.staged(entries)
        return self.private.rows(users) | self.ragged.rows(entries)

    def _stage(self, users: Int64[Tensor, " n"], own: Own) -> None:
        self.private.stage(users, {name: value for name, value in own.items() if name != ROWS})
        if ROWS in own:
            self.ragged.stage(self.rows.entries(users), {ROWS: own[ROWS]})

    def _initial_gate(self, streams: Streams) -> Start:
        """Even or fixed trust; for the frozen random gate, the logits of a drawn linear layer as torch starts one."""
        items, fixed = self.rows.n_items, self.config.fixed_gate
        if fixed is not None:
            return alike({"gate": torch.tensor([fixed, 1 - fixed]).log()})
        if not self.config.frozen_random_gate:
            return alike({"gate": torch.zeros(2)})
        unit = streams.uniform(Purpose.INITIALISE, 0, _GATE, [PUBLIC], 2 * (items + 1))[0]
        layer = unit.mul(2).sub(1).div(math.sqrt(items)).float().view(items + 1, 2)

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            own = self.rows.select(users)
            return {"gate": layer[-1].repeat(len(users), 1).index_add_(0, own.owner, layer[own.items])}

        return start

    def _refuse_what_does_not_fit(self) -> None:
        shapes = self.local.shapes()
        users, entries = len(self.rows.counts), len(self.rows.items)
        floats = sum(math.prod(shape) * (entries if name == ROWS else users) for name, shape in shapes.items())
        needed = 2 * 4 * floats / 2**30
        if needed > self.config.personal_memory_gib:
            raise PersonalMemoryError(
                f"local_encoder {self.config.local_encoder!r} keeps {needed / 2:.1f} GiB of personal parameters for "
                f"{users} users and as much again while a round is open, {needed:.1f} GiB in all, but "
                f"personal_memory_gib is {self.config.personal_memory_gib:g}; raise it, or choose 'embedding' or "
                f"'sparse_first_layer'"
            )
