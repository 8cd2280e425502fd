"""The meta network of MetaMF and the small models that it generates (Lin et al., SIGIR 2020, sections 3.2 to 3.4).

The server has a vector p_u of every user. With the memory C and, for each generated thing, a hidden layer of its own,

    c_u = p_u C,   h = relu(H c_u),   weights = W h,

it generates a perceptron of one hidden layer and item vectors. These are too many for one layer: a row of `rank`
numbers per item and a matrix [rank, dim] are generated, and their product is what the user has for items.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class MetaNetwork:
    """Shapes and forward pass of what the server learns.

    Attributes:
        items: size of the catalogue.
        dim, rank, user_dim, memory, hidden: widths.
    """

    items: int
    dim: int
    rank: int
    user_dim: int
    memory: int
    hidden: int

    def generated(self) -> dict[str, tuple[int, ...]]:
        """Shapes of one user's generated parameters: item rows, what raises them to `dim`, and the perceptron."""
        width = self.dim // 4
        return {
            "left": (self.items, self.rank),
            "right": (self.rank, self.dim),
            "W0": (self.dim, width),
            "b0": (1, width),
            "W1": (width, 1),
            "b1": (1, 1),
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all that is learned but the users' vectors; of a bias, its width alone."""
        shapes: dict[str, tuple[int, ...]] = {"memory": (self.user_dim, self.memory)}
        for name in ("items", "layer0", "layer1"):
            shapes |= {f"{name}.weight": (self.memory, self.hidden), f"{name}.bias": (self.hidden,)}
        for name, shape in self.generated().items():
            size = math.prod(shape)
            shapes |= {f"{name}.weight": (self.hidden, size), f"{name}.bias": (size,)}
        return shapes

    @property
    def weights(self) -> int:
        """Number of weights that start at random."""
        return sum(math.prod(shape) for shape in self.shapes().values() if len(shape) > 1)

    def initial(self, unit: Float[Tensor, " weights"]) -> dict[str, Tensor]:
        """Glorot's normal weights and biases of zero, from standard normal draws."""
        out, used = {}, 0
        for name, shape in self.shapes().items():
            if len(shape) == 1:
                out[name] = torch.zeros(shape)
                continue
            size = math.prod(shape)
            out[name] = unit[used : used + size].view(shape) * math.sqrt(2 / sum(shape))
            used += size
        return out

    def generate(self, p: Parameters, users: Float[Tensor, "n user_dim"]) -> dict[str, Tensor]:
        """The parameters of some users, `[n, *shape]`."""
        collaborative = users @ p["memory"]
        source = {"left": "items", "right": "items", "W0": "layer0", "b0": "layer0", "W1": "layer1", "b1": "layer1"}
        hidden = {
            name: torch.addmm(p[f"{name}.bias"], collaborative, p[f"{name}.weight"]).relu()
            for name in ("items", "layer0", "layer1")
        }
        return {
            name: torch.addmm(p[f"{name}.bias"], hidden[source[name]], p[f"{name}.weight"]).view(len(users), *shape)
            for name, shape in self.generated().items()
        }


def logits(p: Parameters, rows: Float[Tensor, "n b rank"]) -> Float[Tensor, "n b"]:
    """Scores of items by generated models, `[n, *shape]` each, before the sigmoid."""
    hidden = torch.baddbmm(p["b0"], rows @ p["right"], p["W0"]).relu()
    return torch.baddbmm(p["b1"], hidden, p["W1"]).squeeze(2)


def candidate_rows(
    left: Float[Tensor, "n items rank"], candidates: Int64[Tensor, "n c"] | None
) -> Float[Tensor, "n c rank"]:
    """Item rows of the candidates; all of them for None."""
    if candidates is None:
        return left
    return left.gather(1, candidates.unsqueeze(2).expand(-1, -1, left.shape[2]))
