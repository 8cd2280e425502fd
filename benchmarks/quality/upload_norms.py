"""Median norms of first uploads, from which clip norms follow where none was chosen by quality.

    python -m benchmarks.quality.upload_norms --data ml-100k
    python -m benchmarks.quality.upload_norms --only fedrap colr

Every user's first training from the public start, with its own seed and nothing clipped; norms are taken over all that
a user would upload. Methods are those with default clip norms by this rule (`half_of_median`), and their presets. One
process, one thread, ten minutes; results go to `benchmarks/results/upload_norms.json`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from benchmarks import harness
from privfed.contracts import half_of_median
from privfed.data import Split, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.methods import method, methods
from privfed.setup.config import ExperimentConfig, TapConfig

_USERS_AT_ONCE = 64


def by_rule(name: str) -> dict[str, float]:
    """Clip norms of a method that are half of a median, by what they bound."""
    return {
        one.clipped: one.norm for one in method(name).clip_norms if one in half_of_median(**{one.clipped: one.norm})
    }


def measured() -> list[str]:
    """Methods with clip norms by rule, and their presets."""
    ruled = [name for name in methods() if by_rule(name)]
    return [*ruled, *(f"{name}:{preset}" for name in ruled for preset in method(name).presets)]


def uploads(name: str, parts: Split, data: str) -> Float64[Tensor, "users norms"]:
    """L2 and L1 norm of every user's first upload."""
    config = ExperimentConfig(data=data, split=parts.spec, method={"name": name}, taps=TapConfig(places=()))
    experiment = Experiment(config, parts)
    norms = []
    for first in range(0, experiment.n_users, _USERS_AT_ONCE):
        users = torch.arange(first, min(first + _USERS_AT_ONCE, experiment.n_users))
        _, updates = experiment.rehearse(users, 0, experiment.server.schema)
        if updates is None:
            raise ValueError(f"{name} uploads nothing in its first round, so that its uploads have no norm")
        rows = updates.materialise(torch.arange(len(users))).values()
        flat = torch.cat([row.flatten(1) for row in rows], dim=1).double()
        norms.append(torch.stack([flat.norm(dim=1), flat.abs().sum(1)], dim=1))
    return torch.cat(norms)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every method whose clip norms are a rule."""
    parser = harness.parser(__file__, __doc__, data="ml-100k", only=[])
    options = harness.parse(parser, arguments)
    record = harness.Record("upload_norms", options, [])
    parts = split(load(options.data), SplitSpec())
    for name in (name for name in measured() if harness.chosen(name, options.only)):
        if not record.has(method=name, data=options.data):
            upload, upload_l1 = uploads(name, parts, options.data).median(dim=0).values.tolist()
            medians = {"upload": float(f"{upload:.3g}"), "upload_l1": float(f"{upload_l1:.3g}")}
            record.add({"method": name, "data": options.data} | medians)


if __name__ == "__main__":
    main()
