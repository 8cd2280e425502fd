"""EASE as its paper has it for MovieLens-20M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "paper, section 4 (MovieLens-20M)": {"regularisation": 500.0},
        "paper, algorithm 1: all items": {"max_items": None},
        "not in the paper": {"tag_weight": 0.0},
    }
)
