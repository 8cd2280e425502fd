"""The folder of a run as the command line and Python write it: a record of what ran, and files whole or absent.

`config.json` is `{format, kind, privfed, config, columns, data_sha256}`; `metrics.jsonl` has a line for every metric of
every evaluated round; `ledger.json`, `guarantee.json` and `evaluation.json` come when the run is finished, the last
with popularity and the card of the data beside the result. Files count rounds from 0.

The folder of a run over people's own devices has no history to load again, nor a checkpoint: `devices.json` says what
ran, and `public/` is the model that was published; `ledger.jsonl` and `guarantee.json` are as above.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from privfed import __version__
from privfed.evaluation import EvaluationResult
from privfed.evaluation.result import Ratio
from privfed.experiment.record_file import RECORD
from privfed.privacy import configure
from privfed.setup.config import ExperimentConfig

if TYPE_CHECKING:
    from privfed.data import DatasetCard
    from privfed.evaluation import RoundEvaluation
    from privfed.experiment.result import RunResult

FORMAT = 1
CHECKPOINT, CLIENT_STATE = "checkpoint", "client-state"
METRICS, CHARGES, LEDGER, GUARANTEE = "metrics.jsonl", "ledger.jsonl", "ledger.json", "guarantee.json"
EVALUATION = "evaluation.json"
DEVICES, PUBLISHED = "devices.json", "public"
Kind = Literal["run", "audit"]


class FolderRecord(BaseModel):
    """What a folder holds.

    Attributes:
        format: format of the folder.
        kind: a run or an audit.
        privfed: version that wrote it.
        config: the whole configuration.
        columns: role -> column of a table of one's own; None where the data set names them itself.
        data_sha256: digest of the data as they were loaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: int = FORMAT
    kind: Kind
    privfed: str = __version__
    config: dict[str, JsonValue]
    columns: dict[str, str] | None
    data_sha256: str | None

    def write(self, folder: Path) -> None:
        """Put the record into `folder`."""
        write_json(folder / RECORD, self.model_dump(mode="json"))

    def experiment(self) -> ExperimentConfig:
        """The configuration of a run."""
        return configure(ExperimentConfig, self.config)


class DevicesRecord(BaseModel):
    """What `devices.json` says of a run over people's own devices; nobody is named in it.

    Attributes:
        format: format of the folder.
        privfed: version that wrote it.
        run: its name, as the ledger has it.
        config: the whole configuration, with the noise that was announced.
        federation: name of the federation.
        version: of its file.
        sha256: of its file.
        people: devices of the federation.
        items: of the catalogue.
        randomness: what noise is drawn from.
        started: date and time of the announcement, in UTC.
        ended: of the last sum, likewise; None of a run that was aborted.
        joined: devices that agreed to take part.
        summed: devices in every opened sum.
        unused: stage -> replies that were not used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: int = FORMAT
    privfed: str = __version__
    run: str
    config: dict[str, JsonValue]
    federation: str
    version: int
    sha256: str
    people: int
    items: int
    randomness: str = "every device draws its share of the noise from its operating system, and no seed exists"
    started: str
    ended: str | None = None
    joined: int = 0
    summed: tuple[int, ...] = ()
    unused: dict[str, int] = {}

    def write(self, folder: Path) -> None:
        """Put the record into `folder`."""
        write_json(folder / DEVICES, self.model_dump(mode="json"))

    def experiment(self) -> ExperimentConfig:
        """The configuration."""
        return configure(ExperimentConfig, self.config)


class EvaluationRecord(BaseModel):
    """What `evaluation.json` holds.

    Attributes:
        run: digest of the run's configuration, as its ledger has it.
        data: card of the data set.
        split: how held-out items were chosen.
        protocol: how they were ranked, in a sentence.
        selected_round: round that is reported.
        test: the run on the test part.
        popularity: the popularity recommender on the same; None where ratings are predicted.
        gain: NDCG at the shortest cut-off less that of popularity, paired by user; None where it was not measured.
        clipped_fraction: share of uploads that the clip changed; None without a clip.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    run: str
    data: dict[str, JsonValue]
    split: str
    protocol: str
    selected_round: int
    test: EvaluationResult
    popularity: EvaluationResult | None
    gain: Ratio | None
    clipped_fraction: float | None


def metric_lines(history: "Iterable[RoundEvaluation]") -> str:
    """Lines of `metrics.jsonl`."""
    return "".join(
        json.dumps(
            {
                "round": evaluated.round,
                "part": part,
                "metric": metric.slug,
                "value": metric.value,
                "lo": metric.lo,
                "hi": metric.hi,
            }
        )
        + "\n"
        for evaluated in history
        for part, result in evaluated.results.items()
        for metric in result.metrics
    )


def write_claims(folder: Path, result: "RunResult", population: int) -> None:
    """Write the ledger and the guarantee of a finished run."""
    from privfed.privacy import Ledger

    config = result.config
    ledger = Ledger.resume(config.privacy, population, folder / CHARGES, run=config.digest())
    write_json(folder / LEDGER, ledger.state() | {"notices": list(ledger.notices)}, private=True)  # it names users
    write_json(folder / GUARANTEE, result.guarantee.model_dump(mode="json"))


def write_evaluation(
    folder: Path,
    result: "RunResult",
    popular: EvaluationResult | None,
    gain: Ratio | None,
    card: "DatasetCard",
    split: str,
) -> None:
    """Write the result of a finished run on the test part, with what it has to be read with.

    Args:
        folder: of the run.
        result: of the run.
        popular: the popularity recommender under the same protocol; None where there is none.
        gain: over popularity, paired by user; None where there is none.
        card: of the data.
        split: how held-out items were chosen, in a sentence.
    """
    content = EvaluationRecord(
        run=result.config.digest(),
        data=card.model_dump(mode="json"),
        split=split,
        protocol=result.config.protocol.sentence(),
        selected_round=result.selected.round,
        test=result.test,
        popularity=popular,
        gain=gain,
        clipped_fraction=result.clipped_fraction,
    )
    write_json(folder / EVALUATION, content.model_dump(mode="json"))


def write_json(path: Path, content: Mapping[str, Any], *, private: bool = False) -> None:
    """Write a JSON file, whole or not at all; a private one is for its owner alone."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n", private=private)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text file, whole or not at all; a private one is for its owner alone."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(0o600 if private else 0o666)
    partial.write_bytes(text.encode())
    partial.replace(path)
