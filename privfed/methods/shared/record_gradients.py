"""Sums of clipped gradients, one clip per record, stacked over clients: the gradient part of DP-SGD.

A record is one positive item with its sampled negatives; its loss is the mean binary cross-entropy of its samples.
The gradient of a record over everything that is trained (head, user vector, the item rows it touches) is scaled to a
joint L2 norm of at most C and only then added (Abadi et al., CCS 2016, algorithm 1).

No per-record gradient of a weight matrix exists here. A record's gradient of a layer is sum_j a_j g_j^T over its few
samples, with inputs a and output gradients g, so its squared norm is sum_jl (a_j . a_l)(g_j . g_l), and the clipped sum
over records is one matrix product. Norms are taken in float64: sums of products of both signs cancel.

Scales. Where blocks learn at different rates, SGD is plain SGD on coordinates theta / a with a = sqrt(rate / base
rate), in which all rates are equal. Norms are taken there: a block of scale a counts a times in the norm, and its noise
is a times smaller. Blocks that `scales` does not name have scale 1, the usual norm.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from privfed.methods.shared.heads import LinearHead, NeuralHead, Parameters, bce_gradient

_SHY = 1.0 - 2.0**-21
"""Keeps a clipped record at or below C although its float32 products may round up."""


class RecordGradients(Protocol):
    """The clipped sums of one head; see the functions below."""

    def __call__(
        self,
        p: Mapping[str, Tensor],
        q: Float[Tensor, "n records samples dim"],
        drawn: Float[Tensor, "n records"],
        clip_norm: float,
        scales: Mapping[str, float],
        /,
    ) -> tuple[Parameters, Float[Tensor, "n records samples dim"]]:
        """(parameters, item vectors, which records count, C, scales) -> (sums by parameter, dL/dq)."""


def clipped_linear(
    head: LinearHead,
    p: Mapping[str, Tensor],
    q: Float[Tensor, "n records samples dim"],
    drawn: Float[Tensor, "n records"],
    clip_norm: float,
    scales: Mapping[str, float],
) -> tuple[Parameters, Float[Tensor, "n records samples dim"]]:
    """Clipped gradients of a linear head and of the item vectors.

    Args:
        head: the head.
        p: its parameters, stacked over clients.
        q: item vectors of every sample; a record's first sample is its positive.
        drawn: 1 for records that count, 0 for padding.
        clip_norm: C.
        scales: by block, `items` included; 1 where not named.

    Returns:
        Per client the sum over records of clipped gradients of every parameter, `[n, *shape]`; and the clipped
        gradients of the item vectors, not summed.
    """
    n, records, samples, _ = q.shape
    g = _output_gradient(head.logits(p, q.flatten(1, 2)), samples).view(n, records, samples)
    # [n, records, dim] and [n, records]: a record is clipped as a whole, so its samples are summed first.
    d_w, d_b = (g.unsqueeze(3) * q).sum(2), g.sum(2)
    # The gradient by row j is g_j w, and rows of a record are distinct: sum_j |g_j w|^2 = |g|^2 |w|^2.
    squares = scales.get("items", 1.0) ** 2 * _squares(g) * _squares(p["w"]).unsqueeze(1)
    squares += scales.get("w", 1.0) ** 2 * _squares(d_w)
    if head.bias:
        squares += scales.get("b", 1.0) ** 2 * d_b.double().square()
    factors = _factors(squares, drawn, clip_norm)
    # Clip and sum in one product: [n, 1, records] times [n, records, dim].
    sums = {"w": torch.bmm(factors.unsqueeze(1), d_w).squeeze(1)}
    if head.bias:
        sums["b"] = (factors * d_b).sum(1)
    return sums, (g * factors.unsqueeze(2)).unsqueeze(3) * p["w"][:, None, None, :]


def clipped_neural(
    head: NeuralHead,
    p: Mapping[str, Tensor],
    q: Float[Tensor, "n records samples dim"],
    drawn: Float[Tensor, "n records"],
    clip_norm: float,
    scales: Mapping[str, float],
) -> tuple[Parameters, Float[Tensor, "n records samples dim"]]:
    """Clipped gradients of a perceptron, its user vector and the item vectors; arguments as for `clipped_linear`.

    Scales are read for `user` and `items`; the perceptron's own is 1.
    """
    n, records, samples, _ = q.shape
    flat = q.flatten(1, 2)
    *h, z = head.activations(p, flat)
    deltas = [_output_gradient(z.squeeze(2), samples).unsqueeze(2)]
    for j in range(head.layers - 1, 0, -1):
        # A ReLU's output is positive exactly where its input is.
        deltas.insert(0, torch.bmm(deltas[0], p[f"W{j}"].transpose(1, 2)).mul_(h[j - 1] > 0))
    # Weights are input-first; the first `dim` inputs are the user vector, the others the item's.
    w_user, w_item = p["W0"][:, : head.dim], p["W0"][:, head.dim :]
    d_items = torch.bmm(deltas[0], w_item.transpose(1, 2)).view(q.shape)
    # One user vector for all samples of a record, so its gradient takes their sum.
    of_records = deltas[0].view(n, records, samples, -1).sum(2)
    d_user = torch.bmm(of_records, w_user.transpose(1, 2))

    squares = scales.get("items", 1.0) ** 2 * _squares(d_items.flatten(2))
    squares += scales.get("user", 1.0) ** 2 * _squares(d_user)
    # [n x records, 1, 1]: the user's part of a_j . a_l is |u|^2 for every pair of samples.
    same_input = _squares(p["user"]).repeat_interleave(records)[:, None, None]
    for j, delta in enumerate(deltas):
        # The 1 is the input of the bias.
        inputs = _gram(flat, samples) + same_input if j == 0 else _gram(h[j - 1], samples)
        squares += ((inputs + 1.0) * _gram(delta, samples)).sum((1, 2)).view(n, records)

    factors = _factors(squares, drawn, clip_norm)
    of_samples = factors.repeat_interleave(samples, 1).unsqueeze(2)
    sums = {"user": torch.bmm(factors.unsqueeze(1), d_user).squeeze(1)}
    for j, delta in enumerate(deltas):
        clipped = delta.mul_(of_samples)
        sums[f"b{j}"] = clipped.sum(1)
        d_weight = torch.bmm((flat if j == 0 else h[j - 1]).transpose(1, 2), clipped)
        if j == 0:
            # Rows of W0 that read the user: u times the sum of clipped deltas, which the bias has already.
            d_weight = torch.cat([p["user"].unsqueeze(2) * sums["b0"].unsqueeze(1), d_weight], 1)
        sums[f"W{j}"] = d_weight
    return sums, d_items.mul_(factors[:, :, None, None])


def with_negatives(
    positives: Int64[Tensor, "n records"], uints: Int64[Tensor, "n records k"], n_items: int
) -> Int64[Tensor, "n records samples"]:
    """Every positive, then k items drawn from all others of the catalogue, distinct within the record.

    They depend on nothing but the positive and its own 32-bit words: not on what else the user has, so a negative of
    one record may be a positive of another. Rows of one record are distinct, so its norm is that of its samples.
    """
    items = [positives]
    for j in range(uints.shape[2]):
        # Among items not taken yet, numbered without gaps; stepping over each taken one, in ascending order, gives
        # the item: distinct and uniform without rejection.
        x = (uints[:, :, j] * (n_items - 1 - j)) >> 32
        for taken in torch.stack(items).sort(0).values:
            x = x + (x >= taken)
        items.append(x)
    return torch.stack(items, 2)


def _output_gradient(logits: Float[Tensor, "n b"], samples: int) -> Float[Tensor, "n b"]:
    """dL/dlogit of samples that come record by record, the positive first."""
    y = torch.zeros(samples)
    y[0] = 1.0
    records = logits.shape[1] // samples
    return bce_gradient(logits, y.repeat(records).expand_as(logits), torch.full_like(logits, 1.0 / samples))


def _squares(x: Float[Tensor, "*lead width"]) -> Float64[Tensor, "*lead"]:
    return x.double().square().sum(-1)


def _gram(x: Float[Tensor, "n b width"], samples: int) -> Float64[Tensor, "records samples samples"]:
    """Inner products of the samples of every record."""
    own = x.reshape(-1, samples, x.shape[2]).double()
    return torch.bmm(own, own.transpose(1, 2))


def _factors(
    squares: Float64[Tensor, "n records"], drawn: Float[Tensor, "n records"], clip_norm: float
) -> Float[Tensor, "n records"]:
    """Min(1, C / norm) for records that count, 0 for others."""
    # Gram products of both signs may add up to a little below 0. C / max(norm, C) then never divides by 0.
    norms = squares.clamp(min=0.0).sqrt()
    return (clip_norm / norms.clamp(min=clip_norm)).mul_(_SHY).to(drawn.dtype).mul_(drawn)
