"""Per-client clipping of a one-layer autoencoder beside Opacus and torch.func, as `vae.py` measures it.

    python benchmarks/peers_opacus.py

prints one line of JSON: median CPU-seconds of a pass over 256 clients, each way.
"""

import json
import warnings

import torch
from vae import CLIPPING, clipping


def main() -> None:
    """Measure the three ways in turn."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = dict(zip(("privfed", "opacus", "torch.func"), clipping("ml-100k"), strict=True))
    row = {f"{name}, cpu_s": found["cpu_s_median"] for name, found in rows.items()}
    row |= {f"{name}, times": found["times_low_rank"] for name, found in rows.items()}
    print(json.dumps(row | {"ways": CLIPPING}))


if __name__ == "__main__":
    main()
