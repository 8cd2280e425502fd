"""FedDAE's settings. The later switches reproduce what the released code does and the paper does not state."""

from typing import Literal, Self

from pydantic import Field, model_validator

from privfed.methods.shared.vae_config import VAEConfig

LocalEncoder = Literal["embedding", "sparse_first_layer", "full"]


class FedDAEConfig(VAEConfig):
    """Settings of FedVAE and of the local encoder."""

    local_encoder: LocalEncoder = Field(
        "embedding",
        description="embedding: a free mean and log variance per user; sparse_first_layer: a first layer of the "
        "user's own, with rows for its own items, in front of the shared deeper layers; full: a whole encoder per user",
    )
    personal_optimiser: Literal["adam", "sgd"] = Field("adam", description="of gate and local encoder, without memory")
    personal_lr: float = Field(1e-2, gt=0, description="learning rate of local encoder and gate")
    personal_memory_gib: float = Field(
        4.0, gt=0, description="refuse to start when all users' personal states would need more"
    )
    upload_local_encoder: bool = Field(
        default=False,
        description="as released: the local encoder is a second shared one, sent and averaged like the first",
    )
    frozen_random_gate: bool = Field(
        default=False, description="as released: the gate keeps its random start in every round and at recommendation"
    )
    fixed_gate: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="weight of the shared encoder for everybody, in place of a gate that learns (FedDAEw of the paper)",
    )
    forget_personal_state: bool = Field(
        default=False, description="as released: every round starts from the initial personal state"
    )
    beta_zero_after_first_round: bool = Field(
        default=False, description="as released: the KL weight is its cap in round 1 and zero ever after"
    )
    accumulate_gradients: bool = Field(
        default=False,
        description="as released: local gradients are never set to zero, so E steps upload sum_e (E - e + 1) g_e",
    )

    @model_validator(mode="after")
    def _one_kind_of_gate(self) -> Self:
        if self.fixed_gate is not None and self.frozen_random_gate:
            raise ValueError(
                f"fixed_gate = {self.fixed_gate:g} and frozen_random_gate are two gates that do not learn: leave one "
                f"out"
            )
        return self

    @property
    def learns_gate(self) -> bool:
        """Whether the gate is trained."""
        return self.fixed_gate is None and not self.frozen_random_gate

    @property
    def accumulates(self) -> bool:
        """Whether local gradients are never set to zero."""
        return self.accumulate_gradients

    def beta(self, t: int) -> float:
        """Weight of the KL term in round t."""
        if self.beta_zero_after_first_round:
            return self.beta_cap if t == 0 else 0.0
        return super().beta(t)
