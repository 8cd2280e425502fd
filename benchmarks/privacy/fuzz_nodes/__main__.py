"""Messages of lying parties and of strangers against the handlers of nodes and of their server.

    python -m benchmarks.privacy.fuzz_nodes [--cpu-minutes 10] [--seed 0]

Honest messages are taken apart and bent (fields, addresses, arrays, messages of the masked sum, stages, moments, runs)
and signed again with the key of a party that lies; strangers bend bytes that they cannot sign. Every message is
answered or refused with a code and a sentence without paths; a refusal changes nothing and charges nothing; what leaves
is charged before; honest requests are answered afterwards, and honest runs come to what a simulation comes to. Anything
else is printed and written down with its message, and the status is 1.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

import torch

from benchmarks import harness
from benchmarks.privacy.fuzz_nodes.findings import Findings
from benchmarks.privacy.fuzz_nodes.fuzzing import NODES, SERVERS, burst, cpu_seconds

_BURST = 20.0
"""CPU-seconds of a burst, besides its set-up."""


def fuzz(seconds: float, seed: int) -> Findings:
    """Bursts against all handlers in turn, for so much processor time."""
    rng, findings = random.Random(seed), Findings()
    kinds = [*(("node", name) for name in NODES), *(("server", name) for name in SERVERS)]
    rng.shuffle(kinds)
    end, each = time.process_time() + seconds, min(_BURST, 0.8 * seconds / len(kinds))
    while time.process_time() < end:
        for handler, name in kinds:
            burst(handler, name, rng, findings, lambda: cpu_seconds(each))
            if time.process_time() >= end:
                break
    return findings


def rows(findings: Findings) -> dict[str, object]:
    """Counts by handler, and every defect with its first case."""
    by: dict[str, Counter[str]] = {}
    for (handler, name, what, outcome), times in findings.counts.items():
        last = "outcomes" if handler == "node" else "stages"
        for group, key in (("federations", name), ("mutations", what), (last, outcome)):
            by.setdefault(f"{handler}, {group}", Counter())[key] += times
    return {
        "messages": findings.messages,
        **{group: dict(counts.most_common()) for group, counts in sorted(by.items())},
        "server, rounds": dict(findings.rounds),
        "most_mib_of_a_message": round(findings.most_bytes / 2**20, 1),
        "most_cpu_seconds_of_a_message": round(findings.most_seconds, 3),
        "peak_mib": round(harness.peak_mib(), 1),
        "defects": {name: {"times": findings.times[name], "first": case} for name, case in findings.found.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for as long as the command line says."""
    parser = harness.parser(__file__, __doc__, seed=0)
    parser.add_argument("--cpu-minutes", type=float, default=10.0, help="how long to fuzz (default: %(default)s)")
    options = harness.parse(parser, arguments)
    torch.set_num_threads(options.threads)
    record = harness.Record("fuzz_nodes", options, {}, anew=True)
    started = time.process_time()
    found = rows(fuzz(60 * options.cpu_minutes, options.seed))
    record.put({**found, "cpu_seconds": round(time.process_time() - started)}, f"seed {options.seed}")
    return 1 if found["defects"] else 0


if __name__ == "__main__":
    sys.exit(main())
