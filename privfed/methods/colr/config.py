"""Settings of CoLR."""

from typing import Self

from pydantic import Field, model_validator

from privfed.methods.method import MethodConfig


class CoLRConfig(MethodConfig):
    """Settings; rates were chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    rank: int = Field(4, ge=1, description="width of an uploaded row; an update of the item table has this rank")
    lr: float = Field(0.1, gt=0, description="base learning rate")
    user_lr_factor: float = Field(5.0, gt=0, description="user learning rate = lr x this")
    item_lr_factor: float = Field(
        3.0, gt=0, description="learning rate of factors = lr x this x number of items x sqrt(rank / dim)"
    )
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    epochs: int = Field(1, ge=1, description="local passes over the samples of a round")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")

    @model_validator(mode="after")
    def _rank_fits(self) -> Self:
        if self.rank > self.dim:
            raise ValueError(f"rank = {self.rank} is above dim = {self.dim}, where uploads save nothing: lower rank")
        return self
