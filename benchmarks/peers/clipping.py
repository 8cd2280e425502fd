"""Per-client clipping of a one-layer autoencoder next to Opacus and torch.func, as `vae.py` measures it.

    python -m benchmarks.peers.clipping

prints one line of JSON: median CPU-seconds of a pass over 256 clients, each way.
"""

import json
import warnings
from collections.abc import Sequence

from benchmarks import harness
from benchmarks.peers.vae import CLIPPING, clipping


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the three ways in turn."""
    options = harness.parse(harness.parser(__file__, __doc__, repeats=25), arguments)
    warnings.simplefilter("ignore")
    rows = dict(zip(("privfed", "opacus", "torch.func"), clipping("ml-100k", options.repeats), strict=True))
    row = {f"{name}, cpu_s": found["cpu_s_median"] for name, found in rows.items()}
    row |= {f"{name}, times": found["times_low_rank"] for name, found in rows.items()}
    print(json.dumps(row | {"ways": CLIPPING}))


if __name__ == "__main__":
    main()
