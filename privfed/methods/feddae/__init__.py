"""FedDAE: a shared and a personal encoder, mixed by a personal gate, and one shared decoder (Li et al., AAAI 2025)."""

from collections.abc import Mapping

from torch import Tensor

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import Message
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.feddae.client import FedDAEClients
from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.feddae.published import AS_PUBLISHED, AS_RELEASED
from privfed.methods.feddae.server import FedDAEServer
from privfed.methods.method import Method, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.vae_config import in_cache
from privfed.methods.shared.warm_start import GramFactors, autoencoder

__all__ = ["METHOD", "FedDAEClients", "FedDAEConfig", "FedDAEServer"]


class FedDAETraining(Training):
    """The shared encoder and decoder are averaged; personal encoders and gates stay on their devices."""

    server = FedDAEServer
    clients = FedDAEClients
    chunk = staticmethod(in_cache)
    # All rows of a call go through one matrix product, whose rounding depends on how many there are.
    bit_parity = False

    def extra_queries(self, config: FedDAEConfig) -> int:
        """One for the popularity prior."""
        return int(config.popularity_prior)

    def warm_start(self, config: FedDAEConfig, state: Mapping[str, Tensor], message: Message) -> Mapping[str, Tensor]:
        """The shared encoder and the decoder at the factors of the released weights."""
        return autoencoder(state, GramFactors.from_message(message, config.latent))


METHOD = Method(
    name="feddae",
    title="variational autoencoder with a shared and a personal encoder, mixed by a personal gate",
    display_name="FedDAE",
    source="FedDAE, Li et al., AAAI 2025",
    config=FedDAEConfig,
    traits=MethodTraits(release="total", upload="dense"),
    training=FedDAETraining(),
    attack_surface=NamedBlocks("decoder.*.weight", "encoder.0.weight", "decoder.*.bias"),
    disclosure=ServerReads("the sums of autoencoder updates"),
    presets={PUBLISHED: AS_PUBLISHED, "released": AS_RELEASED},
    clip_norms=(
        DefaultClip("upload", 0.003, 0.05, "that of FedVAE, whose uploads are alike, and not tuned on FedDAE itself"),
        *half_of_median(upload_l1=2.4),
    ),
)
