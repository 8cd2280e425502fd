"""CentDAE as the paper of FedDAE compares with it; its code is not released."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "FedDAE paper, experimental setting": {"latent": 256, "beta_cap": 1.0},
        "FedDAE's released code, whose encoders and decoder it shares": {
            "hidden": [768, 512],
            "dropout": 0.5,
            "initialisation": "torch",
        },
        "FedDAE's released code, README": {"lr": 1e-3, "weight_decay": 1e-5},
        "open in the paper; that of Mult-VAE": {"batch_size": 500},
        "open in the paper; 100 epochs of MovieLens-100K": {"anneal_steps": 200},
        "one round is one epoch": {"epochs": 1},
    },
    our_variant="the paper says only that it is a central version of FedDAE: here all users share both encoders and "
    "the gate",
)
