"""FedDAE: a shared and a personal encoder, mixed by a personal gate, and one shared decoder (Li et al., AAAI 2025)."""

from privfed.methods.feddae.clients import FedDAEClients
from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.feddae.server import FedDAEServer
from privfed.methods.method import Method
from privfed.methods.shared.vae_config import in_cache

__all__ = ["METHOD", "FedDAEClients", "FedDAEConfig", "FedDAEServer"]

METHOD = Method(
    name="feddae",
    title="variational autoencoder with a shared and a personal encoder, mixed by a personal gate",
    source="FedDAE, Li et al., AAAI 2025",
    config=FedDAEConfig,
    release="total",
    upload="dense",
    server=FedDAEServer,
    clients=FedDAEClients,
    reads="the sums of autoencoder updates",
    item_block="decoder.*.weight",
    input_block="encoder.0.weight",
    bias_block="decoder.*.bias",
    chunk=in_cache,
    extra_queries=lambda config: int(config.popularity_prior),
)
