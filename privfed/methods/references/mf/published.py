"""MF as the paper of GPFedRec compares with it."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix D": {"dim": 32, "negatives": 4},
        "GPFedRec paper, appendix D: 256 samples are 51 interactions with their negatives": {"batch_size": 51},
        "GPFedRec paper, appendix D: one of the rates that it searches": {"lr": 1e-3},
        "GPFedRec paper, eq. 1": {"loss": "bce"},
        "not in the paper": {"weight_decay": 0.0, "regularisation": 0.0},
        "open in the paper": {"initial_scale": 0.1},
        "one round is one of its epochs": {"epochs": 1},
    },
    our_variant="for implicit feedback with sampled negatives, as GPFedRec compares with it: the model of Koren et al. "
    "fits ratings",
)
