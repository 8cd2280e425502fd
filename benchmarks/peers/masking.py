"""One client's masking next to Flower's SecAgg+: a million values, twenty neighbours, from numbers and from words.

    python -m benchmarks.peers.masking

runs where Flower is installed and prints one line of JSON. What a step holds on either side is written in
`secure_aggregation.py`, which measures far more; the contestants take turns in one process.
"""

import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks import harness
from benchmarks.peers import secure_aggregation as ours
from secure_agg.encoding import FixedPoint, Ring, Rounding

NEIGHBOURS, THRESHOLD, LENGTH = 20, 11, 1_000_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both, in turn."""
    options = harness.parse(harness.parser(__file__, __doc__, repeats=5), arguments)
    values = np.random.default_rng(0).normal(scale=0.1, size=LENGTH).astype(np.float32)
    code = FixedPoint.for_sum(Ring(32), bound=ours.CLIP, clients=NEIGHBOURS + 1, rounding=Rounding.NEAREST)
    words, flower, seat = (
        code.encode(values),
        ours.Flower(NEIGHBOURS, THRESHOLD),
        ours.Seat.take(NEIGHBOURS, THRESHOLD, LENGTH),
    )
    row: dict[str, float] = {"values": LENGTH, "neighbours": NEIGHBOURS}
    for cut, step in {
        "floats": partial(seat.masking_floats, values, code),
        "words": partial(seat.masking, words),
    }.items():
        with flower.quantised(values) if cut == "words" else contextlib.nullcontext():
            times = ours.take_turns({"ours": step, "flwr": partial(flower.masking, values)}, options.repeats)
        for name, pairs in times.items():
            row[f"{cut}, {name}, cpu_s"] = statistics.median(cpu for cpu, _ in pairs)
        row[f"{cut}, times"] = statistics.median(
            theirs[0] / mine[0] for mine, theirs in zip(times["ours"], times["flwr"], strict=True)
        )
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
