"""Federated LightGCN as the paper of GPFedRec compares with it; its code is not released."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix A: LightGCN on the first-order graph of each client": {"propagation": "star"},
        "GPFedRec paper, appendix D": {"dim": 32, "negatives": 4, "batch_size": 256, "lr": 0.1},
        # With GPFedRec's own (80 and 1) scores saturate, and most tie.
        "open in the paper; best validation HR@10 on MovieLens-100K in our search": {
            "user_lr_factor": 3.0,
            "item_lr_factor": 3.0,
            "initial_scale": 0.1,
        },
    },
    our_variant="one layer, as HeteFedRec has it on the same graphs: the paper names no number, and on a star a second "
    "layer gives nothing but more of the user to the user",
    upload_norms={"upload": 23.8, "upload_l1": 1480.0},
)
