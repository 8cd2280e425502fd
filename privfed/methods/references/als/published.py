"""eALS and VALS with the defaults of their released code."""

from pydantic import JsonValue

from privfed.methods.preset import Preset

_COMMON: dict[str, JsonValue] = {"dim": 64, "c0": 10.0, "reg": 0.01, "initial_scale": 0.01}

EALS_AS_PUBLISHED = Preset(
    {"released code, defaults": _COMMON | {"exponent": 0.75}},
    our_variant="users and items are solved for exactly, where the published algorithm goes coordinate by coordinate",
)
VALS_AS_PUBLISHED = Preset(
    {
        "released code, defaults": _COMMON,
        "released code, README: all missing purchases and all pairs weigh the same": {
            "exponent": 0.0,
            "pairs_exponent": 0.0,
        },
        "paper, its title: views": {"examinations": ["view"]},
        "open in the released code, which takes it as an argument; best on the validation part of JD in our search": {
            "pairs_c0": 0.03,
            "gamma1": 0.35,
            "gamma2": 0.5,
        },
        "not in the paper": {"examined_weight": 0.0, "examined_target": 0.5},
    },
    our_variant="users and items are solved for exactly, where the published algorithm goes coordinate by coordinate",
)
