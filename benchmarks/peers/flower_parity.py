"""The same experiment and seed in one process and on Flower: are the public tensors and the ledgers equal to the bit?

    python -m benchmarks.peers.flower_parity --methods private-gram feddae hetefedrec fair dfmr gpfedrec

A SuperLink and three nodes on this machine, over TLS, with node authentication, secure sums and, where the plan has it,
the nodes' own shares of noise; the other side is the simulation (`Experiment.run`). Keys of users follow from the seed,
which is what a comparison needs and what a deployment must not do. The data set is synthetic-small. GPFedRec sends
every user's own upload, in the clear but with its own Laplace noise, so floating-point numbers are added and closeness
is all that can be asked of it; the largest difference stands next to the answer.

Results go to `benchmarks/results/flower_parity.json` after every method.
"""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch

from benchmarks import harness
from privfed.data import load, split
from privfed.engines.flower.server import FederationConfig
from privfed.engines.flower.trial import Trial, TrialError, share_out
from privfed.engines.nodes.federation_file import HELPER
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

APP = harness.ROOT / "examples" / "flower"
NAMES = ("alpha", "beta", "gamma")
POLICY = """[policy]
allow_simulation = true
mechanisms = ["secure_sum", "distributed_gaussian", "local_laplace"]
own_noise_suffices = false
"""
SECURE = "secure-sum:clip_norm=1.0"
SHARES = "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=80"
TWO_SERVERS = ", two servers"
"""Ending of the cases whose sums are made between two servers; the others are made under masks."""
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "private-gram": (SHARES, {"head": 32, "min_items": 0}, False),
    "private-gram" + TWO_SERVERS: (SHARES, {"head": 32, "min_items": 0}, False),
    "feddae": (SECURE, {}, False),
    "hetefedrec": (SHARES, {}, False),
    "fair": (SECURE, {}, False),
    "dfmr": ("secure-sum:clip_norm=1.0,bits=64", {"d": 2}, True),
    "popularity": (SHARES, {}, False),
    "gpfedrec": ("local-laplace:epsilon0=5,clip_norm=1", {}, False),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare method by method, over the same nodes."""
    parser = harness.parser(__file__, __doc__, rounds=1)
    parser.add_argument("--methods", nargs="+", default=list(CASES), choices=list(CASES), help="default: all")
    options = harness.parse(parser, arguments)
    record = harness.Record("flower_parity", options, {})
    groups = {(CASES[name][2], name.endswith(TWO_SERVERS)) for name in options.methods}
    for public, helper in sorted(groups):
        methods = [name for name in options.methods if (CASES[name][2], name.endswith(TWO_SERVERS)) == (public, helper)]
        with tempfile.TemporaryDirectory() as folder:
            compare(methods, options.rounds, Path(folder), record, public=public, helper=helper)


def compare(
    methods: list[str], rounds: int, folder: Path, record: harness.Record, *, public: bool, helper: bool
) -> None:
    """Some methods, whose nodes know the same and whose sums are made in one way."""
    parts = split(load("synthetic-small"), ExperimentConfig().split)
    share_out(parts, POLICY, folder / "nodes", NAMES, public=public, helper=helper)
    names = (*NAMES, HELPER) if helper else NAMES
    with Trial(folder / "trial", names) as trial:
        for name in names:
            trial.start_node(name, folder / "nodes" / name)
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes()
        trial.wait_for_nodes()
        for name in methods:
            plan, settings, _ = CASES[name]
            config = ExperimentConfig(
                data="synthetic-small",
                method={"name": name.removesuffix(TWO_SERVERS), **settings},
                privacy=PrivacyPlan.parse(plan),
                protocol=Protocol(state="received"),
                rounds=rounds,
                taps=TapConfig(places=()),
                fidelity="two-servers" if helper else "exact",
            )
            place = folder / name
            federation = FederationConfig(
                experiment=config, data=folder / "nodes" / "server", folder=place / "flower", seeded=True
            )
            (place / "simulation").mkdir(parents=True)
            Experiment(config, parts).run(place / "simulation", parts=())
            (place / "federation.json").write_text(json.dumps({"federation": federation.model_dump(mode="json")}))
            started = time.monotonic()
            trial.start_run("run", APP, place / "federation.json")
            if trial.wait("run", 7200):
                raise TrialError(trial.log("run").read_text())
            wall = time.monotonic() - started
            spent = {"wall_seconds": round(wall), "load": round(os.getloadavg()[0], 1)}
            record.put({"plan": plan, "rounds": rounds, **equal(place), **spent}, name)


def equal(place: Path) -> dict[str, Any]:
    """Whether public tensors and ledgers of both are the same."""
    ours, theirs = (
        safetensors.torch.load_file(place / side / "checkpoint" / "server.safetensors")
        for side in ("flower", "simulation")
    )
    same = ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    apart = [(ours[name].double() - theirs[name].double()).abs().max().item() for name in ours if ours[name].numel()]
    size = max(values.double().abs().max().item() for values in theirs.values() if values.numel())
    ledgers = [(place / side / "ledger.jsonl").read_text() for side in ("flower", "simulation")]
    result = json.loads((place / "flower" / "result.json").read_text())
    return {
        "tensors_equal": same,
        "largest_difference": max(apart),
        "largest_number": size,
        "ledgers_equal": ledgers[0] == ledgers[1],
        "numbers": sum(values.numel() for values in ours.values()),
        "epsilon": result["guarantee"]["epsilon"],
        "aborted_rounds": result["aborted_rounds"],
        "exchanges": result["exchanges"],
        "stages": sorted(result["seconds"]),
        "bytes_per_node": round((result["up_bytes"] + result["down_bytes"]) / len(NAMES)),
    }


if __name__ == "__main__":
    main()
