"""What follows from the runs of a report: cells, contradictions and sentences."""

from privfed.audit.report.aggregates import aggregate
from privfed.audit.report.contradictions import find_contradictions
from privfed.audit.report.records import SELECTION, AuditReport
from privfed.audit.report.statements import make_statements
from privfed.audit.report.verdict import verdict


def conclude(report: AuditReport) -> AuditReport:
    """The same report with `aggregates`, `contradictions`, `statements` and the verdict computed from its runs."""
    report = report.model_copy(update={"aggregates": aggregate(report.runs), "selection": SELECTION})
    report = report.model_copy(
        update={"contradictions": find_contradictions(report), "statements": make_statements(report)}
    )
    found = verdict(report)
    said = " ".join(filter(None, [found.sentence, found.controls]))
    return report.model_copy(update={"verdict": said, "advice": found.advice})
