"""FAIR as published: its released code for Goodreads-100, which has what the paper's tables leave out."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "paper, appendix B (Goodreads-100)": {"epochs": 5, "batch_size": 512},
        "paper, section 6.1": {"task": "ranking", "variant": "fair"},
        "paper, tables 2 and 3: one of its schemes": {"scheme": "1x-4x"},
        "paper, algorithm 1: parameters are averaged": {"proximal": 1.0},
        "released code, README": {"dim": 8, "lr": 1e-3},
        "released code": {
            "hidden": [8],
            "initial_scale": 0.01,
            "shuffle": False,
            "weights": "samples",
            "shares": "realised",
            "subspace": "signed",
            "mlp_seed": 2023,
            "gmf_seed": 6070,
            "hashes": 1,
            "reduce_offset": 1e-3,
            "scoring": "server",
            "rank": "released",
        },
        "released code: ids descend by activity, and capacities follow ids": {"assigned": "activity"},
        "released code: everything is recovered to one table": {"placement": "server", "min_tier": None},
        "no effect with these settings": {
            "budgets": None,
            "interactions": 0,
            "capacity_seed": 0,
            "short": "demote",
            "rating_offset": 0.0,
        },
    },
    our_variant="a user's rows stay on the user's device, where the released code sends and averages everybody's; "
    "its L2 penalty of 1e-6, of which one table is counted three times, is left out",
    upload_norms={"upload": 65.3, "upload_l1": 1760.0},
)
