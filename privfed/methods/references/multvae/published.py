"""Mult-VAE as published for MovieLens-20M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "paper, implementation details": {
            "latent": 200,
            "hidden": [600],
            "dropout": 0.5,
            "batch_size": 500,
            "beta_cap": 0.2,
        },
        "released code": {"lr": 1e-3, "anneal_steps": 200_000, "initialisation": "xavier", "weight_decay": 0.0},
    }
)
