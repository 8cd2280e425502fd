"""The server of methods that share one item table and average its updates (FedMF, PFedRec)."""

from collections.abc import Mapping
from typing import Protocol, Self

from jaxtyping import Float
from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.method import PublicInfo


class TableConfig(Protocol):
    """Settings a table server reads."""

    @property
    def dim(self) -> int:
        """Width of an item vector."""

    @property
    def initial_scale(self) -> float:
        """Standard deviation of the initial table."""


class TableServer:
    """One item table `[items, dim]`; every round queries `train` and adds the mean update."""

    def __init__(self, items: Float[Tensor, "items dim"]) -> None:
        self.items = items
        self.schema: Schema = {"items": Block(tuple(items.shape))}

    @classmethod
    def from_config(cls, config: TableConfig, public_info: PublicInfo, streams: Streams) -> Self:
        """A server with the public initial table."""
        return cls(initial_table(streams, public_info.n_items, config.dim, config.initial_scale))

    def round(self, federation: Federation, t: int) -> None:
        """Average the cohort's item updates."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.items = self.items + release.mean("items")

    def public(self) -> Message:
        """The item table."""
        return Message({"items": self.items})

    def state(self) -> dict[str, Tensor]:
        """The item table."""
        return {"items": self.items}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items = state["items"]


def initial_table(streams: Streams, rows: int, dim: int, scale: float) -> Float[Tensor, "rows dim"]:
    """The public initial item table, N(0, scale^2): everybody may know it and no data enters it."""
    flat = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], rows * dim)[0]
    return flat.view(rows, dim).mul_(scale)
