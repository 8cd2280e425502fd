"""LightGCN as a reference: matrix factorisation whose vectors are smoothed over the graph of everybody's interactions.

He et al., SIGIR 2020: the final vectors are the mean over propagation steps (`graph`), trained by BPR with Adam.
"""

from functools import partial

from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.lightgcn.published import AS_PUBLISHED
from privfed.methods.references.lightgcn.server import LightGCNConfig, LightGCNServer
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST, FactorTraining


class LightGCNTraining(FactorTraining):
    """Sampled items and Adam, over the graph."""

    server = staticmethod(partial(LightGCNServer, "lightgcn"))


METHOD = Method(
    name="lightgcn",
    title="vectors of users and items, propagated over the graph of everybody's interactions, trained centrally",
    display_name="LightGCN",
    source="LightGCN, He et al., SIGIR 2020",
    config=LightGCNConfig,
    traits=CENTRAL,
    training=LightGCNTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)

__all__ = ["METHOD", "LightGCNConfig", "LightGCNServer"]
