"""`Report`: what an audit found."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from privfed.api.errors import UseError
from privfed.api.settings_table import as_frame
from privfed.audit.page.charts import Charts, standing_alone
from privfed.audit.page.palette import in_light
from privfed.audit.page.render import render
from privfed.audit.report.records import AuditReport

_SHORT = ("method", "setting", "epsilon", "metric", "value", "popularity", "auc", "auc_popularity")


class Report:
    """What an audit found: a verdict, a table, a picture and a page.

    Attributes:
        record: everything measured, as `report.json` has it.
        folder: where `index.html`, `report.json`, charts and tables are; of an audit without `folder=`, a temporary
            folder that goes with this object.

    Example:
        >>> import privfed
        >>> report = privfed.audit("private-gram", "synthetic-small", epsilon=8, workers=1)
        >>> report.to_frame()["method"].tolist()
        ['private-gram']
        >>> print(report.verdict)
        Private Gram · central Gaussian, epsilon 8 is guaranteed and better than popularity.
    """

    def __init__(self, record: AuditReport, folder: Path | None = None) -> None:
        self.record, self.folder = record, folder

    @property
    def verdict(self) -> str:
        """How many settings are guaranteed and better than popularity, in one sentence."""
        return self.record.verdict

    @property
    def advice(self) -> str:
        """What to do, computed from the numbers, in a sentence or two."""
        return self.record.advice

    @property
    def contradictions(self) -> list[str]:
        """Claims that the audit's own numbers deny, a sentence each; there should be none."""
        return [one.text for one in self.record.contradictions]

    def to_frame(self) -> pd.DataFrame:
        """A line for each method and setting: guarantee, quality and headline attack, popularity beside both."""
        return as_frame(self.record)

    def plot(self) -> Any:
        """Quality against privacy, as an Altair chart, which notebooks show.

        Raises:
            ValueError: no setting has a finite epsilon.
        """
        charts = Charts.from_report(self.record)
        drawn = [*charts.panels, *charts.all()]
        if not drawn:
            raise UseError("there is nothing to draw: no setting has a finite epsilon, and no attack was run")
        return alt.Chart.from_json(in_light(_json(drawn[0]), self.record))

    def save_html(self, file: str | PathLike[str]) -> Path:
        """Write the page of the audit, complete in one file.

        Raises:
            ValueError: there is no such folder.
        """
        place = Path(file)
        if not place.parent.is_dir():
            raise UseError(f"there is no folder {place.parent} to write {place.name} to: make it, or choose another")
        place.write_text(render(self.record), encoding="utf-8")
        return place

    def __repr__(self) -> str:
        table = self.to_frame()[list(_SHORT)]
        return "\n".join(
            [self.verdict, self.advice, table.to_string(index=False, float_format=lambda value: f"{value:.3f}")]
        )

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(index=False, border=0, float_format=lambda value: f"{value:.3f}")
        return f"<div><b>{self.verdict}</b><p>{self.advice}</p>{table}</div>"


def _json(chart: Any) -> str:
    return json.dumps(standing_alone(chart))
