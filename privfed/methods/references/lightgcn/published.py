"""LightGCN with the defaults of its authors' code in PyTorch, which are the paper's for Gowalla."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code in PyTorch, defaults": {"dim": 64, "layers": 3, "lr": 1e-3, "batch_size": 2048},
        "released code in PyTorch: decay of half the squared lengths": {"regularisation": 1e-4},
        "released code in PyTorch: normal start; the paper has Xavier's": {"initial_scale": 0.1},
        "paper, eq. 15": {"loss": "bpr", "negatives": 1},
        "not in the paper": {"weight_decay": 0.0},
        "one round is one of its epochs": {"epochs": 1},
    }
)
