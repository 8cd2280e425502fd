"""What single uploads and sums of unequal clients give away: HeteFedRec and FAIR on MovieLens-100K.

    python -m benchmarks.privacy.unequal_attacks --seeds 1

40 rounds of 64 clients, drawn afresh by the server; 100 audited users, four rounds looked at. For every place of the
adversary, the strongest attack of those in `attacks` in one round and over the four: AUC of training items against
items never seen, all items of the catalogue, mean over users, with a 95 % interval; popularity is the baseline. `raw`
is the update before anything is done to it, `wire` the single upload, `sum` the released sum of a round with the user
in it, and where blocks or tiers are summed by themselves, each of those sums. Nothing is noised, so every epsilon is
infinite. Results go to `benchmarks/results/unequal_attacks.json`. One process, one thread.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from privfed.audit.attack_runs.attack_run import attack_trained
from privfed.audit.report.records import AttackRow
from privfed.data import SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, ROUNDS, LOOKED_AT, GAME = "ml-100k", 40, (9, 19, 29, 39), "trained vs never seen"
COHORT = {"kind": "fixed", "size": 64}
PUBLISHED = method_settings("hetefedrec:published")
IN_TIERS = {"name": "fair", "placement": "tier"}
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
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
    """The strongest real attack of every place, in one round and over all, and popularity as the baseline."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, tap and attack every variant."""
    parser = harness.parser(__file__, __doc__, seeds=1, only=[])
    options = harness.parse(parser, arguments)
    parts = split(load(DATA), SplitSpec())
    record = harness.Record("unequal_attacks", options, [])
    for variant, (method, plan) in VARIANTS.items():
        for seed in range(options.seeds):
            if record.has(variant=variant, seed=seed) or not harness.chosen(variant, options.only):
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
            record.add({"variant": variant, "seed": seed, "plan": words, "rows": rows})


if __name__ == "__main__":
    main()
