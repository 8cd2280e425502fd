"""CoLR as released for MovieLens-1M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, defaults": {"dim": 64, "rank": 4, "negatives": 4, "batch_size": 256, "epochs": 2, "lr": 0.01},
        "released code, where user vectors take the base rate": {"user_lr_factor": 1.0},
        "released code: variance 1 / dim": {"initial_scale": 0.125},
        "open, because the released code divides each item's sum by how many clients touched it; FedMF's here": {
            "item_lr_factor": 10.0
        },
    },
    our_variant="means divide by the cohort and not by how many clients touched an item, counts that the released code "
    "encrypts and every plan with a guarantee refuses; a gradient is not divided by how often an item is in a batch",
    upload_norms={"upload": 4.43, "upload_l1": 105.0},
)
