"""What the rows that clients send give away, in words: one line of a table for each setting, and plain sentences."""

from collections.abc import Sequence

from privfed.audit.report import formatting
from privfed.audit.report.records import AttackCell, AttackRow, CodeLeak, SupportLeak

EPSILON, ROWS, UPLOAD, POSTERIOR, BEST_GUESS, COUNT, BITS = (
    "Row epsilon",
    "Rows sent",
    "Upload",
    "Posterior",
    "In the support",
    "Count",
    "Code bits",
)
CellText = tuple[str, str]
"""A value, and in small print what it is to be read with."""

IN_SUPPORT = ("examined vs padding", "trained vs padding")
"""Games among the rows that were sent."""

_NOT_SEEN: CellText = "not seen", ""


def columns(leak: SupportLeak, attacks: Sequence[AttackRow | AttackCell]) -> dict[str, CellText]:
    """One line of a table, by the heads of its columns; `attacks` are those of the same run or cell."""
    seen = leak.seen_by is not None
    return {
        EPSILON: (formatting.epsilon(leak.claim.epsilon), ""),
        ROWS: _rows(leak) or _NOT_SEEN,
        UPLOAD: (formatting.volume(leak.up_bytes_per_client_round), ""),
        POSTERIOR: _posterior(leak) or ((f"no {leak.private}", "") if seen else _NOT_SEEN),
        BEST_GUESS: _best(attacks) or (("none to tell apart", "") if seen else _NOT_SEEN),
        COUNT: _count(leak) or (("not read off", "") if seen else _NOT_SEEN),
        BITS: _bits(leak.rebuilt) or ("no code", ""),
    }


def sentences(leak: SupportLeak) -> list[str]:
    """What is seen and what follows from it, a sentence or two for each."""
    return [text for text in (_of_rows(leak), _of_counts(leak), _of_codes(leak.rebuilt)) if text]


def _rows(leak: SupportLeak) -> CellText | None:
    if leak.public_rows is None or leak.private_rows is None or leak.padding_rows is None:
        return None
    kinds = f"{leak.public_rows:.1f} + {leak.private_rows:.1f} + {leak.padding_rows:.1f}"
    return f"{leak.public_rows + leak.private_rows + leak.padding_rows:.1f}", kinds


def _posterior(leak: SupportLeak) -> CellText | None:
    if leak.posterior is None:
        return None
    formula = "" if leak.posterior_expected is None else f"formula {formatting.share(leak.posterior_expected)}"
    return formatting.share(leak.posterior.value), formula


def _best(attacks: Sequence[AttackRow | AttackCell]) -> CellText | None:
    among = [row for row in attacks if row.tap == "support" and row.game in IN_SUPPORT]
    if not among:
        return None
    best = max(among, key=lambda row: abs(_auc(row) - 0.5))
    turned = ", turned round" if _auc(best) < 0.5 else ""
    return f"AUC {formatting.share(_auc(best))}", best.attack + turned


def _auc(row: AttackRow | AttackCell) -> float:
    return row.auc.value if isinstance(row, AttackRow) else row.auc.mean


def _count(leak: SupportLeak) -> CellText | None:
    if leak.count_exact is None or leak.count_error is None:
        return None
    return f"{leak.count_exact.value:.0%} right", f"off by {leak.count_error.value:.1f}"


def _bits(code: CodeLeak | None) -> CellText | None:
    return None if code is None else (f"{code.bits.value:.1%} right", f"majority {code.majority.value:.1%}")


def _of_rows(leak: SupportLeak) -> str:
    if leak.seen_by is None:
        return "Nobody sees which rows a single client sends, so there was nothing to attack in them."
    who = "The aggregators see" if leak.seen_by == "aggregators" else "The server sees"
    text = f"{who} which rows each client sends"
    if leak.posterior is None:
        return f"{text}; there are no {leak.private} among them."
    text += f": of those that are not public, {leak.posterior.value:.1%} are {leak.private}, mean over people"
    if leak.posterior_expected is not None:
        text += f" (by formula {leak.posterior_expected:.1%})"
    text += "."
    if leak.posterior_over_rows is not None:
        text += f" Over all such rows it is {leak.posterior_over_rows:.1%}."
    return text


def _of_counts(leak: SupportLeak) -> str:
    if leak.count_exact is None or leak.count_error is None:
        return ""
    return (
        f"From the number of rows alone, the number of a person's {leak.private} is read off correctly for "
        f"{leak.count_exact.value:.0%} of people, and is off by {leak.count_error.value:.1f} on average."
    )


def _of_codes(code: CodeLeak | None) -> str:
    if code is None:
        return ""
    return (
        f"From public purchases and item codes alone, {code.bits.value:.1%} of the bits of a person's private code are "
        f"rebuilt, and at least 90 % of them for {code.users.value:.0%} of people; the majority of each bit gives "
        f"{code.majority.value:.1%}."
    )
