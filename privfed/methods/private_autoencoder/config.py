"""Settings of `private-autoencoder`, and what follows from public numbers."""

from dataclasses import dataclass

from pydantic import Field

from privfed.contracts import NoisySums
from privfed.methods.method import MethodConfig
from privfed.methods.shared.popular_head import side_of
from privfed.methods.shared.server_optimiser import ServerOptimiser

_HEAD = 10.0


class PrivateAutoencoderConfig(MethodConfig):
    """Settings; defaults were chosen on the validation items of MovieLens-1M at epsilon 1 and 8."""

    dim: int = Field(32, ge=1, description="width of the hidden layer")
    steps: int = Field(50, ge=1, description="gradient steps of everybody, one query each")
    popularity_share: float = Field(
        0.1, gt=0, lt=1, description="share of mu^2 for the popularity of items; the steps share the rest alike"
    )
    head: int | None = Field(None, ge=2, description="most popular items that have weights; null: by rule")
    largest_head: int = Field(2048, ge=2, description="what the head may not exceed, however little noise there is")
    initial_scale: float = Field(0.03, gt=0, description="standard deviation of initial weights")
    lr: float = Field(0.02, gt=0, description="learning rate of the server's Adam")
    first_beta: float = Field(0.5, ge=0, lt=1, description="Adam's memory of updates")
    second_beta: float = Field(0.99, ge=0, lt=1, description="Adam's memory of squared updates")

    def optimiser(self) -> ServerOptimiser:
        """A fresh server optimiser."""
        return ServerOptimiser("adam", self.lr, momentum=self.first_beta, second=self.second_beta)


@dataclass(frozen=True, slots=True)
class PrivateAutoencoderConstants:
    """Constants of a run.

    Attributes:
        share: of mu^2 that popularity gets.
        head: items that have weights.
    """

    share: float
    head: int

    @classmethod
    def from_config(
        cls, config: PrivateAutoencoderConfig, sums: NoisySums, items: int
    ) -> "PrivateAutoencoderConstants":
        """The constants of a run: settings, and the head by rule unless it is set.

        Args:
            config: settings.
            sums: clients and noise of a sum.
            items: of the catalogue.
        """
        head = side_of(sums, items, _HEAD, config.largest_head)
        return cls(config.popularity_share, head if config.head is None else max(min(config.head, items - 1), 1))
