"""Settings of MetaMF."""

from pydantic import Field

from privfed.methods.method import MethodConfig
from privfed.methods.shared.server_optimiser import Kind


class MetaMFConfig(MethodConfig):
    """Settings; narrower hidden layers than published, a rate that is a first guess (`benchmarks.quality.defaults`)."""

    dim: int = Field(
        32, ge=4, description="width of generated item vectors; the perceptron's hidden layer has a quarter"
    )
    rank: int = Field(8, ge=1, description="width of the item rows that generated item vectors are made of")
    user_dim: int = Field(32, ge=1, description="width of the server's vector of each user")
    memory: int = Field(128, ge=1, description="width of a collaborative vector")
    hidden: int = Field(128, ge=1, description="width of the hidden layers that generate parameters")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    server_optimiser: Kind = Field("adam", description="sgd, momentum or adam on the mean gradient of a round")
    server_lr: float = Field(0.001, gt=0, description="learning rate of the server")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty on everything that the server learns")
    gradient_clip: float | None = Field(
        None, gt=0, description="L2 norm that the round's gradient of the meta network is cut to; null for none"
    )
