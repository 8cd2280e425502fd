"""A trained model as one file, with a model card beside it: only what every device downloads leaves."""

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from privfed.api import printing
from privfed.api.errors import UseError
from privfed.compute.devices import all_on_host
from privfed.engines.tensor_file import write_tensors
from privfed.experiment.folder import write_text
from privfed.methods.registry import method, methods

if TYPE_CHECKING:
    from privfed.api.result import TrainedRun

NOT_FOR = (
    "Do not use it to judge single people, and do not read its lists as what anybody did.",
    "Do not train on the same people again without adding up both guarantees.",
    "Its guarantee does not cover what a device shows its own user, nor numbers of quality: measuring them looked at "
    "held-out data outside the guarantee.",
)


def export(run: "TrainedRun", file: Path) -> Path:
    """Write the public model and its card; gives the card.

    Raises:
        UseError: the format is not known or cannot hold the model, or a file is there already.
    """
    if file.suffix not in _WRITERS:
        raise UseError(f"{file.name} has no known format: end the name in {' or '.join(_WRITERS)}")
    card = file.with_suffix(".md")
    if there := [path for path in (file, card) if path.exists()]:
        raise UseError(f"{there[0]} is there already: choose another name")
    if not file.parent.is_dir():
        raise UseError(f"there is no folder {file.parent} to write {file.name} to: make it, or choose another")
    tensors = all_on_host(run.experiment.server.public().shared)
    held = _WRITERS[file.suffix](run, tensors, file)
    write_text(card, _card(run, file, held))
    return card


def _safetensors(run: "TrainedRun", tensors: Mapping[str, Tensor], file: Path) -> str:
    """Every public tensor, and in the metadata the item ids in the order of item numbers."""
    write_tensors(file, tensors, _about(run))
    shapes = ", ".join(f"`{name}` {list(value.shape)}" for name, value in tensors.items())
    return f"Tensors: {shapes}. The metadata hold the item ids in the order of item numbers."


def _about(run: "TrainedRun") -> dict[str, str]:
    """Metadata of a file: what it is, its guarantee, and the item ids in the order of item numbers."""
    ids = json.dumps([str(item) for item in run.data.item_ids], ensure_ascii=False)
    return {"method": run.method, "items": ids, "rounds": str(run.rounds), "epsilon": str(run.guarantee.epsilon)}


def _csv(run: "TrainedRun", tensors: Mapping[str, Tensor], file: Path) -> str:
    """A line for each item: id, title, and the public numbers that belong to it."""
    by_item = {
        name: value for name, value in tensors.items() if value.ndim in (1, 2) and len(value) == run.data.n_items
    }
    if not by_item:
        raise UseError(
            f"{file.name} cannot be written: no public tensor of {run.method} has a row for each item; export "
            f".safetensors"
        )
    info = run.data.item_info
    columns = {"item": run.data.item_ids.to_numpy()}
    if info is not None and info["title"].notna().any():
        columns["title"] = info["title"].to_numpy()
    for name, value in by_item.items():
        rows = value.reshape(len(value), -1).numpy()
        columns |= {name if rows.shape[1] == 1 else f"{name}_{n}": rows[:, n] for n in range(rows.shape[1])}
    pd.DataFrame(columns).to_csv(file, index=False, lineterminator="\n")
    left = [name for name in tensors if name not in by_item]
    return f"A line for each item. Not in it: {', '.join(f'`{name}`' for name in left) or 'nothing'}."


def _onnx(run: "TrainedRun", tensors: Mapping[str, Tensor], file: Path) -> str:
    """A graph from histories to scores, with the item ids in its metadata."""
    make = run.experiment.registered.history_model
    if make is None:
        able = " and ".join(name for name in methods() if method(name).history_model is not None)
        raise UseError(
            f"{file.name} cannot be written: an ONNX file scores a history alone, and {run.method} is not written so; "
            f"{able} are, and .safetensors holds every method"
        )
    try:
        onnx = import_module("onnx")
        import_module("onnxscript")
    except ImportError as missing:
        raise UseError(
            f"{file.name} cannot be written: {missing.name} is not installed; pip install 'privfed[onnx]'"
        ) from missing
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        # Of torch's exporter about torch, and about packages that no model here needs.
        warnings.simplefilter("ignore", FutureWarning)
        log.setLevel(logging.ERROR)
        made = torch.onnx.export(
            make(tensors).eval(), (torch.zeros(2, run.data.n_items),), input_names=["histories"],
            output_names=["scores"], dynamic_shapes=({0: torch.export.Dim("n")},), dynamo=True, verbose=False,
        )  # fmt: skip
    log.setLevel(level)
    if made is None:
        raise UseError(f"{file.name} cannot be written: torch made no graph of {run.method}; export .safetensors")
    graph = made.model_proto
    for key, value in _about(run).items():
        graph.metadata_props.add(key=key, value=value)
    onnx.save_model(graph, str(file))
    return (
        "A graph from `histories` [n, items], 1 where somebody has the item and 0 elsewhere, to `scores` [n, items]; "
        "leave out what somebody has already. The metadata hold the item ids in the order of item numbers."
    )


_WRITERS: dict[str, Callable[["TrainedRun", Mapping[str, Tensor], Path], str]] = {
    ".safetensors": _safetensors,
    ".onnx": _onnx,
    ".csv": _csv,
}


def _card(run: "TrainedRun", file: Path, held: str) -> str:
    """The model card."""
    method, config, claim, card = run.experiment.registered, run.config, run.guarantee, run.data.card
    settings = {key: value for key, value in config.method.items() if key != "name"}
    row = run.metrics.iloc[printing.main_metric(run.test)]
    label = f"{row['metric']}@{row['k']}" if row["k"] else str(row["metric"])
    made = "generated data: no number here is a measurement on people" if card.synthetic else "data of people"
    lines = [
        f"# {file.name}",
        "",
        f"{method.title} (`{run.method}`). Source: {method.source}.",
        "",
        "## What it holds",
        "",
        f"{held} Nothing of a single person is in it but what the released parameters say.",
        "",
        "## How it was trained",
        "",
        f"- Data: {card.name}, {card.users:,} users, {card.items:,} items, {card.interactions:,} interactions; {made}.",
        f"- Digest of the data: `{card.sha256}`.",
        *([f"- Terms of the data: {card.terms}"] if card.terms else []),
        f"- Rounds: {run.rounds}. Seed: {config.seed}. Settings: {json.dumps(settings)}.",
        f"- Split: {run.experiment.parts.describe()}",
        "",
        "## How good it is",
        "",
        f"{label} {row['value']:.4f} [{row['low']:.4f}, {row['high']:.4f}], popularity {row['popularity']:.4f}. "
        f"{config.protocol.sentence()}",
        "",
        "## What is guaranteed",
        "",
        f"Plan: {config.privacy.name}. {printing.privacy(claim)}.",
        "",
        *(f"- {statement}" for statement in claim.statements),
        *(f"- Assumed: {assumption}" for assumption in claim.assumptions),
        "",
        "## What it must not be used for",
        "",
        *(f"- {sentence}" for sentence in NOT_FOR),
        "",
    ]
    return "\n".join(lines)
