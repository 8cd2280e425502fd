"""FedCIA as released: its graph-filter form on MovieLens-100K."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code, model of graph signal processing": {"filtered_on": "device"},
        "released code, settings for MovieLens-100K": {"low_pass": 0.3, "dim": 32},
    },
    our_variant="a client is one user, where the released one holds some ten, and sends one triangle of a symmetric "
    "matrix with one noise per pair, where the released one sends both; a single history has one singular vector, "
    "where the released code takes 32, all others arbitrary; its noise is a plan, published-noise:scale=0.001",
)
