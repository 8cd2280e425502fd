"""The first screen, the settings one by one, and their words: what `page.html` lays out before any detail."""

from typing import Any

from privfed.audit.page import dots
from privfed.audit.report import formatting
from privfed.audit.report.grades import GRADES, MOST_DELTA, grade, odds_sentence, suspicion_after
from privfed.audit.report.names import mechanism_name
from privfed.audit.report.records import AuditReport, Cell, GuaranteeRow, Headline, ObserverRow
from privfed.audit.report.verdict import GROUPS, Verdict, VerdictRow

TRUSTED = {
    "local": "trusts nobody but one’s own device",  # noqa: RUF001 - a real apostrophe
    "distributed": "the server sees only sums; trusts enough honest devices",
    "central": "trusts the server, which adds the noise",
}
_EXAMPLES = {"strong": 1.0, "moderate": 3.0, "weak": 8.0}


def groups(verdict: Verdict) -> list[dict[str, Any]]:
    """The verdict table: settings by what they come to, best first."""
    highest = max([_reach(row) for row in verdict.rows], default=1.0)
    found = []
    for group, title in GROUPS.items():
        rows = [_line(row, highest, picked=row is verdict.pick) for row in verdict.rows if row.group == group]
        if rows:
            found.append({"title": title, "count": f"{len(rows)} of {len(verdict.rows)}", "rows": rows})
    return found


def three(report: AuditReport, verdict: Verdict) -> list[tuple[str, str, str]]:
    """The three questions: question, answer in short, and why."""
    rows = verdict.rows
    if not rows:
        return []
    measured = [row for row in rows if row.cell.headline is not None]
    leaky = [row.cell.headline for row in measured if row.cell.headline and row.cell.headline.excess.lo > 0]
    guaranteed = [row for row in rows if row.grade != "none"]
    useful = [row for row in rows if row.useful]
    first, _, rest = report.advice.partition(": ")
    return [
        (
            "Is it safe?",
            _share(len(guaranteed), len(rows), "has a guarantee", "have a guarantee"),
            _leaks(measured, leaky),
        ),
        ("Is it useful?", _share(len(useful), len(rows), "beats popularity", "beat popularity"), _useful(rows)),
        ("What should I do?", f"{first}." if rest else report.advice, formatting.capital(rest)),
    ]


def legend() -> list[tuple[str, str]]:
    """The four grades and what each means for a suspicion."""
    before = 0.0
    said = []
    for word, most in GRADES.items():
        example = _EXAMPLES[word]
        at = "" if example == most else f" at ε = {example:g}"
        span = f"ε up to {most:g}." if not before else f"ε above {before:g}, up to {most:g}."
        said.append((word, f"{span} A suspicion of 1 in 100 grows to at most {suspicion_after(example)} in 100{at}."))
        before = most
    return [
        *said,
        ("none", f"ε above 10 or infinite, or δ above {MOST_DELTA:g}. Nothing limits what a better attack will find."),
    ]


def picture_title(verdict: Verdict) -> str:
    """What the picture shows, in a heading."""
    good = sum(row.group == "good" for row in verdict.rows)
    number = formatting.capital(formatting.in_words(good))
    return f"{number} setting{' lies' if good < 2 else 's lie'} in the corner that one wants: useful, and guaranteed"


def picture_note(verdict: Verdict) -> str:
    """That epsilons of different trust or unit stand on one axis, where they do."""
    claims = {(r.cell.guarantee.trust, r.cell.guarantee.unit) for r in verdict.rows if r.cell.guarantee.finite}
    if len(claims) < 2:
        return ""
    return (
        "These guarantees ask for different trust or protect different units, and stand on one axis for an overview "
        "only: an epsilon of one kind must not be compared with an epsilon of another. The table says whom each one "
        "trusts; below, every kind has a chart of its own."
    )


def settings(report: AuditReport, verdict: Verdict) -> list[dict[str, Any]]:
    """One card per setting, best first."""
    return [_setting(report, row, opened=n == 0) for n, row in enumerate(verdict.rows)]


def _share(number: int, total: int, one: str, many: str) -> str:
    if number == 0:
        return f"No setting {one}."
    if number == total:
        return f"Every setting {one}."
    of = f"{formatting.capital(formatting.in_words(number))} of {formatting.in_words(total)} settings"
    return f"{of} {one if number == 1 else many}."


def _leaks(measured: list[VerdictRow], leaky: list[Headline]) -> str:
    if not measured:
        return "Nothing that leaves a device was attacked. That is no evidence of safety."
    game = "Shown one item a person used and one they did not, the strongest attack picks the right one"
    if not leaky:
        return f"No attack that we tried beat popularity in {formatting.count(len(measured), 'setting')}. {NO_PROOF}"
    ends = sorted({dots.hits(one) for one in leaky})
    popular = sorted({round(100 * one.popularity_auc) for one in leaky})
    where = formatting.count(len(leaky), "setting")
    text = f"{game} {_span(ends)} times in 100 in {where}; popularity alone {_span(popular)}."
    rest = len(measured) - len(leaky)
    return text + (f" In the other {rest}, no attack beat popularity." if rest else "")


NO_PROOF = "An attack that fails proves nothing."


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _useful(rows: list[VerdictRow]) -> str:
    level = [row for row in rows if not row.useful and row.gain is not None and row.gain.hi >= 0]
    below = [row for row in rows if row.gain is not None and row.gain.hi < 0]
    how = "paired by person" if all(row.paired for row in rows) else "as if measured on different people"
    return (
        f"Better than one list of popular items for everybody, by more than the 95 % interval ({how}). "
        f"About level: {len(level)}; below: {len(below)}."
    )


def _reach(row: VerdictRow) -> float:
    value = row.utility.seeds.mean if row.utility else 0.0
    return max(value, 1.5 * row.popularity.seeds.mean if row.popularity else 0.0, 1e-9)


def _line(row: VerdictRow, highest: float, *, picked: bool) -> dict[str, Any]:
    cell = row.cell
    return {
        "method": formatting.method_name(cell.method),
        "mechanism": row.name.partition(" · ")[2],
        "picked": picked,
        "leak": _leak(cell.headline),
        "trusted": [_trusted(one) for one in cell.observers if not one.guaranteed and one.headline],
        "grade": row.grade,
        "epsilon": formatting.epsilon(cell.guarantee.epsilon),
        "against": _against(cell.guarantee),
        "useful": _quality(row, highest),
    }


def _against(claim: GuaranteeRow) -> str:
    if claim.finite:
        return TRUSTED.get(claim.trust, formatting.named(formatting.TRUST, claim.trust))
    return claim.reason_if_inf or "no reason was recorded"


def _leak(headline: Headline | None) -> dict[str, Any] | None:
    if headline is None:
        return None
    number, popular = numeral(headline), round(100 * headline.popularity_auc)
    excess = headline.excess
    return {
        "strip": dots.strip(dots.kinds(headline), f"{number} in 100, popularity {popular}", headline.popularity_auc),
        "number": number,
        "words": headline.leaks,
        "popular": popular,
        "excess": f"{_points(excess.value)} beyond popularity ({_points(excess.lo)} to {_points(excess.hi)})",
    }


def _points(value: float) -> str:
    """A difference of shares in guesses of a hundred."""
    sign = "−" if value < -0.0005 else "+" if value > 0.0005 else ""  # noqa: RUF001 - a real minus sign
    return f"{sign}{abs(100 * value):.1f}"


def _trusted(observer: ObserverRow) -> dict[str, str]:
    return {"who": observer.who, "number": "" if observer.headline is None else numeral(observer.headline)}


def numeral(headline: Headline) -> str:
    """Right guesses of a hundred, as a big number."""
    return formatting.in_hundred(headline.auc.value).removesuffix(" times in 100").replace("more than ", ">")


def _quality(row: VerdictRow, highest: float) -> dict[str, Any] | None:
    if row.utility is None:
        return None
    value = row.utility.seeds.mean
    of_plain = None if row.of_unprotected is None else f"{row.of_unprotected:.0%}".replace("%", " %")
    notes = [row.quality if row.gain is None else f"{row.quality} ({_interval(row)})"]
    if of_plain is not None:
        notes.append(f"{of_plain} of unprotected")
    popular = row.popularity.seeds.mean if row.popularity else None
    return {
        "bar": None if popular is None else dots.bar(value, popular, highest),
        "value": formatting.share(value),
        "words": row.quality,
        "notes": notes,
    }


def _interval(row: VerdictRow) -> str:
    if row.gain is None:
        return ""
    return f"{formatting.signed(row.gain.lo)} to {formatting.signed(row.gain.hi)}"


def _setting(report: AuditReport, row: VerdictRow, *, opened: bool) -> dict[str, Any]:
    cell = row.cell
    statements = [s for s in report.statements if (s.method, s.setting) == (cell.method, cell.setting.slug)]
    return {
        "name": f"{formatting.method_name(cell.method)} · {row.name.partition(' · ')[2] or mechanism_name(cell)}",
        "full": formatting.setting(cell.setting),
        "grade": row.grade,
        "epsilon": formatting.epsilon(cell.guarantee.epsilon),
        "opened": opened,
        "said": f"{row.quality}{' popularity' if row.quality.endswith(('above', 'below')) else ''}; "
        f"leaks {cell.headline.leaks if cell.headline else 'not measured'}",
        "statements": statements,
        "observers": [_panel(one) for one in cell.observers],
        "odds": _odds(cell.guarantee.epsilon, cell.guarantee.delta),
        "odds_sentence": formatting.capital(odds_sentence(cell.guarantee.epsilon, cell.guarantee.delta)),
        "costs": _costs(cell),
    }


def _panel(observer: ObserverRow) -> dict[str, Any]:
    headline = observer.headline
    return {
        "who": formatting.capital(observer.who),
        "sees": observer.sees,
        "guaranteed": observer.guaranteed,
        "blind": observer.blind,
        "grid": None if headline is None else dots.grid(headline),
        "number": None if headline is None else numeral(headline),
        "interval": "" if headline is None else _of_hundred(headline),
        "protocol": "" if headline is None else _protocol(headline),
    }


def _of_hundred(headline: Headline) -> str:
    low, high = (f"{100 * end:.0f}" for end in (headline.auc.lo, headline.auc.hi))
    return f"interval {low} to {high}; popularity {round(100 * headline.popularity_auc)}"


def _protocol(headline: Headline) -> str:
    attack = f"{formatting.capital(headline.attack)}, {formatting.rounds(headline.rounds)}"
    if headline.candidates == 1:
        return f"{attack}: the only attack that applies, measured on {headline.n_users} people."
    return (
        f"{attack}: the strongest of {headline.candidates}, chosen on {headline.selection_users} people, measured on "
        f"{headline.n_users} others."
    )


def _odds(epsilon: float, delta: float) -> list[dict[str, Any]]:
    """Strips of a suspicion before and after."""
    before = {"words": "Suspicion before", "strip": dots.strip([("d-now", 1), ("do", 99)]), "number": "1 in 100"}
    if grade(epsilon, delta) == "none":
        return [before]
    rows = [before]
    for words, value in [(f"after, at most (ε = {formatting.epsilon(epsilon)})", epsilon), ("had it been ε = 1", 1.0)]:
        after = suspicion_after(value)
        parts = [(f"d-{grade(value, delta)}", after), ("do", 100 - after)]
        rows.append({"words": words, "strip": dots.strip(parts), "number": f"{after} in 100"})
    return rows if abs(epsilon - 1) > 1e-9 else rows[:2]


def _costs(cell: Cell) -> list[tuple[str, str]]:
    cost = cell.cost
    return [
        ("Sent", f"{formatting.volume(cost.up_bytes_per_client_round)} by each device in each round"),
        ("Received", f"{formatting.volume(cost.down_bytes_per_client_round)} in each round"),
        ("Time", f"{formatting.seconds(cost.train_s)} of training, {formatting.seconds(cost.privacy_s)} of protection"),
    ]
