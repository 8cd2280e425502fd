"""DPALS as far as its released notebook states it, for MovieLens-20M at epsilon 5 with adaptive weights."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released notebook (MovieLens-20M, epsilon 5, weights popularity^-1/4)": {
            "passes": 4,
            "unobserved": 0.3,
            "balance": 0.25,
        },
        "paper, algorithm 1: a Gram matrix of every item's users; half of a pass": {"item_gram_share": 0.5},
        "open in these units; tuned on MovieLens-1M": {
            "dim": 32,
            "popularity_share": 0.1,
            "gram_share": 0.05,
            "user_regularisation": 0.01,
            "item_regularisation": 0.02,
        },
        "bound of this implementation": {"head": None, "largest_head": 2048},
    },
    our_variant="vectors of users are unit vectors and a user's weights have norm 1, where the published algorithm "
    "clips vectors and samples a user's items; sums are shrunk by what noise adds",
)
