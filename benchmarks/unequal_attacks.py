"""What single uploads and sums of unequal clients give away: HeteFedRec and FAIR on MovieLens-100K.

    python benchmarks/unequal_attacks.py --seeds 1

40 rounds of 64 clients, drawn afresh by the server; 100 audited users, four rounds looked at. For every place of the
adversary, the strongest attack of those in `attacks` in one round and over the four: AUC of training items against
items never seen, all items of the catalogue, mean over users, with a 95 % interval; popularity beside. `raw` is the
update before anything is done to it, `wire` the single upload, `sum` the released sum of a round with the user in it,
and where blocks or tiers are summed by themselves, each of those sums. Nothing is noised, so every epsilon is infinite.
Results go to `benchmarks/results/unequal_attacks.json`. One process, one thread.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from privfed.audit.attack_runs.attack_run import attack_trained
from privfed.audit.report.records import AttackRow
from privfed.data import SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods.hetefedrec import HeteFedRecConfig
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, ROUNDS, LOOKED_AT, GAME = "ml-100k", 40, (9, 19, 29, 39), "trained vs never seen"
COHORT = {"kind": "fixed", "size": 64}
PUBLISHED = {"name": "hetefedrec"} | HeteFedRecConfig.published().model_dump(mode="json")
IN_TIERS = {"name": "fair", "placement": "tier"}
ARMS: dict[str, tuple[dict[str, Any], str]] = {
    "HeteFedRec, published": (PUBLISHED, "none"),
    "HeteFedRec, default": ({"name": "hetefedrec"}, "none"),
    "HeteFedRec, default, one sum": ({"name": "hetefedrec"}, "secure-sum:clip_norm=10"),
    "HeteFedRec, default, held blocks": ({"name": "hetefedrec"}, "secure-sum:clip_norm=10,blocks=held"),
    "FAIR, everybody 1x": ({"name": "fair", "variant": "fedavg"}, "none"),
    "FAIR 1x-4x": ({**IN_TIERS, "scheme": "1x-4x"}, "none"),
    "FAIR 1x-16x": ({**IN_TIERS, "scheme": "1x-16x"}, "none"),
    "FAIR, everybody 16x": ({"name": "fair", "variant": "hom", "scheme": "16x", "placement": "tier"}, "none"),
    "FAIR 1x-4x, one sum": ({"name": "fair", "scheme": "1x-4x"}, "secure-sum:clip_norm=10"),
    "FAIR 1x-4x, sums by tier": ({**IN_TIERS, "scheme": "1x-4x"}, "secure-sum:clip_norm=10,blocks=held"),
}


def found(rows: list[AttackRow]) -> list[dict[str, Any]]:
    """The strongest real attack of every place, in one round and over all, with popularity beside."""
    seen = [row for row in rows if row.game == GAME and row.tap in ("raw", "wire", "sum")]
    places = sorted({(row.tap, row.scope, len(row.rounds) > 1) for row in seen if row.scope.startswith("all items")})
    out = []
    for tap, scope, several in places:
        rivals = [row for row in seen if (row.tap, row.scope, len(row.rounds) > 1) == (tap, scope, several)]
        best = max((row for row in rivals if row.attack != "popularity"), key=lambda row: row.auc.value, default=None)
        if best is not None:
            auc = [round(float(v), 4) for v in (best.auc.value, best.auc.lo, best.auc.hi)]
            where = {"tap": tap, "scope": scope, "rounds": "several" if several else "one"}
            out.append(where | {"attack": best.attack, "auc": auc, "popularity": round(best.popularity_auc, 4)})
    return out


def main() -> None:
    """Train, tap and attack every arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="arms to run, by name")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "unequal_attacks.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = split(load(DATA), SplitSpec())
    done = json.loads(options.out.read_text()) if options.out.exists() else []
    for arm, (method, plan) in ARMS.items():
        for seed in range(options.seeds):
            if (options.only and arm not in options.only) or any((r["arm"], r["seed"]) == (arm, seed) for r in done):
                continue
            words = f"{plan}{',' if ':' in plan else ':'}sampling.kind=fixed,sampling.size={COHORT['size']}"
            config = ExperimentConfig(
                data=DATA,
                split=parts.spec,
                method=method,
                privacy=PrivacyPlan.parse(words),
                protocol=Protocol(state="received"),
                rounds=ROUNDS,
                evaluate_every=ROUNDS,
                seed=seed,
                taps=TapConfig(places=("raw", "wire", "sum"), rounds=LOOKED_AT),
            )
            experiment = Experiment(config, parts)
            result = experiment.run(parts=("test",))
            rows = found(attack_trained(experiment, result.transcript.joined, ROUNDS))
            done.append({"arm": arm, "seed": seed, "plan": words, "rows": rows})
            print(arm, seed, round(result.cpu_seconds, 1), flush=True)
            for row in rows:
                print("   ", row, flush=True)
            options.out.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
