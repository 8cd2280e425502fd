"""FedRAP as published, and as its released code computes, for MovieLens-100K."""

from pydantic import JsonValue

from privfed.methods.preset import Preset

_OURS = "bound of our implementation, which no result depends on"
_VARIANT = (
    "local passes take the samples of a round in one order, learning rates decay from pass to pass and not from step "
    "to step, and there is neither weight decay (1e-6, of whole tables, which would make every upload dense) nor an "
    "early stop of local passes"
)
_FILMS = 1682
"""Items of MovieLens-100K."""
_README: dict[str, JsonValue] = {"lr": 1e-4, "common_lr_factor": 1e3 / _FILMS, "personal_lr": 1e3, "sparsity": 1e-3}
_CODE: dict[str, JsonValue] = {
    "dim": 32,
    "distance": 0.1,
    "negatives": 4,
    "batch_size": 2048,
    "epochs": 10,
    "epoch_decay": 0.95,
    "round_decay": 0.97,
    "initial_scale": 1.0,
}

AS_PUBLISHED = Preset(
    {
        "released code, command of its README for MovieLens-100K": _README,
        "released code, defaults": _CODE,
        "paper, section 3 (curriculum)": {"schedule": "tanh", "ramp_rounds": 10.0},
        _OURS: {"personal_memory_gib": 8.0},
    },
    our_variant=_VARIANT,
    upload_norms={"upload": 44.6, "upload_l1": 3550.0},
)
AS_RELEASED = Preset(
    {
        "released code, command of its README for MovieLens-100K": _README,
        "released code, defaults": _CODE,
        "released code, whose loss takes the full weights in every round and never the scheduled ones": {
            "schedule": "constant"
        },
        "no effect with constant weights": {"ramp_rounds": 10.0},
        _OURS: {"personal_memory_gib": 8.0},
    },
    our_variant=_VARIANT,
    upload_norms={"upload": 53.9, "upload_l1": 4110.0},
)
