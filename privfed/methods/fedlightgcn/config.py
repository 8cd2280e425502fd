"""Settings of federated LightGCN."""

from pydantic import Field

from privfed.methods.fedlightgcn.model import Propagation
from privfed.methods.method import MethodConfig


class FedLightGCNConfig(MethodConfig):
    """Settings; rates were chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    propagation: Propagation = Field(
        "centre",
        description="centre: items stay as they are, and a positive's own share of the user is left out, so that items "
        "are ranked as they were trained; star: LightGCN on the user's own graph, as published",
    )
    lr: float = Field(0.1, gt=0, description="base learning rate")
    user_lr_factor: float = Field(20.0, gt=0, description="user learning rate = lr x this")
    item_lr_factor: float = Field(0.3, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")
