"""Everything that people and programs read of a report, written whole or not at all.

All files are made in a folder of their own, and only when the last one is finished do they move to their places.
"""

import shutil
import tempfile
from pathlib import Path

from privfed.audit.page.charts import Charts, write_charts
from privfed.audit.page.render import render
from privfed.audit.report.paper_tables import write_tables
from privfed.audit.report.records import AuditReport, ReportError
from privfed.audit.report.tables import write_runs

PAGE, RUNS, CHARTS, TABLES = "index.html", "runs.csv", "charts", "tables"
_OURS = {CHARTS: (".svg", ".pdf"), TABLES: (".csv", ".tex")}


def publish(report: AuditReport, out: Path) -> Path:
    """Write the page, `runs.csv`, `charts/` and `tables/` of a concluded report to `out`.

    Charts and tables of a former report there are removed; other files stay.

    Returns:
        The page.

    Raises:
        ReportError: `out` cannot be written; what was there before is untouched.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".publishing-", dir=out) as name:
            made, charts = Path(name), Charts.from_report(report)
            (made / PAGE).write_text(render(report, charts), encoding="utf-8")
            write_runs(report, made / RUNS)
            write_charts(report, made / CHARTS, charts)
            write_tables(report, made / TABLES)
            _move(made, out)
    except OSError as error:
        msg = f"cannot write the page to {out}: {error.strerror}; choose a folder that exists and is writable"
        raise ReportError(msg) from error
    return out / PAGE


def _move(made: Path, out: Path) -> None:
    for folder, suffixes in _OURS.items():
        (out / folder).mkdir(exist_ok=True)
        new = {path.name for path in (made / folder).iterdir()}
        for path in (made / folder).iterdir():
            path.replace(out / folder / path.name)
        for path in (out / folder).iterdir():
            if path.suffix in suffixes and path.name not in new:
                path.unlink()
    for file in (RUNS, PAGE):
        shutil.move(made / file, out / file)
