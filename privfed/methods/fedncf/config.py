"""Settings of FedNCF."""

from pydantic import Field

from privfed.methods.method import MethodConfig


class FedNCFConfig(MethodConfig):
    """Settings; learning rates and scale were chosen by validation HR@10 on MovieLens-100K."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    hidden: tuple[int, ...] = Field((32, 16, 8), description="hidden widths of the perceptron")
    lr: float = Field(0.1, gt=0, description="learning rate of the perceptron")
    user_lr_factor: float = Field(80.0, gt=0, description="user learning rate = lr x this")
    item_lr_factor: float = Field(80.0, gt=0, description="item learning rate = lr x this x number of items")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")
