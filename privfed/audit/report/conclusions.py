"""What follows from the runs of a report: cells, contradictions and sentences."""

from privfed.audit.report.aggregates import aggregate
from privfed.audit.report.contradictions import find_contradictions
from privfed.audit.report.records import AuditReport
from privfed.audit.report.statements import make_statements


def conclude(report: AuditReport) -> AuditReport:
    """The same report with `aggregates`, `contradictions` and `statements` computed from its other fields."""
    report = report.model_copy(update={"aggregates": aggregate(report.runs)})
    return report.model_copy(
        update={"contradictions": find_contradictions(report), "statements": make_statements(report)}
    )
