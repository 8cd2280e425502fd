"""Perceptrons on nested prefixes of one user vector and one set of item vectors, stacked over clients.

HeteFedRec (ICDE 2024, eq. 11): a client whose vectors are N wide also scores with their first N_k < N numbers, each
prefix by a head of its own. All heads of a client are evaluated together: their first layers stand side by side in one
block-triangular matrix, whose entries below a head's prefix are zero and stay zero; the other layers are a batch.

Items come feature by feature, `[clients, width, rows]`: a prefix is then a slice, and products with 8 hidden units run
along the rows. Beside the perceptron a head may add the inner product of the two prefixes (NeuMF, WWW 2017, section
3.4, without weights of its own).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.devices import here
from privfed.methods.shared.heads import NeuralHead

Parameters = dict[str, Tensor]
Activation = Literal["relu", "leaky_relu"]
LEAK = 0.01


@dataclass(frozen=True, slots=True)
class Forward:
    """Intermediate values of a forward pass that the backward pass needs.

    Attributes:
        hidden: rectified outputs of the hidden layers, `[clients * heads, width, rows]`.
        logits: `[clients, heads, rows]`.
    """

    hidden: list[Tensor]
    logits: Float[Tensor, "clients heads rows"]


@dataclass(frozen=True, slots=True)
class PrefixHeads:
    """One perceptron per prefix.

    Stacked parameters of a client, K heads and q = K x first hidden width: `user0 [N, q]` and `item0 [N, q]` are the
    two parts of all first layers, `bias0 [q]`, then `weight1 [K, h1, h2]`, `bias1 [K, h2]` and so on.

    Attributes:
        prefixes: widths of the prefixes, ascending; the last is the full width N.
        hidden: hidden widths of every perceptron.
        activation: of the hidden layers.
        inner: whether the inner product of the prefixes is added to a head's logit.
    """

    prefixes: tuple[int, ...]
    hidden: tuple[int, ...]
    activation: Activation = "relu"
    inner: bool = False

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.prefixes[-1]

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.prefixes)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Output widths of the layers."""
        return (*self.hidden, 1)

    def head(self, k: int) -> NeuralHead:
        """Head k by itself: names and shapes of its weights as the server holds them."""
        return NeuralHead(self.prefixes[k], self.hidden)

    def shapes(self, clients: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the stacked parameters."""
        first = self.heads * self.outputs[0]
        shapes: dict[str, tuple[int, ...]] = {
            "user0": (clients, self.width, first),
            "item0": (clients, self.width, first),
            "bias0": (clients, first),
        }
        for j in range(1, len(self.outputs)):
            shapes[f"weight{j}"] = (clients, self.heads, self.outputs[j - 1], self.outputs[j])
            shapes[f"bias{j}"] = (clients, self.heads, self.outputs[j])
        return shapes

    def pack_(self, stacked: Mapping[str, Tensor], heads: Sequence[Mapping[str, Tensor]]) -> None:
        """Write the weights of every head, `[*shape]` or `[clients, *shape]`, into stacked parameters of zeros."""
        h = self.outputs[0]
        for k, (weights, prefix) in enumerate(zip(heads, self.prefixes, strict=True)):
            columns = slice(k * h, (k + 1) * h)
            stacked["user0"][:, :prefix, columns] = weights["W0"][..., :prefix, :]
            stacked["item0"][:, :prefix, columns] = weights["W0"][..., prefix:, :]
            stacked["bias0"][:, columns] = weights["b0"]
            for j in range(1, len(self.outputs)):
                stacked[f"weight{j}"][:, k] = weights[f"W{j}"]
                stacked[f"bias{j}"][:, k] = weights[f"b{j}"]

    def unpack(self, stacked: Mapping[str, Tensor]) -> list[Parameters]:
        """The weights of every head, `[clients, *shape]`; views but for the first layers."""
        h, found = self.outputs[0], []
        for k, prefix in enumerate(self.prefixes):
            columns = slice(k * h, (k + 1) * h)
            halves = [stacked[half][:, :prefix, columns] for half in ("user0", "item0")]
            weights = {"W0": torch.cat(halves, 1), "b0": stacked["bias0"][:, columns]}
            for j in range(1, len(self.outputs)):
                weights |= {f"W{j}": stacked[f"weight{j}"][:, k], f"b{j}": stacked[f"bias{j}"][:, k]}
            found.append(weights)
        return found

    def reach(self) -> Float[Tensor, "width heads"]:
        """1 where a number of the vectors belongs to a head's prefix, else 0."""
        return _reach(self.prefixes, here())

    def forward(
        self, p: Mapping[str, Tensor], user: Float[Tensor, "clients width"], items: Float[Tensor, "clients width rows"]
    ) -> Forward:
        """Logits of every head and the hidden layers they came from."""
        clients, rows = len(items), items.shape[2]
        base = torch.baddbmm(p["bias0"].unsqueeze(1), user.unsqueeze(1), p["user0"]).transpose(1, 2)
        z = torch.baddbmm(base, p["item0"].transpose(1, 2), items).view(clients * self.heads, -1, rows)
        hidden = []
        for j in range(1, len(self.outputs)):
            hidden.append(self._activate_(z))
            weight, bias = p[f"weight{j}"].flatten(0, 1), p[f"bias{j}"].view(-1, self.outputs[j], 1)
            z = torch.baddbmm(bias, weight.transpose(1, 2), hidden[-1])
        logits = z.view(clients, self.heads, rows)
        if self.inner:
            logits = logits.baddbmm_(self._prefixed(user).transpose(1, 2), items)
        return Forward(hidden, logits)

    def backward(
        self,
        p: Mapping[str, Tensor],
        user: Float[Tensor, "clients width"],
        items: Float[Tensor, "clients width rows"],
        forward: Forward,
        dlogits: Float[Tensor, "clients heads rows"],
        out: Mapping[str, Tensor],
    ) -> tuple[Float[Tensor, "clients width"], Float[Tensor, "clients width rows"]]:
        """Gradients of sum(dlogits * logits) by user and item vectors.

        Args:
            p: stacked parameters.
            user: user vectors.
            items: item vectors.
            forward: of the same three.
            dlogits: derivative of the loss by every logit.
            out: where the gradients of the stacked parameters are written.
        """
        g = self._to_first_layer(p, forward, dlogits, out)
        mask = self.reach().repeat_interleave(self.outputs[0], 1)
        torch.sum(g, 2, out=out["bias0"])
        torch.bmm(items, g.transpose(1, 2), out=out["item0"]).mul_(mask)
        torch.mul(user.unsqueeze(2) * mask, out["bias0"].unsqueeze(1), out=out["user0"])
        d_items = torch.bmm(p["item0"], g)
        if self.inner:
            d_items.baddbmm_(self._prefixed(user), dlogits)
        return self._by_user(p, items, out["bias0"], dlogits), d_items

    def user_gradient(
        self,
        p: Mapping[str, Tensor],
        items: Float[Tensor, "clients width rows"],
        forward: Forward,
        dlogits: Float[Tensor, "clients heads rows"],
    ) -> Float[Tensor, "clients width"]:
        """The gradient of sum(dlogits * logits) by the user vectors alone."""
        return self._by_user(p, items, self._to_first_layer(p, forward, dlogits, None).sum(2), dlogits)

    def _to_first_layer(
        self, p: Mapping[str, Tensor], forward: Forward, dlogits: Tensor, out: Mapping[str, Tensor] | None
    ) -> Float[Tensor, "clients first rows"]:
        """The gradient by the first layer's sums; those of the later layers' weights go to `out`."""
        clients, rows = len(dlogits), dlogits.shape[2]
        g = dlogits.reshape(clients * self.heads, 1, rows)
        for j in range(len(self.outputs) - 1, 0, -1):
            h, weight = forward.hidden[j - 1], p[f"weight{j}"].flatten(0, 1)
            if out is not None:
                torch.bmm(h, g.transpose(1, 2), out=out[f"weight{j}"].view(weight.shape))
                torch.sum(g, 2, out=out[f"bias{j}"].view(-1, self.outputs[j]))
            g = self._deactivate(torch.bmm(weight, g), h)
        return g.view(clients, -1, rows)

    def _by_user(self, p: Mapping[str, Tensor], items: Tensor, summed: Tensor, dlogits: Tensor) -> Tensor:
        d_user = torch.bmm(p["user0"], summed.unsqueeze(2)).squeeze(2)
        if self.inner:
            d_user.add_((torch.bmm(items, dlogits.transpose(1, 2)) * self.reach()).sum(2))
        return d_user

    def _prefixed(self, user: Float[Tensor, "clients width"]) -> Float[Tensor, "clients width heads"]:
        return user.unsqueeze(2) * self.reach()

    def _activate_(self, z: Tensor) -> Tensor:
        return z.relu_() if self.activation == "relu" else torch.nn.functional.leaky_relu_(z, LEAK)

    def _deactivate(self, g: Tensor, h: Tensor) -> Tensor:
        """The gradient before an activation from that behind it and the activation's output `h`."""
        if self.activation == "relu":
            passed: Tensor = torch.ops.aten.threshold_backward(g, h, 0)
        else:
            passed = torch.ops.aten.leaky_relu_backward(g, h, LEAK, True)  # noqa: FBT003 (an aten operator)
        return passed


@lru_cache
def _reach(prefixes: tuple[int, ...], device: torch.device) -> Tensor:
    with device:
        return (torch.arange(prefixes[-1]).unsqueeze(1) < torch.tensor(prefixes)).float()
