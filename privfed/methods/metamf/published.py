"""MetaMF as released."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, model": {"dim": 32, "rank": 8, "user_dim": 32, "memory": 128, "hidden": 512},
        "released code, training": {
            "server_optimiser": "adam",
            "server_lr": 1e-4,
            "weight_decay": 1e-3,
            "gradient_clip": 5.0,
        },
        "GPFedRec paper, appendix D": {"negatives": 4},
    },
    our_variant="for implicit feedback with sampled negatives, as GPFedRec compares with it: the published model fits "
    "ratings; the server steps once a round along the mean over users, where the released code, which trains in one "
    "place, steps after every 64 ratings of anybody",
    upload_norms={"upload": 0.437, "upload_l1": 2.57},
)
