"""Mult-VAE trained centrally (Liang et al., WWW 2018): what a federated autoencoder would reach without federation.

It has no privacy by design. In round 0 every client of the cohort sends its whole interaction row; from then on the
server trains alone, one epoch of mini-batches per round, and queries nobody. Per gradient step, with rows r of
unit length and entries dropped at random as the encoder's input,

    loss  mean over users of  -sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I)),
    beta  cap x min(1, gradient steps so far / anneal_steps),

and Adam. Behind a plan with noise the server sees noisy rows, once; it sets negative entries to zero.
"""

from privfed.contracts import MethodTraits
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.multvae.client import MultVAEClients
from privfed.methods.references.multvae.config import MultVAEConfig
from privfed.methods.references.multvae.published import AS_PUBLISHED
from privfed.methods.references.multvae.server import HISTORY, MultVAEServer
from privfed.methods.references.shared.central import CentralTraining


class MultVAETraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    server = MultVAEServer
    clients = MultVAEClients


METHOD = Method(
    name="multvae",
    title="one variational autoencoder, trained centrally on everybody's rows",
    display_name="Mult-VAE",
    source="Mult-VAE, Liang et al., WWW 2018",
    config=MultVAEConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=MultVAETraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole interaction list"),
    presets={PUBLISHED: AS_PUBLISHED},
)

__all__ = ["METHOD", "MultVAEClients", "MultVAEConfig", "MultVAEServer"]
