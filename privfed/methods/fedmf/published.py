"""FedMF as the paper of GPFedRec compares with it."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix D": {"dim": 32, "negatives": 4, "batch_size": 256, "lr": 0.1},
        "open in the paper; best validation HR@10 on MovieLens-100K in our search": {
            "user_lr_factor": 20.0,
            "item_lr_factor": 10.0,
            "initial_scale": 0.1,
        },
    },
    our_variant="for implicit feedback with sampled negatives, as GPFedRec compares with it: the published model fits "
    "ratings, and its homomorphic encryption is a way to sum",
    upload_norms={"upload": 55.0, "upload_l1": 3980.0},
)
