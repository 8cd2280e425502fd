"""PFedRec as released for MovieLens-100K."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "GPFedRec paper, appendix D; released code": {"dim": 32, "negatives": 4, "batch_size": 256},
        "released code": {"lr": 0.1, "item_lr_factor": 80.0, "initial_scale": 1.0},
    },
    upload_norms={"upload": 365.0, "upload_l1": 28900.0},
)
