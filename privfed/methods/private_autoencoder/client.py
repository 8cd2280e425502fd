"""The clients of `private-autoencoder`: one gradient step on the own row, brought to norm 1.

With x the 0/1 row of own items on the head, h = tanh(E^T x / |x|) and p = softmax(b + D h), a device descends
-sum_i x_i log p_i: its gradient is an outer product in either layer, so its length follows from four norms and a cohort
trains without anybody's weights being formed. A device that has nothing on the head sends zeros.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.private_autoencoder.config import PrivateAutoencoderConfig
from privfed.methods.private_autoencoder.server import BIAS, DECODER, ENCODER
from privfed.methods.shared.multinomial import multinomial_gradient
from privfed.methods.shared.popular_head import HEAD, ORDER, WITHIN, on_head, over_catalogue, unit_histories
from privfed.methods.shared.vae_clients import UserRows, whole
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.methods.shared.vae_layers import LocalAffine, LocalInput, Trunk, affine, step_coefficients
from privfed.updates import ClientUpdates, LowRank


class PrivateAutoencoderClients(StatefulClients):
    """Each user's row, and no parameters."""

    steps = frozenset({"popularity", "train"})

    def __init__(self, config: PrivateAutoencoderConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.rows = UserRows(data.positives)
        self.private = PrivateState({})

    def popularity(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The unit vector along the own items."""
        return unit_histories(self.rows.select(call.clients), call)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Minus the gradient of both layers, of joint norm 1."""
        shared = message.shared
        mine = on_head(self.rows.select(call.clients), shared[HEAD])
        once = step_coefficients(1, 1.0)
        nothing = shared[ENCODER].new_zeros(shared[ENCODER].shape[1])
        first = LocalInput(shared[ENCODER], nothing, once, whole(mine, shared[ENCODER].dtype))
        last = LocalAffine(shared[DECODER].T, shared[BIAS], once)
        trunk = Trunk([last])
        logits = trunk.forward(0, first.forward(0)).squeeze(1)
        scale = torch.ones(len(call.clients), dtype=logits.dtype)
        first.backward(0, trunk.backward(0, multinomial_gradient(logits, mine, scale).unsqueeze(1)))
        into, out = first.change(), last.change()
        everyone = torch.arange(len(call.clients))
        updates = ClientUpdates(
            call.clients,
            call.schema,
            [
                LowRank(ENCODER, everyone, into.left, into.right, sparse=into.sparse),
                LowRank(DECODER, everyone, out.right, out.left),
            ],
        )
        lengths = updates.norm_powers(2).sum(1).sqrt() / call.schema[ENCODER].weight
        return updates.scale_(torch.where(lengths > 0, WITHIN / lengths, 0.0))

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the head, from the device's own row; popularity below."""
        shared = message.shared
        mine = on_head(self.rows.select(clients), shared[HEAD])
        scores = over_catalogue(_logits(mine, message), mine.counts, shared[HEAD], shared[ORDER])
        return scores if candidates is None else torch.gather(scores, 1, candidates)


def _logits(mine: OwnRows, message: Message) -> Float[Tensor, "clients side"]:
    """Logits b + D tanh(E^T x / |x|) of the head."""
    shared = message.shared
    hidden = whole(mine, shared[ENCODER].dtype).times(shared[ENCODER], mine.items)[0].tanh_()
    return affine(hidden, shared[DECODER].T, shared[BIAS], None)
