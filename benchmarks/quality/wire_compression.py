"""What each way to shorten uploads costs: bytes, seconds, error, quality, and what one upload still gives away.

    python -m benchmarks.quality.wire_compression [--rounds 30] [--only NAME ...] [--packing]

PFedRec and FAIR on MovieLens-100K, every user in every round, one seed. For every variant: bytes up per client and
round as counted by the engine; CPU-seconds of a round, the one evaluation included; the error that the plan states;
HR@10 and NDCG@10 of the validation part against the whole catalogue after the last round, and popularity as the
baseline; epsilon; and, where single uploads are seen, the mean AUC of the one-upload eigenvector attack
(`attacks.membership.RankOneSign`) on the last round's uploads of 100 audited users, training items against items never
seen, over all items and over the rows that moved. The test part is not read. `--packing` measures words packed and
unpacked per CPU-second instead. Results go to `benchmarks/results/wire_compression.json`, a variant or width a key. One
process, one thread; nothing is asserted.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from privfed.audit.attack_runs.attack_run import attack
from privfed.data import SplitSpec, load, split
from privfed.evaluation import HONEST
from privfed.experiment import Experiment, RunResult
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from secure_agg import Ring
from secure_agg.primitives.prg import random_uints

DATA, SEED = "ml-100k", 0
PFEDREC: dict[str, Any] = {"name": "pfedrec"}
SECURE = "secure-sum:clip_norm=600"
SHARES = "distributed-gaussian:clip_norm=300,noise_multiplier=1,n_min_honest=900"
LOCAL = "local-gaussian:clip_norm=300,noise_multiplier=1"
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "popularity": ({"name": "popularity"}, "none"),
    "clear, 32 bits": (PFEDREC, "none"),
    "clear, 8 bits": (PFEDREC, "none:upload_bits=8"),
    "clear, 4 bits": (PFEDREC, "none:upload_bits=4"),
    "clear, 2 bits": (PFEDREC, "none:upload_bits=2"),
    "secure sum, 64 bits": (PFEDREC, f"{SECURE},bits=64"),
    "secure sum, 32 bits": (PFEDREC, f"{SECURE},bits=32"),
    "secure sum, 24 bits": (PFEDREC, f"{SECURE},bits=24,rounding=stochastic"),
    "secure sum, 20 bits": (PFEDREC, f"{SECURE},bits=20,rounding=stochastic"),
    "secure sum, 16 bits": (PFEDREC, f"{SECURE},bits=16,rounding=stochastic"),
    "secure sum, 16 bits, nearest": (PFEDREC, f"{SECURE},bits=16"),
    "shares of noise, 32 bits": (PFEDREC, f"{SHARES},bits=32"),
    "shares of noise, 18 bits": (PFEDREC, f"{SHARES},bits=18"),
    "local Gaussian, 32 bits": (PFEDREC, LOCAL),
    "local Gaussian, 8 bits": (PFEDREC, f"{LOCAL},upload_bits=8"),
    "FAIR, whole tables": ({"name": "fair", "variant": "fedavg"}, "none"),
    "FAIR, hashed to 1/16": ({"name": "fair", "variant": "hom", "scheme": "16x", "placement": "tier"}, "none"),
    "FAIR, hashed to 1/16, 8 bits": (
        {"name": "fair", "variant": "hom", "scheme": "16x", "placement": "tier"},
        "none:upload_bits=8",
    ),
}
WIDTHS, WORDS = (8, 12, 16, 17, 20, 24, 31, 32, 33, 48, 64), 2_000_000


def eigenvector(experiment: Experiment, result: RunResult) -> dict[str, list[float]]:
    """AUC of the eigenvector attack on single uploads, with its interval and popularity's AUC, by scope."""
    seen = result.transcript.joined("wire")
    if not seen or experiment.item_blocks is None:
        return {}
    rows = attack(seen, "wire", experiment.parts, experiment.audited().numpy(), experiment.item_blocks)
    return {
        row.scope: [round(float(v), 4) for v in (row.auc.value, row.auc.lo, row.auc.hi, row.popularity_auc)]
        for row in rows
        if row.attack == "rank-1 sign" and row.game == "trained vs never seen" and len(row.rounds) == 1
    }


def measured(method: dict[str, Any], plan: str, rounds: int, parts: Any) -> dict[str, Any]:
    """One variant."""
    rounds = 1 if method["name"] == "popularity" else rounds
    privacy = PrivacyPlan.parse(plan)
    seen = privacy.mechanism.release == "individual" and method["name"] != "popularity"
    config = ExperimentConfig(
        data=DATA, split=parts.spec, method=method, privacy=privacy, protocol=HONEST, rounds=rounds,
        evaluate_every=rounds, seed=SEED, taps=TapConfig(places=("wire",) if seen else (), rounds=(rounds - 1,)),
    )  # fmt: skip
    experiment = Experiment(config, parts)
    result = experiment.run(parts=("valid",))
    valid = result.history[-1].results["valid"]
    masking, error = privacy.mechanism.masking, None
    if masking is not None:
        said = masking.sum_error(experiment.server.schema, experiment.n_users)
        error = {"step": said.step, "largest": said.largest, "deviation": said.deviation}
    return {
        "method": method,
        "plan": plan,
        "rounds": rounds,
        "up_bytes_per_client_round": result.costs.up_bytes / max(result.costs.client_rounds, 1),
        "cpu_seconds_per_round": round(result.cpu_seconds / rounds, 4),
        "clipped": result.clipped_fraction,
        "epsilon": result.guarantee.epsilon if math.isfinite(result.guarantee.epsilon) else "inf",
        "error_of_a_sum": error,
        "ndcg@10": _interval(valid.metric("ndcg", 10)),
        "hr@10": _interval(valid.metric("hr", 10)),
        "eigenvector": eigenvector(experiment, result),
    }


def _interval(metric: Any) -> list[float]:
    return [round(float(v), 4) for v in (metric.value, metric.lo, metric.hi)]


def packing() -> dict[str, dict[str, float]]:
    """Machine words read and written per CPU-second, the best of five, by width."""
    found = {}
    for bits in WIDTHS:
        ring = Ring(bits)
        words = ring.reduce_(random_uints(WORDS, ring.dtype, bytes(32)))
        data = ring.pack(words).tobytes()
        np.testing.assert_array_equal(ring.unpack(data, WORDS), words)
        pack = min(_seconds(lambda ring=ring, words=words: ring.pack(words).tobytes()) for _ in range(5))
        unpack = min(_seconds(lambda ring=ring, data=data: ring.unpack(data, WORDS)) for _ in range(5))
        found[str(bits)] = {
            "bytes_per_word": len(data) / WORDS,
            "pack_million_words_per_s": WORDS / pack / 1e6,
            "unpack_million_words_per_s": WORDS / max(unpack, 1e-9) / 1e6,
        }
    return found


def _seconds(call: Any) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the variants that have no result yet."""
    parser = harness.parser(__file__, __doc__, rounds=30, only=[])
    parser.add_argument("--packing", action="store_true", help="measure packing and nothing else")
    options = harness.parse(parser, arguments)
    record = harness.Record("wire_compression", options, {"variants": {}})
    if options.packing:
        record.put(packing(), "packing")
        return
    parts = split(load(DATA), SplitSpec())
    for name, (method, plan) in VARIANTS.items():
        if name not in record.results["variants"] and harness.chosen(name, options.only):
            record.put(measured(method, plan, options.rounds, parts), "variants", name)


if __name__ == "__main__":
    main()
