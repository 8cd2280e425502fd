"""NeuMF as its released code trains it on MovieLens-1M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, README: 8 factors, layers 64, 32, 16, 8": {"dim": 8, "mlp_dim": 32, "hidden": [32, 16, 8]},
        "released code, README": {"negatives": 4, "lr": 1e-3, "weight_decay": 0.0},
        "released code, README: 256 samples are 51 interactions with their negatives": {"batch_size": 51},
        "released code: vectors start from a normal distribution": {"initial_scale": 0.01},
        "paper, eq. 7": {"loss": "bce"},
        "one round is one of its epochs": {"epochs": 1},
    },
    our_variant="the two halves are not trained beforehand, which the README advises for few factors too, and layers "
    "start as torch's Linear does",
)
