"""Who may look at a run, what each of them sees under its plan, and whether the guarantee holds against them.

The subject of a sentence follows from the trust: where the server adds the noise, the server itself reads every upload,
and the sums are what others see.
"""

from collections.abc import Iterator

from privfed.audit.report.headline import choose
from privfed.audit.report.records import AttackCell, Cell, ObserverRow, Tap
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Mechanism
from privfed.privacy.plan import PrivacyPlan

SUMS = "somebody who sees the sums"
MODEL = "somebody with the finished model"
_SUM_SEEN = "They see, round by round, what all uploads add up to."
_MODEL_SEEN = "Every device holds this model; somebody may hold several states of it."
_MASKED = (
    "It receives masked uploads, which look like random numbers, and learns only their sum. This follows from how "
    "masks are made; there is nothing to measure."
)


def with_observers(cell: Cell) -> Cell:
    """The same cell with everybody who may look at it, and the headline of those within the guarantee."""
    observers = [
        one.model_copy(update={"headline": choose([row for row in cell.attacks if row.tap in one.taps], cell.n_seeds)})
        for one in _observers(cell)
    ]
    reached = {tap for one in observers if one.guaranteed for tap in one.taps}
    visible = [row for row in cell.attacks if row.tap in reached]
    return cell.model_copy(
        update={
            "observers": [one for one in observers if one.headline or one.blind or not one.guaranteed],
            "headline": choose(visible, cell.n_seeds),
        }
    )


def _observers(cell: Cell) -> list[ObserverRow]:
    mechanism = _mechanism(cell)
    if cell.guarantee.trust == "central":
        return list(_trusted_server())
    if mechanism is not None and mechanism.secret_sharing is not None:
        return list(_sharing(mechanism.secret_sharing.aggregators))
    if mechanism is not None and mechanism.release == "total":
        return list(_summing(masked=mechanism.masking is not None))
    return list(_open(cell.attacks))


def _mechanism(cell: Cell) -> Mechanism | None:
    try:
        return PrivacyPlan.from_dict(cell.plan).mechanism
    except PlanError:
        return None


def _observer(who: str, taps: list[Tap], sees: str, *, guaranteed: bool = True, blind: bool = False) -> ObserverRow:
    return ObserverRow(who=who, taps=taps, guaranteed=guaranteed, sees=sees, blind=blind)


def _trusted_server() -> Iterator[ObserverRow]:
    yield _observer(SUMS, ["sum"], _SUM_SEEN)
    yield _observer(MODEL, ["model"], _MODEL_SEEN)
    yield _observer(
        "the server, which adds the noise",
        ["raw", "wire", "support"],
        "It receives every upload before the noise, so it has to be trusted. Measured on uploads before the clip.",
        guaranteed=False,
    )


def _sharing(servers: int) -> Iterator[ObserverRow]:
    yield _observer(
        "each server alone",
        ["support"],
        "Its shares look like random numbers. What it sees are the names of the rows that a device sends.",
        blind=True,
    )
    yield _observer(SUMS, ["sum"], _SUM_SEEN)
    yield _observer(MODEL, ["model"], _MODEL_SEEN)
    yield _observer(
        "both servers together" if servers == 2 else f"all {servers} servers together",
        ["raw", "wire"],
        "They can add their shares up and read every upload. Measured on uploads before any mechanism.",
        guaranteed=False,
    )


def _summing(*, masked: bool) -> Iterator[ObserverRow]:
    if masked:
        yield _observer("the server, from one device", [], _MASKED, blind=True)
    yield _observer(SUMS, ["sum", "wire", "support"], _SUM_SEEN)
    yield _observer(MODEL, ["model"], _MODEL_SEEN)
    yield _observer(
        "a server with many devices on its side" if masked else "whoever adds the uploads up",
        [] if masked else ["raw"],
        "It can subtract what its devices sent, and is left with sums over fewer people. Not measured here."
        if masked
        else "It receives every upload, so it has to be trusted.",
        guaranteed=False,
    )


def _open(attacks: list[AttackCell]) -> Iterator[ObserverRow]:
    several = len({row.tap for row in attacks} & {"wire", "support", "sum"}) > 1
    taps: list[Tap] = ["wire", "support", "sum"]
    yield _observer(
        "the server",
        taps,
        "It receives the upload of every device" + (", and can add them up." if several else "."),
    )
    yield _observer(MODEL, ["model"], _MODEL_SEEN)
