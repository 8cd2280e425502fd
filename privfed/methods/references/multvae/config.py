"""Settings of Mult-VAE."""

from pydantic import Field, PositiveInt

from privfed.methods.method import MethodConfig
from privfed.methods.shared.vae import Architecture, Initialisation


class MultVAEConfig(MethodConfig):
    """Autoencoder and central training. The paper's model: hidden (600,), latent 200, lr 1e-3, xavier."""

    latent: int = Field(64, ge=1, description="width of the latent vector")
    hidden: tuple[PositiveInt, ...] = Field(
        (), description="encoder widths between items and latent; the decoder mirrors them"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="share of the input entries dropped in each gradient step")
    batch_size: int | None = Field(500, ge=1, description="users per gradient step; null takes all of them at once")
    beta_cap: float = Field(0.2, ge=0, description="weight of the KL term after annealing")
    anneal_steps: int = Field(
        200, ge=0, description="gradient steps until beta_cap is reached (in the authors' code 40,000)"
    )
    initialisation: Initialisation = Field("torch", description="torch: as torch's Linear; xavier: Glorot, zero biases")
    lr: float = Field(1e-2, gt=0, description="learning rate of Adam; models with hidden layers need about 1e-3")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty in the gradient")

    def beta(self, step: int) -> float:
        """Weight of the KL term after `step` gradient steps."""
        return self.beta_cap * (min(1.0, step / self.anneal_steps) if self.anneal_steps else 1.0)

    def architecture(self, n_items: int) -> Architecture:
        """The autoencoder over a catalogue."""
        return Architecture(n_items, self.latent, self.hidden)
