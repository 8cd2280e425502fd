"""Who takes part in a round: the sampling rules of a plan, over addressed randomness."""

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.federation import SERVER, Purpose, Streams
from privfed.privacy.sampling import Sampling


def members(sampling: Sampling, streams: Streams, population: int, round: int) -> Int64[Tensor, " members"]:
    """Who takes part in `round`: each client's own random bit (Poisson), or the server's choice (fixed, epoch)."""
    everybody = torch.arange(population)
    if sampling.kind == "poisson":
        inclusion = streams.uniform(Purpose.MEMBERSHIP, round, 0, everybody.tolist(), 1)[:, 0]
        return (inclusion < sampling.rate).nonzero().squeeze(1)
    if sampling.kind == "fixed":
        keys = streams.uniform(Purpose.MEMBERSHIP, round, 0, [SERVER], population)[0]
        return keys.argsort()[: sampling.size].sort().values
    if sampling.kind == "epoch":
        per_epoch = -(-population // sampling.size)
        epoch, turn = divmod(round, per_epoch)
        keys = streams.uniform(Purpose.EPOCH_ORDER, epoch, 0, [SERVER], population)[0]
        return keys.argsort()[turn * sampling.size : (turn + 1) * sampling.size].sort().values
    return everybody
