"""SGL-ED with the settings of its released code for Yelp2018."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, README (Yelp2018)": {
            "dim": 64,
            "layers": 3,
            "regularisation": 1e-4,
            "contrast": 0.1,
            "dropout": 0.1,
            "temperature": 0.2,
        },
        "paper, section 4.1.3": {"lr": 1e-3, "batch_size": 2048},
        "paper, eq. 4": {"loss": "bpr", "negatives": 1},
        "released code starts by Xavier's rule, which is this for the users of Yelp2018": {"initial_scale": 0.008},
        "not in the paper": {"weight_decay": 0.0},
        "one round is one of its epochs": {"epochs": 1},
    }
)
