"""GPFedRec as published: the paper's best on MovieLens-100K, and the released code where the paper is silent."""

from pydantic import JsonValue

from privfed.methods.preset import Preset

_CODE = "released code"
_LOCAL: dict[str, JsonValue] = {"hidden": [32, 16, 8], "lr": 0.1, "eta": 80.0, "initial_scale": 1.0}
_GRAPH: dict[str, JsonValue] = {
    "score_function": "perceptron",
    "start": "neighbours",
    "min_neighbours": 0,
    "max_neighbours": None,
    "sketch": None,
    "precision": "float32",
    "refresh_every": 1,
}
_APPENDIX: dict[str, JsonValue] = {"dim": 32, "negatives": 4, "batch_size": 256}

AS_PUBLISHED = Preset(
    {
        "paper, appendix D": _APPENDIX,
        "paper, figure 3 (best on MovieLens-100K)": {"gamma": 0.5},
        "paper, figure 4 (best on MovieLens-100K)": {"reg": 0.5},
        "released code; eq. 3 says similarity, of which gamma = 0.5 keeps everybody": {"graph": "distance"},
        _CODE: _LOCAL | _GRAPH,
        "no effect without max_neighbours": {"thinning": "random"},
        "no effect on this graph": {"density": 0.5},
        "no effect on this score function": {"recon_lr": 2.0, "recon_epochs": 10},
    },
    upload_norms={"upload": 30.7, "upload_l1": 2310.0},
)
AS_RELEASED = Preset(
    {
        "paper, appendix D": _APPENDIX,
        "released code, defaults": {"gamma": 1.0, "reg": 1.0, "graph": "distance"},
        _CODE: _LOCAL | _GRAPH,
        "no effect without max_neighbours": {"thinning": "random"},
        "no effect on this graph": {"density": 0.5},
        "no effect on this score function": {"recon_lr": 2.0, "recon_epochs": 10},
    },
    upload_norms={"upload": 28.3, "upload_l1": 1970.0},
)
