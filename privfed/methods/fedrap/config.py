"""Settings of FedRAP."""

import math
from typing import Literal

from pydantic import Field

from privfed.methods.method import MethodConfig


class FedRAPConfig(MethodConfig):
    """Settings; rates are a first guess (`benchmarks.quality.defaults` has their grid)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    lr: float = Field(2.0, gt=0, description="learning rate of the user vector and its bias")
    common_lr_factor: float = Field(0.1, gt=0, description="learning rate of the common table = this x number of items")
    personal_lr: float = Field(1.0, gt=0, description="learning rate of the personal table")
    distance: float = Field(
        0.01, ge=0, description="weight of the distance between personal and common rows, which grows (lambda)"
    )
    sparsity: float = Field(0.001, ge=0, description="weight of the L1 norm of common rows (mu)")
    schedule: Literal["tanh", "constant"] = Field(
        "tanh", description="both weights grow as tanh(round / ramp_rounds), or stay as they are"
    )
    ramp_rounds: float = Field(10.0, gt=0, description="rounds over which tanh grows")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    epochs: int = Field(1, ge=1, description="local passes over the samples of a round")
    epoch_decay: float = Field(1.0, gt=0, le=1, description="factor of all learning rates from one pass to the next")
    round_decay: float = Field(1.0, gt=0, le=1, description="factor of all learning rates from one round to the next")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of both initial item tables")
    personal_memory_gib: float = Field(
        8.0, gt=0, description="a run whose personal tables need more memory than this is refused"
    )

    def grown(self, round: int) -> float:
        """The share of both weights in a round, by the schedule."""
        return math.tanh(round / self.ramp_rounds) if self.schedule == "tanh" else 1.0
