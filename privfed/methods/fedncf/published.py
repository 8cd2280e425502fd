"""FedNCF as the paper of GPFedRec compares with it."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix D": {"dim": 32, "negatives": 4, "batch_size": 256, "lr": 0.1},
        "GPFedRec's released code, the same perceptron": {"hidden": [32, 16, 8]},
        "open in the paper; best validation HR@10 on MovieLens-100K in our search": {
            "user_lr_factor": 80.0,
            "item_lr_factor": 80.0,
            "initial_scale": 0.1,
        },
    },
    upload_norms={"upload": 33.3, "upload_l1": 2500.0},
)
