"""What the tenths of items and users say, in sentences: who is worst off, and whether a mechanism reaches them too."""

from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import protected_cells, sliced_attack
from privfed.audit.report.records import AttackCell, AuditReport, Cell, SliceRow

_MOST_SENTENCES = 3
_ENDS = {
    "popularity": ("the rarest tenth of items", "the most popular tenth"),
    "activity": ("the tenth of people with the fewest items", "the tenth with the most"),
}


def slice_sentences(report: AuditReport) -> list[str]:
    """One sentence per method on its most open setting, and one on all settings with a finite epsilon.

    Of many methods, only the most open one has a sentence.
    """
    pairs = [(cell, best) for cell in protected_cells(report) if (best := sliced_attack(cell)) is not None]
    by_method = grouped(pairs, lambda pair: pair[0].method).values()
    open_ones = [max(same, key=_gain) for same in by_method]
    if len(open_ones) > _MOST_SENTENCES:
        open_ones = [max(open_ones, key=_gain)]
    sentences = [_ends(cell, best) for cell, best in open_ones]
    claimed = [pair for pair in pairs if pair[0].guarantee.finite]
    return [*sentences, *([_behind(claimed)] if claimed else [])]


def _gain(pair: tuple[Cell, AttackCell]) -> float:
    """How far beyond popularity on the users who choose: which setting is most open is chosen on them too."""
    sample_split = pair[1].sample_split
    return sample_split.selection_gain if sample_split is not None else 0.0


def _ends(cell: Cell, best: AttackCell) -> str:
    phrases = []
    for by, (low, high) in _ENDS.items():
        tenths = sorted((part for part in best.slices if part.by == by), key=lambda part: part.group)
        if len(tenths) > 1:
            phrases.append(
                f"{low} {formatting.share(tenths[0].auc.value)}, {high} {formatting.share(tenths[-1].auc.value)}"
            )
    where = f"{formatting.method_name(cell.method)}, {formatting.setting(cell.setting)}"
    return f"{where}: AUC of {best.attack} for {'; for '.join(phrases)}."


def _behind(claimed: list[tuple[Cell, AttackCell]]) -> str:
    worst = [(cell, part) for cell, best in claimed for part in best.slices if _told(part)]
    if not worst:
        return (
            "Behind the settings with a finite epsilon, in no tenth is the attack better than both chance and the "
            "popularity guess, intervals considered."
        )
    cell, part = max(worst, key=lambda pair: pair[1].auc.lo)
    kind = "items" if part.by == "popularity" else "people"
    where = f"{formatting.method_name(cell.method)}, {formatting.setting(cell.setting)}"
    return (
        f"Behind the settings with a finite epsilon, the attack beats chance and the popularity guess in "
        f"{formatting.count(len(worst), 'tenth')}, most clearly in tenth {part.group + 1} of {kind} under {where} "
        f"(AUC {formatting.share(part.auc.value)}, popularity {formatting.share(part.popularity_auc)})."
    )


def _told(part: SliceRow) -> bool:
    return part.auc.lo > max(0.5, part.popularity_auc)
