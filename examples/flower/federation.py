"""Three organisations on this machine: a SuperLink behind its gateway, three nodes, TLS, and one private recommender.

    python examples/flower/federation.py                               # synthetic data, about two minutes
    python examples/flower/federation.py --data ml-100k --epsilon 4 --folder my-federation
    python examples/flower/federation.py --private-evaluation          # quality is one more noisy sum inside epsilon

Every organisation keeps a third of the users in a process of its own and sends only masked sums with its share of the
noise. Noise is sized for the whole run, backwards from epsilon, for any one user, and so that it is enough without one
of the three, which may work for the server. Keys come from the operating system; nothing here follows from a seed.

What runs is what a deployment runs (docs/guides/deploying.md); that all of it is on one machine protects nobody.
Everything that was started is stopped again, and the folder keeps logs, keys, ledgers and the trained model where
--folder names one. Given the same folder again, the same organisations, with the policies and ledgers that they have by
then, are asked for another run of the same plan (run-2, with its logs in trial-2).
"""

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from privfed.data import load, split
from privfed.engines.flower.server import FederationConfig
from privfed.engines.flower.trial import Trial, share_out
from privfed.evaluation import EvaluationSettings, Protocol, about_metrics
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.evaluation_query import final_queries

HERE = Path(__file__).parent
NAMES = ("alpha", "beta", "gamma")
FILE = "federation.json"
K, LARGEST_DELTA = 20, 5e-4  # twice this delta is what node.toml allows, as twice epsilon 4 is


def main() -> None:
    """Prepare, start, train, print, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic", help="name of a data set, or a path")
    parser.add_argument("--epsilon", type=float, default=4.0, help="of the whole run, for any one user")
    parser.add_argument("--folder", type=Path, help="new, empty, or of such a federation; else a temporary one")
    parser.add_argument("--private-evaluation", action="store_true", help="measure by a noisy sum inside epsilon")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = time.monotonic()
        again = (folder / FILE).exists()
        federation = once_more(folder) if again else prepare(options, folder)
        trial_folder = federation.folder.with_name(federation.folder.name.replace("run", "trial"))
        with Trial(trial_folder, NAMES) as trial:
            for name in NAMES:
                trial.start_node(name, folder.resolve() / "nodes" / name)
            trial.start_superlink()
            refused = trial.start_gateway()
            print(f"gateway: a stranger with its address and certificate cannot {', '.join(refused)}", flush=True)
            trial.start_supernodes()
            trial.wait_for_nodes()
            print(f"SuperLink, gateway and {len(NAMES)} nodes run after {time.monotonic() - started:.0f} s", flush=True)
            file = json.dumps(str(folder.resolve() / FILE))
            run = ("run", str(HERE), "trial", "--run-config", f"federation={file}", "--stream")
            trial.flwr(*run, timeout=3600, show=True)
        result = federation.folder / "result.json"
        if not result.exists():
            sys.exit("the run ended without a result: the lines above say why")
        report(json.loads(result.read_text()), private=federation.experiment.evaluation.private)


def once_more(folder: Path) -> FederationConfig:
    """The plan of a former run with a new folder for its run; the nodes' folders stay as they are."""
    former = FederationConfig.read(folder / FILE)
    number = next(number for number in itertools.count(2) if not (folder / f"run-{number}").exists())
    federation = former.model_copy(update={"folder": folder.resolve() / f"run-{number}"})
    write(federation, folder)
    return federation


def write(federation: FederationConfig, folder: Path) -> None:
    """Write the server's file."""
    (folder / FILE).write_text(json.dumps({"federation": federation.model_dump(mode="json")}))


def prepare(options: argparse.Namespace, folder: Path) -> FederationConfig:
    """Write the nodes' folders and the server's file; returns what the file says."""
    epsilon, private = options.epsilon, options.private_evaluation
    config = ExperimentConfig(
        data=options.data,
        method={"name": "private-gram"},
        protocol=Protocol(k=(K,), state="received"),
        rounds=1,
        evaluation=EvaluationSettings(private=private),
        taps=TapConfig(places=()),
    )
    parts = split(load(options.data), config.split)
    users = parts.train.n_users
    delta = min(users**-1.1, LARGEST_DELTA)
    central = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=delta)
    central = plan_for_target(central, epsilon, config.rounds, users)
    rehearsal = Experiment(config.model_copy(update={"privacy": central}), parts)
    plan = PrivacyPlan.named(
        "distributed-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=delta, n_min_honest=2 * users // 3
    )
    program = [query.schema for query in rehearsal.registered.training.program(rehearsal.server)]
    plan = plan_for_target(
        plan, epsilon, config.rounds, users, program=program, final=partial(final_queries, config) if private else None
    )
    share_out(parts, (HERE / "node.toml").read_text(), folder / "nodes", NAMES)
    federation = FederationConfig(
        experiment=config.model_copy(update={"privacy": plan}),
        data=folder.resolve() / "nodes" / "server",
        folder=folder.resolve() / "run",
        nodes=len(NAMES),
        parts=() if private else ("test",),
    )
    write(federation, folder)
    return federation


def report(result: Mapping[str, Any], *, private: bool) -> None:
    """Utility, guarantee and bytes."""
    for measured in result["quality"]:
        for metric in measured.get("test", {}).get("metrics", ()):
            name = f"{metric['name']}@{metric['k']}"
            print(f"utility:   {name} {metric['value']:.4f} [{metric['lo']:.4f}, {metric['hi']:.4f}]")
    for note in [*result["notices"], *([about_metrics(private=private)] if result["quality"] else [])]:
        print(f"note:      {note}")
    claim = result["guarantee"]
    print(
        f"guarantee: epsilon {claim['epsilon']:.3f} at delta {claim['delta']:.2g} for one {claim['unit']}, "
        f"{claim['trust']} trust"
    )
    up, down = (result[key] / len(result["nodes"]) / 1e6 for key in ("up_bytes", "down_bytes"))
    seconds = sum(result["seconds"].values())
    print(f"bytes:     {up:.2f} MB up and {down:.2f} MB down per node")
    print(f"exchanges: {result['exchanges']}, {seconds:.0f} s of which the nodes' training is part")
    for node, stage, reason in result["incidents"]:
        print(f"refused:   node {node} in {stage}: {reason}")


if __name__ == "__main__":
    main()
