"""A trained run as a tree of files from which a device recommends by itself, and reads what is guaranteed.

    latest.json                          {"format": 1, "version": VERSION}
    models/VERSION/manifest.json         method, arrays and files, with the SHA-256 of each
    models/VERSION/<array>.bin           one public tensor: little-endian float32, float64 or int32, row by row
    models/VERSION/items.json            ids and titles, in the order of item numbers
    models/VERSION/guarantee.json        the guarantee, word for word
    models/VERSION/card.json             what it was made of and what it must not be used for
    dossiers/DIGEST/...                  the run's dossier, where one is given; latest.json then names DIGEST, too

VERSION is the SHA-256 of the manifest, so whoever knows it can check all files, and none of them ever changes. All that
is in them is public beforehand or covered by the guarantee. No count of the data, no digest of them, no number of
quality and no seed is.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from privfed import __version__
from privfed.api.errors import UseError
from privfed.api.exporting import NOT_FOR
from privfed.api.published_dossier import dossier_files
from privfed.api.recommending import codes_of, described, ranked, why_not_from_history
from privfed.compute.devices import all_on_host
from privfed.methods import method
from privfed.privacy import Guarantee

if TYPE_CHECKING:
    from privfed.api.result import TrainedRun
    from privfed.setup.assembly import Assembly

FORMAT = 1
LATEST, MODELS, MANIFEST, DOSSIERS = "latest.json", "models", "manifest.json", "dossiers"
LASTING = (MODELS, DOSSIERS)
"""Folders whose files never change, but for signatures that are added to a dossier."""
_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int32", torch.int32: "int32"}
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """What devices may download.

    Attributes:
        version: SHA-256 of the manifest.
        files: content by path, with `/` between its parts.
    """

    version: str
    files: Mapping[str, bytes]

    @classmethod
    def from_run(cls, run: "TrainedRun") -> "PublishedModel":
        """The model of a finished run.

        Raises:
            UseError: a device cannot recommend from what the run publishes, or nothing is guaranteed of it.
        """
        _refuse(run)
        card = run.data.card
        items = catalogue(run.data.item_ids, run.data.item_info)
        about = {"data": card.name, "synthetic": card.synthetic, "terms": card.terms}
        return cls.from_assembly(run.experiment, run.rounds, run.guarantee, items, about)

    @classmethod
    def from_assembly(
        cls,
        trained: "Assembly",
        rounds: int,
        guarantee: Guarantee,
        items: Mapping[str, Any],
        about: Mapping[str, Any],
    ) -> "PublishedModel":
        """The model of a trained server.

        Args:
            trained: with the server.
            rounds: that it was trained for.
            guarantee: of it.
            items: ids and titles, in the order of item numbers.
            about: name, terms and origin of the data.

        Raises:
            UseError: a tensor is of a kind that no device reads.
        """
        tensors = all_on_host(trained.server.public().shared)
        arrays = {name: _bytes(name, value) for name, value in tensors.items()}
        others = {
            "items.json": _json(items),
            "guarantee.json": _json(guarantee.model_dump(mode="json")),
            "card.json": _json({**_card(trained, rounds), **about}),
        }
        manifest = _json(
            {
                "format": FORMAT,
                "method": Path(trained.config.method_name).name,
                "items": len(items["ids"]),
                "arrays": {
                    name: {
                        "dtype": _NAMES[tensors[name].dtype],
                        "shape": list(tensors[name].shape),
                        "sha256": _digest(content),
                    }
                    for name, content in arrays.items()
                },
                "files": {name: _digest(content) for name, content in others.items()},
            }
        )
        version = _digest(manifest)
        inside = {MANIFEST: manifest, **others, **{f"{name}.bin": content for name, content in arrays.items()}}
        files = {f"{MODELS}/{version}/{name}": content for name, content in inside.items()}
        return cls(version, files | {LATEST: _json({"format": FORMAT, "version": version})})

    def with_dossier(self, folder: Path, run: Path) -> "PublishedModel":
        """The same with the dossier of the run beside it, every file as its manifest says.

        Args:
            folder: of the dossier.
            run: folder of the run, whose guarantee has to be the dossier's.

        Raises:
            DossierError: the folder is no dossier.
            UseError: it was changed, or is about another run.
        """
        digest, content = dossier_files(folder, run)
        files = {f"{DOSSIERS}/{digest}/{name}": one for name, one in content.items()}
        latest = json.loads(self.files[LATEST]) | {"dossier": digest}
        return PublishedModel(self.version, {**self.files, **files, LATEST: _json(latest)})

    @classmethod
    def read(cls, folder: Path) -> "PublishedModel":
        """The newest model of a tree that was written, every file checked against its version.

        Raises:
            UseError: there is none, or a file is not what the version names.
        """
        try:
            latest = (folder / LATEST).read_bytes()
            version = str(json.loads(latest)["version"])
            if not re.fullmatch("[0-9a-f]{64}", version):
                raise UseError(f"{folder / LATEST} names no version: export the model again")
            inside = folder / MODELS / version
            files = {f"{MODELS}/{version}/{MANIFEST}": (inside / MANIFEST).read_bytes()}
            manifest = json.loads(files[f"{MODELS}/{version}/{MANIFEST}"])
            named = {f"{name}.bin": one["sha256"] for name, one in manifest["arrays"].items()} | manifest["files"]
            files |= {f"{MODELS}/{version}/{name}": (inside / Path(name).name).read_bytes() for name in named}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UseError(f"{folder} holds no whole published model ({error}): export it again") from error
        wrong = [name for name, digest in named.items() if _digest(files[f"{MODELS}/{version}/{name}"]) != digest]
        if wrong or _digest(files[f"{MODELS}/{version}/{MANIFEST}"]) != version:
            raise UseError(f"{inside / (wrong or [MANIFEST])[0]} is not what its version names: export the model again")
        return cls(version, files | {LATEST: latest})

    @property
    def about(self) -> dict[str, Any]:
        """Its card: what it was made of."""
        return dict(json.loads(self._file("card.json")))

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed."""
        return Guarantee.model_validate_json(self._file("guarantee.json"))

    def recommend(self, history: Sequence[Any], k: int = 10) -> pd.DataFrame:
        """The best `k` items for item ids that somebody has, from the files alone, as a device finds them.

        Raises:
            UseError: an item is not in the catalogue, there is none, or nothing here computes the model.
        """
        known, manifest = json.loads(self._file("items.json")), json.loads(self._file(MANIFEST))
        make = method(manifest["method"]).history_model
        if make is None:
            raise UseError(f"{manifest['method']} does not answer from a history: use a model of private-gram")
        ids, titles = pd.Index(known["ids"]), known["titles"]
        codes = codes_of(ids, history, "item", self.about["data"])
        own = np.zeros((1, len(ids)), np.float32)
        own[0, codes] = 1
        scores = make(self._tensors(manifest["arrays"]))(torch.from_numpy(own)).double().numpy()
        [best] = ranked(scores, own > 0, k)
        return described(ids, None if titles is None else np.array(titles, object), *best)

    def _tensors(self, arrays: Mapping[str, Any]) -> dict[str, Tensor]:
        """Public tensors by name; places of items are whole numbers of 64 bits, as torch takes them."""
        found = {}
        for name, listed in arrays.items():
            kind = np.dtype(listed["dtype"]).newbyteorder("<")
            values = np.frombuffer(self._file(f"{name}.bin"), kind).reshape(listed["shape"])
            found[name] = torch.from_numpy(values.astype(np.int64 if kind.kind == "i" else kind.newbyteorder("=")))
        return found

    def _file(self, name: str) -> bytes:
        return self.files[f"{MODELS}/{self.version}/{name}"]

    def write(self, folder: Path) -> None:
        """Write the tree, the pointer to the newest version last; versions that are there already stay.

        Raises:
            UseError: the folder holds something else.
        """
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / LATEST).exists()):
            raise UseError(f"{folder} is not empty and holds no published model: choose another folder")
        for path, content in self.files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_name(f"{file.name}.partial")
            partial.write_bytes(content)
            partial.replace(file)


def _refuse(run: "TrainedRun") -> None:
    reason = why_not_from_history(run.experiment)
    if reason is None and run.experiment.registered.history_model is None:
        reason = f"what a device does with the parameters of {run.method} is not written for other runtimes"
    if reason is not None:
        raise UseError(f"{run.folder} cannot be served: {reason}; serve a run of private-gram")
    if run.guarantee.reason_if_inf is not None:
        raise UseError(
            f"{run.folder} cannot be served: nothing is guaranteed to the people in it "
            f"({run.guarantee.reason_if_inf}); train it with --epsilon"
        )


def _bytes(name: str, value: Tensor) -> bytes:
    if value.dtype not in _NAMES:
        raise UseError(f"the tensor {name} is of {value.dtype}, which no device reads: serve a run of private-gram")
    if not value.dtype.is_floating_point and value.numel() and int(value.abs().max()) > _LARGEST:
        raise UseError(f"the tensor {name} holds whole numbers beyond 32 bits: serve a run of a smaller catalogue")
    kind = np.dtype(_NAMES[value.dtype]).newbyteorder("<")
    return value.contiguous().numpy().astype(kind).tobytes()


def catalogue(ids: Iterable[Any], info: pd.DataFrame | None) -> dict[str, Any]:
    """Ids of items, and titles where they are known."""
    known = info is not None and "title" in info
    titles = [None if pd.isna(one) else str(one) for one in info["title"]] if known and info is not None else None
    return {"ids": [str(item) for item in ids], "titles": titles}


def _card(trained: "Assembly", rounds: int) -> dict[str, Any]:
    """What it was made of: nothing in it was counted in the data."""
    registered = trained.registered
    return {
        "method": Path(trained.config.method_name).name,
        "title": registered.title,
        "source": registered.source,
        "server_reads": registered.disclosure.reads,
        "mechanism": trained.config.privacy.name,
        "rounds": rounds,
        "not_for": list(NOT_FOR),
        "privfed": __version__,
    }


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
