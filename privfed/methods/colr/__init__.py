"""CoLR: matrix factorisation with low-rank uploads (Nguyen et al., WWW 2024).

The item table of a device is Q + A B with a basis B that everybody shares and that is new in every round. Only A is
trained and uploaded, `rank` numbers for a row of `dim`; factors add up, so that any secure sum takes them.
"""

from privfed.contracts import MethodTraits, half_of_median
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.colr.client import CoLRClients
from privfed.methods.colr.config import CoLRConfig
from privfed.methods.colr.published import AS_PUBLISHED
from privfed.methods.colr.server import CoLRServer
from privfed.methods.method import Method, ServerReads
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.sampled_training import SampledTraining


class CoLRTraining(SampledTraining):
    """Factors of the item table's update are averaged; user vectors stay on their devices."""

    server = CoLRServer
    clients = CoLRClients


METHOD = Method(
    name="colr",
    title="matrix factorisation, low-rank uploads in a shared basis",
    display_name="CoLR",
    source="CoLR, Nguyen et al., WWW 2024",
    config=CoLRConfig,
    traits=MethodTraits(release="total", upload="rows"),
    training=CoLRTraining(),
    attack_surface=NamedBlocks("factors", scores_are_logits=True),
    disclosure=ServerReads("the sum of low-rank factors of item-vector updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=half_of_median(upload=2.7, upload_l1=68.0),
)

__all__ = ["METHOD", "CoLRClients", "CoLRConfig", "CoLRServer"]
