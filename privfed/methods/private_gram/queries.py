"""What one history contributes to either query: the same code on a device and for histories that were opened.

With x the 0/1 row of own items on the head, |x| of them, pi the head's noisy popularity and D its damping:

    y = D^-a (x - min(1, |x| pi)),  what the history has beyond what popularity expects of so long a one.

The Gram matrix gets y y^T / |y|^2, of norm 1; without its diagonal, y_i y_j times the smaller of 1 over the norm of
what is left and 1.5 / |y|^2.

The popularity of the head gets x / sqrt(|x|) beside it: of unit length on the head alone, so that whoever has few items
there says more than in the popularity of the whole catalogue.
"""

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.federation import Message
from privfed.methods.shared.popular_head import HEAD, SCALE, SHARES, WITHIN, on_head
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import Rows
from privfed.updates.symmetric import squared_norms

GRAM, AGAIN = "gram", "head_popularity"
_MOST_LIFTED = 1.5


def centred(rows: OwnRows, message: Message) -> tuple[Float[Tensor, "clients side"], OwnRows]:
    """The vector y of every history, and its items on the head."""
    head, shares, scale = (message.shared[name] for name in (HEAD, SHARES, SCALE))
    mine = on_head(rows, head)
    owner, place, owned = mine.owner, mine.items, mine.counts
    # Compiled code reads memory unchecked, and a hostile server chooses the shapes: torch refuses those that differ.
    alike = shares.shape == scale.shape == head.shape and shares.dtype == scale.dtype == torch.float32
    if owned.is_cpu and alike:
        taken = owner.numpy(), place.numpy()
        return torch.from_numpy(_centred(*taken, owned.numpy(), shares.numpy(), scale.numpy())), mine
    own = torch.zeros(len(owned), len(head))
    own[owner, place] = 1
    return (own - (owned.unsqueeze(1) * shares).clamp(max=1)).mul_(scale), mine


@compiled
def _centred(
    owner: Int64[np.ndarray, " k"],
    place: Int64[np.ndarray, " k"],
    owned: Int64[np.ndarray, " clients"],
    shares: Float32[np.ndarray, " side"],
    scale: Float32[np.ndarray, " side"],
) -> Float32[np.ndarray, "clients side"]:
    """The vectors, written once: a pass over clients x side for each operation would cost more than the sum of them."""
    zero, one = np.float32(0), np.float32(1)
    out = np.empty((len(owned), len(shares)), np.float32)
    for j in range(len(owned)):
        length = np.float32(owned[j])
        for i in range(len(shares)):
            out[j, i] = (zero - min(length * shares[i], one)) * scale[i]
    for k in range(len(owner)):
        i = place[k]
        out[owner[k], i] = (one - min(np.float32(owned[owner[k]]) * shares[i], one)) * scale[i]
    return out


def factors(vectors: Float[Tensor, "clients side"], *, diagonal: bool) -> Float64[Tensor, " clients"]:
    """Factor of y y^T for a norm of 1 (or less); 0 for y = 0."""
    whole = squared_norms(vectors).sqrt()
    weights = WITHIN / whole
    if not diagonal:
        left = squared_norms(vectors, diagonal=False).sqrt()
        weights = torch.minimum(WITHIN / left, _MOST_LIFTED / whole)
    return torch.where(whole > 0, weights, 0.0)


def unit_rows(rows: OwnRows) -> Rows:
    """The part of an upload that says which items of the head a history has, of its items there."""
    values = (WITHIN / rows.counts.double().sqrt())[rows.owner].float().unsqueeze(1)
    return Rows(AGAIN, rows.owner, rows.items, values)
