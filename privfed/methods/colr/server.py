"""CoLR's server: the item table, and a new public basis in every round."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.colr.config import CoLRConfig
from privfed.methods.method import PublicInfo
from privfed.methods.shared.table_server import initial_table

_KEY_WORDS = 8


class CoLRServer:
    """Clients send factors A `[items, rank]` of Q + A B for the round's basis B; their mean times B is added to Q."""

    def __init__(self, config: CoLRConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config = config
        # A key of the bases alone: the streams that a server is given hold every user's key in a simulation.
        self._key = streams.words(Purpose.INITIALISE, 0, 1, [PUBLIC], _KEY_WORDS).tobytes()
        self._simulated = streams.simulated
        self.items = initial_table(streams, public_info.n_items, config.dim, config.initial_scale)
        self.schema: Schema = {"factors": Block((public_info.n_items, config.rank))}
        self._begin(0)

    def round(self, federation: Federation, t: int) -> None:
        """Average the cohort's factors, which is exact because all share the basis, and draw the next one."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.items = self.items + release.mean("factors") @ self._basis
        self._begin(t + 1)

    def public(self) -> Message:
        """The item table and the basis of the coming round."""
        return Message({"items": self.items, "basis": self._basis})

    def state(self) -> dict[str, Tensor]:
        """The item table and the number of the coming round, from which the basis follows."""
        return {"items": self.items, "round": torch.tensor(self._round)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items = state["items"]
        self._begin(int(state["round"]))

    def _begin(self, round: int) -> None:
        streams = Streams(self._key, simulated=self._simulated)
        self._round, self._basis = round, public_basis(streams, round, self.config.rank, self.config.dim)


def public_basis(streams: Streams, round: int, rank: int, dim: int) -> Float[Tensor, "rank dim"]:
    """Orthogonal rows of length sqrt(dim / rank) in a random direction: B^T B is the identity on average."""
    flat = streams.normal(Purpose.INITIALISE, round, 0, [PUBLIC], rank * dim)[0]
    orthonormal: Float[Tensor, "dim rank"] = torch.linalg.qr(flat.view(dim, rank).double()).Q
    return orthonormal.T.mul((dim / rank) ** 0.5).float().contiguous()
