"""RecVAE as its released code trains it on MovieLens-20M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, defaults": {
            "hidden": 600,
            "latent": 200,
            "batch_size": 500,
            "lr": 5e-4,
            "encoder_epochs": 3,
            "decoder_epochs": 1,
            "weight_decay": 0.0,
        },
        "released code, default of its first version": {"gamma": 0.005},
        "released code, its model": {"depth": 5, "dropout": 0.5, "mixture": [0.15, 0.75, 0.1]},
        "one round is one of its epochs": {"epochs": 1},
    }
)
