"""FedRecon as released for MovieLens-1M, as far as its settings mean something without ratings."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, defaults of the MovieLens task": {"dim": 50, "epochs": 1, "joint": False},
        "released code, command of its README for MovieLens": {
            "recon_lr": 0.1,
            "recon_epochs": 5,
            "batch_size": 5,
            "split": True,
        },
        "open for implicit feedback (the released rate of .5 is for squared errors of ratings); FedMF's here": {
            "item_lr_factor": 1.0,
            "negatives": 4,
            "initial_scale": 0.1,
        },
    },
    our_variant="for implicit feedback with sampled negatives and cross-entropy, where the paper fits ratings; the "
    "vector starts at zero and not at random, and no bound of 50 steps cuts a pass short",
    upload_norms={"upload": 940.0, "upload_l1": 65100.0},
)
