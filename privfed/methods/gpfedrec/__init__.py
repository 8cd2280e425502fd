"""GPFedRec: graph-guided personalisation (Zhang et al., KDD 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import Message
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.gpfedrec.client import GPFedRecClients
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.published import AS_PUBLISHED, AS_RELEASED
from privfed.methods.gpfedrec.server import GPFedRecServer
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining


class GPFedRecTraining(SampledTraining):
    """Item tables are collected and mixed for every client; vectors and perceptrons stay on their devices."""

    server = GPFedRecServer
    clients = GPFedRecClients
    chunk = 256

    def extra_queries(self, config: GPFedRecConfig) -> int:
        """One for histories, where the graph is made from them."""
        return int(config.reads_histories)


@dataclass(frozen=True)
class GPFedRecDisclosure(ServerReads):
    """Every upload, and histories where the graph is made from them."""

    def side_disclosures(self, config: GPFedRecConfig) -> Sequence[str]:
        """That whole histories are shown."""
        if not config.reads_histories:
            return ()
        return (
            f"The graph {config.graph!r} compares histories: every device sends all of its own in the first round.",
        )


@dataclass(frozen=True)
class GPFedRecSurface(NamedBlocks):
    """Item rows, and the proximal term, whose target the server chose itself."""

    def proximal_direction(self, message: Message, positions: Int64[Tensor, " n"]) -> Float[Tensor, "n items dim"]:
        """Direction of each client's proximal term from the global table: `[n, items, dim]`."""
        return message.personal["targets"][positions] - message.shared["items"]


METHOD = Method(
    name="gpfedrec",
    title="item tables pulled towards those of similar users",
    display_name="GPFedRec",
    source="GPFedRec, Zhang et al., KDD 2024",
    config=GPFedRecConfig,
    traits=MethodTraits(release="individual", upload="dense"),
    training=GPFedRecTraining(),
    attack_surface=GPFedRecSurface("items", scores_are_logits=True),
    disclosure=GPFedRecDisclosure("every client's whole item table, each round, under a stable pseudonym"),
    presets={PUBLISHED: AS_PUBLISHED, "released": AS_RELEASED},
    clip_norms=(
        DefaultClip(
            "upload",
            0.01,
            0.0003,
            "behind local noise at epsilon 8 on MovieLens-100K no norm from 0.001 to 0.1 was better than another, with "
            "the paper's rates",
        ),
        *half_of_median(upload_l1=340.0),
    ),
)

__all__ = ["METHOD", "GPFedRecClients", "GPFedRecConfig", "GPFedRecServer"]
