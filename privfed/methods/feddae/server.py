"""FedDAE's server: one autoencoder, as in FedVAE; as released, with a second encoder."""

from privfed.federation import Streams
from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.method import PublicInfo
from privfed.methods.shared.vae_server import VAEServer

SECOND = "local_encoder"


class FedDAEServer(VAEServer):
    """Gates and local encoders are not among its blocks; with `upload_local_encoder`, a second encoder is."""

    def __init__(self, config: FedDAEConfig, public_info: PublicInfo, streams: Streams) -> None:
        super().__init__(config, public_info, streams, [SECOND] if config.upload_local_encoder else [])
