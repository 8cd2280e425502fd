"""Settings that a paper leaves open, compared on validation items, for presets `NAME:published`.

    python -m benchmarks.quality.open_settings

Every run repeats a method of GPFedRec's table 3 on MovieLens-100K as the paper evaluates it, with other values of what
neither the paper nor its released code says. Kept are HR@10 on the validation part in the best round and in the last,
with popularity beside them. One seed; nothing is tested. The preset takes the best; results go to
`benchmarks/results/open_settings.json`.
"""

import time
from collections.abc import Mapping, Sequence

from benchmarks import harness
from benchmarks.quality.paper_cells import POPULARITY, Cell, gpfedrec
from benchmarks.quality.paper_runs import Run, config_of
from privfed.data import Split, load, split
from privfed.evaluation import RoundEvaluation
from privfed.experiment import Experiment

Values = Mapping[str, float]

TRIED: Mapping[str, Sequence[Values]] = {
    POPULARITY: [{}],
    "FedLightGCN": [
        {"user_lr_factor": factor, "item_lr_factor": factor, "initial_scale": scale}
        for factor, scale in ((80.0, 1.0), (8.0, 0.1), (3.0, 0.1), (1.0, 0.1), (1.0, 1.0), (0.3, 0.1))
    ],
}
"""Row -> values; the first of Fed-LightGCN are those of GPFedRec's own vectors."""


def cell_of(row: str) -> Cell:
    """The row on MovieLens-100K."""
    return next(
        cell
        for cell in gpfedrec()
        if (cell.result, cell.data.here, cell.by, cell.row) == ("table-3", "ml-100k", "published", row)
    )


def measured(cell: Cell, values: Values, parts: Split) -> dict[str, float]:
    """Validation HR@10 of one run."""
    config, found = config_of(Run(cell, 0)), list[float]()

    def keep(t: int, evaluated: RoundEvaluation | None) -> None:
        del t
        if evaluated is not None:
            found.append(evaluated.results["valid"].metric("hr", 10).value)

    started = time.process_time()
    chosen = config.model_copy(update={"method": config.method | dict(values)})
    Experiment(chosen, parts).run(parts=("valid",), progress=keep)
    return {"best hr@10": max(found), "last hr@10": found[-1], "cpu_s": time.process_time() - started}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing."""
    parser = harness.parser(__file__, __doc__, only=None)
    options = harness.parse(parser, arguments)
    record = harness.Record("open_settings", options, [])
    for row, tried in TRIED.items():
        cell = cell_of(row)
        parts = split(load(cell.data.here), cell.data.split)
        for values in tried:
            key = {"row": row, **values}
            if harness.chosen(row, options.only) and not record.has(**key):
                record.add(key | measured(cell, values, parts))


if __name__ == "__main__":
    main()
