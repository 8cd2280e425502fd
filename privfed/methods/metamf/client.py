"""Clients of MetaMF: a generated model, its loss on the own items, and the gradient that goes back."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from privfed.compute.tiles import tile_size
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.metamf.config import MetaMFConfig
from privfed.methods.metamf.model import candidate_rows, logits
from privfed.methods.shared.local_training import draw_samples
from privfed.methods.shared.samples import NegativeSampler, full_batches, padded_one, touched_rows
from privfed.updates import ClientUpdates, Dense, Rows

_LEFT = "left"


class MetaMFClients(StatefulClients):
    """Each user's items; a device keeps no parameter, as the server makes new ones for every round."""

    steps = frozenset({"train"})

    def __init__(self, config: MetaMFConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.n_items = data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.private = PrivateState({})

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Minus the gradient of the mean loss by all generated parameters."""
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        table = padded_one(message.rows(_LEFT, rows.owner, rows.ids)).requires_grad_()
        model = {
            name: padded_one(value.detach()).requires_grad_()
            for name, value in message.personal.items()
            if name != _LEFT
        }
        of_sample, labels = padded_one(rows.of_sample, len(rows.ids)), padded_one(samples.labels)
        for tile in full_batches(samples):
            own = {name: value[tile.lanes] for name, value in model.items()}
            z = logits(own, table[of_sample[tile.samples]])
            loss = binary_cross_entropy_with_logits(z, labels[tile.samples], tile.weight, reduction="sum")
            torch.autograd.backward(loss)
        everyone = torch.arange(len(call.clients))
        parts = [Dense(name, everyone, _minus_gradient(value)) for name, value in model.items()]
        left = Rows(_LEFT, rows.owner, rows.ids, _minus_gradient(table))
        return ClientUpdates(call.clients, call.schema, [left, *parts])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the generated model, which no device trains further."""
        left, some = message.personal[_LEFT], torch.split(torch.arange(len(clients)), tile_size())
        return torch.cat(
            [
                logits(
                    {name: value[tile] for name, value in message.personal.items()},
                    candidate_rows(left[tile], None if candidates is None else candidates[tile]),
                )
                for tile in some
            ]
        )


def _minus_gradient(leaf: Tensor) -> Tensor:
    """Of all but the padding; zeros where nothing was trained."""
    return torch.zeros_like(leaf.detach()[:-1]) if leaf.grad is None else leaf.grad[:-1].neg()
