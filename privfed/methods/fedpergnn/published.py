"""FedPerGNN as released; GPFedRec ran this code for its table."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, settings": {
            "dim": 64,
            "max_history": 100,
            "pseudo_items": 1000,
            "gradient_clip": 0.1,
            "server_lr": 0.01,
            "user_lr": 0.01,
        },
        "released code, model": {"predictor": "additive", "activation": "sigmoid", "server_optimiser": "sgd"},
        "released code, the variance of its uniform start": {"initial_scale": 0.029},
        "GPFedRec paper, appendix D": {"negatives": 4},
    },
    our_variant="graphs are not expanded by neighbours: a third party would match everybody's items under a key that "
    "all devices know, so that any device opens with it what all others like, and the released code attaches the "
    "neighbours of one item of each user only; labels are implicit, with sampled negatives, and nothing is dropped "
    "out; its Laplace noise of scale 0.2 is a plan, published-noise:scale=0.2,coordinates=touched",
    upload_norms={"upload": 0.1, "upload_l1": 6.12},
)
