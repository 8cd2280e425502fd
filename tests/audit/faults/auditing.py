"""One audit with a fault in it, as `privfed audit --workers 1` makes it, short of the page."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

from registry import Fault

from privfed.audit import grid
from privfed.audit.config import AuditConfig
from privfed.audit.grid import run_audit
from privfed.audit.report.records import AuditReport
from privfed.data import Interactions, load
from privfed.evaluation import EvaluationSettings
from privfed.privacy import PrivacyPlan
from privfed.setup.config import AuditTapConfig


@cache
def interactions(derived: bool) -> Interactions:
    """Made-up people, with or without an item list of their own."""
    data = load("synthetic-small")
    return replace(data, card=data.card.model_copy(update={"catalogue_derived": derived}))


def audit(fault: Fault, out: Path) -> AuditReport:
    """The report of a small audit with the defaults of everything that checks, of the run that a fault names."""
    config = AuditConfig(
        data="synthetic-small",
        methods=({"name": fault.method} | dict(fault.settings),),
        plans=(PrivacyPlan.parse(fault.privacy),),
        rounds=fault.rounds,
        evaluate_every=fault.rounds,
        taps=AuditTapConfig(users=30),
        evaluation=EvaluationSettings(private=fault.measured, mu=0.5),
    )
    with patch.object(grid, "publish"):
        return run_audit(config, interactions(fault.derived), out, workers=1)
