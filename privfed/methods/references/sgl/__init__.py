"""SGL as a reference: LightGCN with a second task, to tell nodes apart in graphs with dropped edges.

Wu et al., SIGIR 2021, the variant with edge dropout (SGL-ED): in every pass two graphs are drawn without some of the
edges, and a node's vector of the one should be nearest to its own of the other (InfoNCE).
"""

from functools import partial

from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.sgl.published import AS_PUBLISHED
from privfed.methods.references.sgl.server import SGLConfig, SGLServer
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST, FactorTraining


class SGLTraining(FactorTraining):
    """Sampled items and Adam, over the graph and two views of it."""

    server = staticmethod(partial(SGLServer, "sgl"))


METHOD = Method(
    name="sgl",
    title="LightGCN with contrast between graphs of dropped edges, trained centrally",
    display_name="SGL",
    source="SGL, Wu et al., SIGIR 2021",
    config=SGLConfig,
    traits=CENTRAL,
    training=SGLTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)

__all__ = ["METHOD", "SGLConfig", "SGLServer"]
