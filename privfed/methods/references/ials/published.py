"""iALS as Rendle et al. set it for MovieLens-20M."""

from privfed.methods.preset import Preset

AS_PUBLISHED = Preset(
    {
        "released code of Rendle et al., README (MovieLens-20M)": {
            "dim": 256,
            "unobserved": 0.1,
            "regularisation": 0.003,
            "exponent": 1.0,
            "initial_scale": 0.1,
        }
    }
)
