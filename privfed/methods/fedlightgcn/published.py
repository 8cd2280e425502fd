"""Federated LightGCN as the paper of GPFedRec compares with it; its code is not released."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix A: LightGCN on the first-order graph of each client": {"propagation": "star"},
        "GPFedRec paper, appendix D": {"dim": 32, "negatives": 4, "batch_size": 256, "lr": 0.1},
        "open in the paper; as in GPFedRec's released code for its own vectors": {
            "user_lr_factor": 80.0,
            "item_lr_factor": 80.0,
            "initial_scale": 1.0,
        },
    },
    our_variant="one layer, as HeteFedRec has it on the same graphs: the paper names no number, and on a star a second "
    "layer gives nothing but more of the user to the user",
    upload_norms={"upload": 19800.0, "upload_l1": 207000.0},
)
