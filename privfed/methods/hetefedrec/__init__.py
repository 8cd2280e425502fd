"""HeteFedRec: federated recommenders whose clients have models of different sizes (Yuan et al., ICDE 2024).

Small, medium and large clients train item vectors of width 8, 16 and 32 with a head for each width. Three parts keep
unequal clients useful to each other: every nested prefix is trained as a model of its own (unified dual-task learning),
the item vectors of the wider ones are decorrelated, and the server makes the tables' item similarities agree.
"""

from collections.abc import Mapping

from torch import Tensor

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import Message
from privfed.methods.hetefedrec.attack_surface import HeteFedRecSurface
from privfed.methods.hetefedrec.client import HeteFedRecClients
from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.disclosure import HeteFedRecDisclosure
from privfed.methods.hetefedrec.published import AS_PUBLISHED
from privfed.methods.hetefedrec.server import HeteFedRecServer
from privfed.methods.method import Method
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining
from privfed.methods.shared.warm_start import GramFactors, nested_tables

__all__ = ["METHOD", "HeteFedRecConfig"]


class HeteFedRecTraining(SampledTraining):
    """Clients of every size train their own prefix of the model; the server sums block by block."""

    server = HeteFedRecServer
    clients = HeteFedRecClients
    chunk = 256

    def warm_start(
        self, config: HeteFedRecConfig, state: Mapping[str, Tensor], message: Message
    ) -> Mapping[str, Tensor]:
        """Every table a prefix of the factors."""
        return nested_tables(state, GramFactors.from_message(message, max(config.widths)), config.negatives)


METHOD = Method(
    name="hetefedrec",
    title="clients of different sizes, nested item vectors",
    display_name="HeteFedRec",
    source="HeteFedRec, Yuan et al., ICDE 2024",
    config=HeteFedRecConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=HeteFedRecTraining(),
    attack_surface=HeteFedRecSurface(),
    disclosure=HeteFedRecDisclosure(),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip("upload", 0.01, 0.15, "best of three by validation NDCG@20 at epsilon 8 on MovieLens-100K"),
        *half_of_median(upload_l1=1.1),
    ),
)
