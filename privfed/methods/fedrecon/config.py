"""Settings of FedRecon."""

from pydantic import Field

from privfed.methods.method import MethodConfig


class FedReconConfig(MethodConfig):
    """Settings; items move as FedMF's here do.

    The rate of rebuilding was chosen on the validation parts of seven catalogues (`benchmarks.quality.defaults`).
    """

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    recon_lr: float = Field(0.2, gt=0, description="learning rate of the user vector while it is rebuilt")
    recon_epochs: int = Field(10, ge=1, description="passes over the samples that rebuild the user vector")
    item_lr_factor: float = Field(1.0, gt=0, description="item learning rate = this x number of items")
    epochs: int = Field(1, ge=1, description="passes over the samples that train items")
    split: bool = Field(
        default=True,
        description="rebuild from a random half of a round's samples and train items on the other; else on all",
    )
    joint: bool = Field(default=False, description="let the rebuilt user vector train on while items do")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial item vectors")
