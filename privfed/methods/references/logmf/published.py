"""Logistic matrix factorisation with the defaults of its author's code."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, defaults": {"reg": 0.6, "gamma": 1.0},
        "released code: zeros over interactions": {"alpha": None},
        "released code: standard normal start": {"initial_scale": 1.0},
        "open in the released code, which takes it as an argument": {"dim": 32},
        "one round is one of its iterations": {"epochs": 1},
    },
    our_variant="an interaction counts once, however often it happened, because histories hold items and no counts",
)
