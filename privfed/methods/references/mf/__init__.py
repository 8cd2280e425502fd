"""Matrix factorisation as a reference: vectors of users and items on sampled negatives, trained centrally.

The baseline that papers call MF: no biases, the loss of BPR (Rendle et al., UAI 2009) or binary cross-entropy, Adam.
"""

from functools import partial

from pydantic import Field

from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.method import Method
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.mf.published import AS_PUBLISHED
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST, FactorConfig, FactorServer, FactorTraining


class MFConfig(FactorConfig):
    """Settings of matrix factorisation, chosen on the validation items of MovieLens-100K, for 30 rounds."""

    lr: float = Field(5e-3, gt=0, description="learning rate of Adam")
    regularisation: float = Field(
        1e-2, ge=0, description="weight of half the squared lengths of a batch's vectors, on average over it"
    )


class MFTraining(FactorTraining):
    """Sampled items and Adam."""

    server = staticmethod(partial(FactorServer, "mf"))


METHOD = Method(
    name="mf",
    title="matrix factorisation on sampled negatives, trained centrally",
    display_name="MF",
    source="MF, Koren et al., Computer 2009; BPR, Rendle et al., UAI 2009",
    config=MFConfig,
    traits=CENTRAL,
    training=MFTraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)
