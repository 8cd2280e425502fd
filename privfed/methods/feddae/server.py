"""FedDAE's public half: one autoencoder, as in FedVAE; as released, a second encoder beside it."""

from privfed.federation import Streams
from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.method import Facts
from privfed.methods.shared.vae_server import VAEServer

SECOND = "local_encoder"


class FedDAEServer(VAEServer):
    """Gates and local encoders are not among its blocks; with `upload_local_encoder`, a second encoder is."""

    def __init__(self, config: FedDAEConfig, facts: Facts, streams: Streams) -> None:
        super().__init__(config, facts, streams, [SECOND] if config.upload_local_encoder else [])
