"""What an adversary could tell from a run: rows of attacks as a table, and as one sentence."""

import pandas as pd

from privfed.audit.report import formatting
from privfed.audit.report.headline import PROTECTED_TAPS, chosen, in_main_game, leak
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
    """The headline attack at the place closest to a client that a server sees: chosen on one half of the people."""
    by_tap = (in_main_game(row for row in rows if row.tap == tap) for tap in PROTECTED_TAPS)
    return next((best for rivals in by_tap if (best := chosen(rivals)) is not None), None)


def sentence(rows: list[AttackRow], trust: str) -> str:
    """The main attack beside popularity, and who sees more."""
    main = main_attack(rows)
    if main is None or main.sample_split is None:
        text = NOT_ATTACKED
    else:
        sample_split = main.sample_split
        text = (
            f"finds {leak(sample_split.auc.value, sample_split.gain)} ({sample_split.auc.value:.2f} against "
            f"{sample_split.popularity_auc:.2f}, {formatting.named(formatting.TAPS, main.tap)})"
        )
    return f"{text}; the server itself sees every upload" if trust == "central" else text
