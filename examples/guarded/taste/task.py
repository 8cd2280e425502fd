"""The model, its data and its training. Nothing here knows of Flower, nor of a guard."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from privfed.data import SplitSpec, load, split

ITEMS, WIDTH, LIST = 200, 16, 10


class Net(nn.Module):
    """Scores of all items from a user's history."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(ITEMS, WIDTH), nn.Linear(WIDTH, ITEMS)

    def forward(self, taken: Tensor) -> Tensor:
        """Logits [users, items] of 0/1 histories [users, items]."""
        logits: Tensor = self.decoder(torch.tanh(self.encoder(taken)))
        return logits


def load_data(part: int, parts: int) -> tuple[Tensor, Tensor]:
    """Histories [users, items] of every `parts`-th user, and the item of each that was held out [users]."""
    data = split(load("synthetic-small"), SplitSpec(kind="leave_one_out"))
    taken = torch.zeros(data.train.n_users, ITEMS)
    taken[torch.from_numpy(data.train.owners), torch.from_numpy(data.train.items)] = 1.0
    return taken[part::parts], torch.from_numpy(data.test.items)[part::parts]


def train(net: Net, taken: Tensor, epochs: int, lr: float) -> float:
    """Train in place on whole histories; returns the last loss."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr)
    loss = torch.zeros(())
    for _ in range(epochs):
        optimiser.zero_grad()
        loss = ITEMS * binary_cross_entropy_with_logits(net(taken), taken)
        torch.autograd.backward(loss)
        optimiser.step()
    return loss.item()


@torch.no_grad()
def test(net: Net, taken: Tensor, held_out: Tensor) -> float:
    """Share of users whose held-out item is among the first ten that they have not taken."""
    best = net(taken).masked_fill(taken.bool(), -torch.inf).topk(LIST).indices
    return float((best == held_out.unsqueeze(1)).any(1).float().mean())
