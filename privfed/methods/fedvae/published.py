"""FedVAE as the paper of FedDAE compares with it; its code is not released."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "FedDAE paper, experimental setting": {
            "latent": 256,
            "local_steps": 10,
            "beta_cap": 1.0,
            "server_optimiser": "adam",
        },
        "FedDAE's released code, whose encoder and decoder it shares": {
            "hidden": [768, 512],
            "dropout": 0.5,
            "loss_scale": "sum",
            "initialisation": "torch",
        },
        "FedDAE's released code, README": {"server_lr": 1e-3, "server_weight_decay": 1e-5},
        "ours: the published 0.001 is a rate of Adam, and the SGD steps here diverge at it": {"local_lr": 1e-4},
        "open in the paper; spread over its 100 rounds": {"anneal_rounds": 100},
        "not in the paper": {"popularity_prior": False},
    },
    our_variant="clients take plain SGD steps, where published ones take Adam's from a fresh state: one row per client "
    "then moves a layer by a product of two vectors, from which a whole cohort is simulated at once",
    upload_norms={"upload": 0.0268, "upload_l1": 15.0},
)
