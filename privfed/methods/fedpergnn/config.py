"""Settings of FedPerGNN."""

from pydantic import Field

from privfed.methods.fedpergnn.model import Activation, Predictor
from privfed.methods.method import MethodConfig
from privfed.methods.shared.server_optimiser import Kind


class FedPerGNNConfig(MethodConfig):
    """Settings; rates are a first guess (`benchmarks.quality.defaults` has their grid)."""

    dim: int = Field(32, ge=1, description="width of user and item vectors and of every layer")
    predictor: Predictor = Field(
        "dot",
        description="dot: inner product of the user's and the item's output; additive: one linear layer on both, as "
        "released, which ranks items alike for everybody",
    )
    activation: Activation = Field(
        "identity", description="of the layers on embeddings: identity, or sigmoid as released"
    )
    max_history: int = Field(100, ge=1, description="most items of the local graph; a fixed draw of longer histories")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    pseudo_items: int = Field(
        100, ge=0, description="items that were not trained on and get made-up gradients, like the real ones on average"
    )
    gradient_clip: float | None = Field(
        None, gt=0, description="L2 norm that a client's uploaded gradient is cut to in training; null for none"
    )
    user_lr: float = Field(1.0, gt=0, description="learning rate of the private user vector")
    server_optimiser: Kind = Field("adam", description="sgd, momentum or adam on the mean gradient")
    server_lr: float = Field(0.03, gt=0, description="learning rate of the server")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")
