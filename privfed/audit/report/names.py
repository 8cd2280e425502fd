"""Short names of settings, such as "GPFedRec · local Laplace, epsilon 8"."""

from collections import Counter

from privfed.audit.report import formatting
from privfed.audit.report.headline import protected_cells
from privfed.audit.report.records import POPULARITY, AuditReport, Cell
from privfed.privacy.errors import PlanError
from privfed.privacy.plan import PrivacyPlan

_PEOPLE = {"laplace": "Laplace", "gaussian": "Gaussian", "dpsgd": "DP-SGD", "dp": "DP"}


def mechanism_name(cell: Cell) -> str:
    """What protects the uploads, in two or three words, with its epsilon where it has one."""
    try:
        mechanism = PrivacyPlan.from_dict(cell.plan).mechanism
    except PlanError:
        return formatting.setting(cell.setting)
    if mechanism.protects:
        words = " ".join(_PEOPLE.get(word, word) for word in mechanism.preset.split("-"))
    else:
        words = "no protection"
    return f"{words}, epsilon {formatting.epsilon(cell.guarantee.epsilon)}" if cell.guarantee.finite else words


def short_names(report: AuditReport) -> dict[tuple[str, str], str]:
    """(method, slug of the setting) -> short name of every cell; where two would be alike, with the full setting."""
    cells = protected_cells(report)
    short = {(cell.method, cell.setting.slug): mechanism_name(cell) for cell in cells}
    times = Counter((method, words) for (method, _), words in short.items())
    return {
        (cell.method, cell.setting.slug): (
            f"{formatting.method_name(cell.method)} · "
            + (words if times[cell.method, words] == 1 else formatting.setting(cell.setting))
        )
        for cell in cells
        for words in [short[cell.method, cell.setting.slug]]
    } | {(cell.method, cell.setting.slug): "Popularity" for cell in report.aggregates if cell.method == POPULARITY}
