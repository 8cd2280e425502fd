"""What an adversary could tell from a run: rows of attacks as a table, and as one sentence."""

import pandas as pd

from attacks.evaluation import ALL_ITEMS
from privfed.audit.report import formatting
from privfed.audit.report.headline import MAIN_GAMES, PROTECTED_TAPS
from privfed.audit.report.records import POPULARITY, AttackRow

COLUMNS = ("attack", "seen_by", "game", "items", "rounds", "auc", "low", "high", "popularity")

NOT_ATTACKED = "nothing that the server releases has a row for each item, so no attack on it was run"


def as_frame(rows: list[AttackRow]) -> pd.DataFrame:
    """One line for each attack, game and place, the strongest first; the guess by popularity stands beside each."""
    lines = [
        (
            row.attack,
            formatting.named(formatting.TAPS, row.tap),
            row.game,
            row.scope,
            formatting.rounds(row.rounds),
            row.auc.value,
            row.auc.lo,
            row.auc.hi,
            row.popularity_auc,
        )
        for row in sorted(rows, key=lambda row: -row.auc.value)
        if row.attack != POPULARITY
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def main_attack(rows: list[AttackRow]) -> AttackRow | None:
    """The strongest attack at the place closest to a client that a server sees, in the main game on all items."""
    for tap in PROTECTED_TAPS:
        rivals = [
            row
            for row in rows
            if (row.tap, row.attack != POPULARITY) == (tap, True)
            and row.game in MAIN_GAMES
            and row.scope.startswith(ALL_ITEMS)
        ]
        if rivals:
            return max(rivals, key=lambda row: row.auc.value)
    return None


def sentence(rows: list[AttackRow], trust: str) -> str:
    """The main attack beside popularity, and who sees more."""
    strongest = main_attack(rows)
    if strongest is None:
        text = NOT_ATTACKED
    else:
        better = strongest.auc.lo > strongest.popularity_auc
        text = (
            f"{'tells more than popularity' if better else 'no better than popularity'} ({strongest.auc.value:.2f} "
            f"against {strongest.popularity_auc:.2f}, {formatting.named(formatting.TAPS, strongest.tap)})"
        )
    return f"{text}; the server itself sees every upload" if trust == "central" else text
