"""Clip norms behind central noise at epsilon 8: a grid, the method's default, and `auto`, on the validation part.

    python -m benchmarks.quality.clip_norms --data ml-100k ml-1m --methods fedmf fedvae feddae
    python -m benchmarks.quality.clip_norms --data ml-100k ml-1m --again --seed 1

Every row is one training whose noise is sized by `epsilon = 8` for that run; the grid is the method's default times
`GRID`, and the default is in it. `auto` begins with the default and follows the median norm. GPFedRec's server reads
single uploads, so its grid stands behind `local-gaussian`, where no trusted server could count norms: no `auto`.
A tenth of every user's items are for validation; the test part is never looked at. The best of a grid is a maximum of
noisy rows: `--again` trains what was best with `--seed 0`, the default and `auto` with another seed, and the table
compares those. Data sets are found by name, or in the folder that PRIVFED_DATA names. Results go to
`benchmarks/results/clip_norms.json`. One process, one thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import harness
from privfed.data import Split, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

EPSILON, K = 8.0, 20
GRID = (1 / 10, 1 / 3, 1.0, 3.0, 10.0)
AUTO, POPULARITY = "auto", "popularity"


def plans(name: str) -> dict[str, PrivacyPlan]:
    """Plans to compare for a method, by what is said of their clip norm; the grid to two digits."""
    if name == POPULARITY:
        return {"none": PrivacyPlan.named("none")}
    single = method(name).traits.release == "individual"
    words = "local-gaussian" if single else "central-gaussian"
    default = default_clip(name)
    norms: list[float | str] = [float(f"{default * factor:.2g}") for factor in GRID]
    chosen = norms if single else [*norms, AUTO]
    return {str(norm): PrivacyPlan.named(words, clip_norm=norm, epsilon=EPSILON) for norm in chosen}


def default_clip(name: str) -> float:
    """The clip norm that a method declares for whole uploads."""
    return next(one.norm for one in method(name).clip_norms if one.clipped == "upload")


def measured(name: str, plan: PrivacyPlan, parts: Split, data: str, rounds: int, seed: int) -> dict[str, Any]:
    """NDCG on the validation part after the last round, and what the run was."""
    config = ExperimentConfig(
        data=data, split=parts.spec, method={"name": name}, privacy=plan, rounds=rounds, evaluate_every=rounds,
        seed=seed, taps=TapConfig(places=()),
    )  # fmt: skip
    result = Experiment(config, parts).run(parts=("valid",))
    return {
        "ndcg": result.history[-1].results["valid"].metric("ndcg", K).value,
        "epsilon": result.guarantee.epsilon,
        "clipped": result.clipped_fraction,
        "cpu_s": round(result.cpu_seconds, 1),
    }


def best(rows: Sequence[Mapping[str, Any]], data: str, name: str) -> str:
    """The clip norm of the grid that was best with the first seed."""
    own = [row for row in rows if (row["data"], row["method"], row["seed"]) == (data, name, 0)]
    return str(max((row for row in own if row["clip_norm"] != AUTO), key=lambda row: row["ndcg"])["clip_norm"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every method on every data set, row by row; what a file holds already is kept."""
    data = {"nargs": "+", "default": ["ml-100k"], "help": "data sets by name (default: %(default)s)"}
    parser = harness.parser(__file__, __doc__, data=data, rounds=20, seed=0)
    parser.add_argument("--methods", nargs="+", default=["fedmf", "fedvae", "feddae"], help="default: %(default)s")
    parser.add_argument("--again", action="store_true", help="only what was best with seed 0, the default and auto")
    options = harness.parse(parser, arguments)
    record = harness.Record("clip_norms", options, [])
    for name in options.data:
        parts = split(load(name), SplitSpec(kind="ratio"))
        for one in options.methods if options.again else (POPULARITY, *options.methods):
            wanted = plans(one)
            if options.again:
                kept = {best(record.results, name, one), str(default_clip(one)), AUTO}
                wanted = {clip_norm: plan for clip_norm, plan in wanted.items() if clip_norm in kept}
            for clip_norm, plan in wanted.items():
                row = {"data": name, "method": one, "clip_norm": clip_norm, "rounds": options.rounds}
                if not record.has(**row, seed=options.seed):
                    found = measured(one, plan, parts, name, 1 if one == POPULARITY else options.rounds, options.seed)
                    record.add(row | {"seed": options.seed} | found)


if __name__ == "__main__":
    main()
