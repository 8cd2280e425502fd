"""DFMR as its slides have it, which state the objective and no hyper-parameters; DCF and LightFR beside it."""

from privfed.methods.preset import Preset, Values

_TUNED = "open in the slides; best on the validation part of JD in our search"
_COMMON: Values = {
    "slides, space complexity": {"d": 32},
    "slides: r = 1 and one weight for all purchases": {"w": 1.0},
    "slides: every examination trains": {"min_buyers": 0},
    "slides, algorithms 1 and 2: nothing is watched": {"guard": False},
    "exactness of this implementation": {"bits": 30, "blocks": 1},
}
_SERVER_START: Values = {
    "slides, algorithm 1: the server pre-trains U and V": {"start": "server"},
    "open in the slides": {"start_sweeps": 10},
}
_NO_PAIRS: Values = {
    "no pairs": {"c0": 0.0, "examinations": []},
    "no effect without pairs": {"lam": 0.92, "exponent": 0.5, "gamma1": 0.25, "gamma2": 0.75, "gamma3": 0.25},
}
_ORDER = (
    "bits are the outer loop and all items of a bit are decided together, because in the slides' order the caches of "
    "clients go stale"
)

AS_PUBLISHED = Preset(
    {
        **_COMMON,
        **_SERVER_START,
        _TUNED: {
            "s": 9.8e-4,
            "alpha": 0.595,
            "beta": 0.0,
            "c0": 47.5,
            "exponent": 0.5,
            "lam": 0.97,
            "gamma1": 0.75,
            "gamma2": 0.5,
            "gamma3": 0.125,
        },
        "slides: examinations are whatever the data say": {"examinations": None},
    },
    our_variant=_ORDER,
)
DCF_AS_PUBLISHED = Preset(
    {**_COMMON, **_SERVER_START, **_NO_PAIRS, _TUNED: {"s": 5.4e-4, "alpha": 1.02, "beta": 0.0}},
    our_variant="for purchases instead of ratings and over sums of clients, as DFMR's slides compare with it; "
    + _ORDER,
)
LIGHTFR_AS_PUBLISHED = Preset(
    {
        **_COMMON,
        **_NO_PAIRS,
        "drawn codes": {"start": "own", "start_sweeps": 0},
        "no balance term": {"alpha": 0.0, "beta": 0.0},
        "open; best of DCF on JD with drawn codes": {"s": 1.5e-4},
    },
    our_variant="codes for purchases, in the manner of LightFR: the published model learns codes from ratings",
)
