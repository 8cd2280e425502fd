"""Names and numbers as people read them: here a slug becomes words, and a float becomes text."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from privfed.methods import UnknownMethodError
from privfed.setup import display_name

if TYPE_CHECKING:
    from privfed.audit.report.records import LinkRow, Setting, TierClaimRow
    from privfed.privacy.guarantee import TierClaim

TAPS = {
    "raw": "on the device, before the mechanism",
    "wire": "what one client sends",
    "support": "which rows a client sends",
    "sum": "the sum over clients",
    "model": "the finished model",
    "scores": "what a device shows its own user",
}
TRUST = {
    "none": "nobody: there is no privacy mechanism to trust",
    "local": "nobody but the person's own device",
    "distributed": "enough honest clients, or one honest aggregator, besides the device",
    "central": "the server, which adds the noise",
}
UNITS = {
    "user": "everything one person contributes",
    "user_round": "one person's upload in one round",
    "upload": "one person's upload in one round",
    "interaction": "one interaction of one person",
}
NEIGHBOURS = {
    "replace_one": "{data} replaced by any other",
    "add_or_remove_one": "{whole} present or absent",
    "zero_out_one": "{data} replaced by zeros",
}
METRICS = {"hr": "HR", "ndcg": "NDCG", "recall": "Recall", "mrr": "MRR", "precision": "Precision"}
STATES = {"private": "the model on each person's device", "received": "the model as the server sends it"}

_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905 - readable
_TIED = (
    (" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"),
    (" %", "\N{NO-BREAK SPACE}%"),
    ("ank-1", "ank\N{NON-BREAKING HYPHEN}1"),
)
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def method_name(slug: str) -> str:
    """The display name that a method declares, and its preset; that of a method that is not installed as it is."""
    try:
        return display_name(slug)
    except UnknownMethodError:
        return slug.replace("_", " ")


def file_name(name: str) -> str:
    """A name that a file can have everywhere."""
    return re.sub(r"[^\w-]+", "-", name)


def named(names: dict[str, str], slug: str) -> str:
    """The human name of a slug; an unknown slug is shown as it is, with spaces."""
    return names.get(slug, slug.replace("_", " "))


def compared(neighbours: str, unit: str) -> str:
    """The two worlds of a guarantee: what comes and goes is a person, or less where the unit is less."""
    less = {"interaction": "one interaction of one person", "upload": "one upload"}.get(unit)
    return named(NEIGHBOURS, neighbours).format(data=less or "one person's data", whole=less or "one person")


def setting(one: "Setting") -> str:
    """A setting's name, long decimals rounded for reading; the plan "none" is called no privacy mechanism."""
    if one.name == "none":
        return "no privacy mechanism"
    return re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.4g}", one.name)


def capital(text: str) -> str:
    """The text with its first letter raised and the rest untouched."""
    return text[:1].upper() + text[1:]


def slug(text: str) -> str:
    """Lower-case letters, digits and underscores only, for file names and anchors."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def typeset(text: str) -> str:
    """Text for the page: powers of ten raised, and no line broken at " = ", " %" or "rank-1"."""
    text = re.sub(r"10\^(-?\d+)", lambda power: f"10{power[1].translate(_SUPERSCRIPT)}", text)
    for loose, tied in _TIED:
        text = text.replace(loose, tied)
    return text


def metric(name: str, k: int) -> str:
    """For example "NDCG@10"."""
    return f"{named(METRICS, name)}@{k}"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun, for example "1 seed" or "100,000 interactions"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def in_words(number: int) -> str:
    """A small number as a word, from thirteen on as a number."""
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def listed(items: list[str]) -> str:
    """Items joined as in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def share(value: float) -> str:
    """A rate or score between 0 and 1 with three decimals, "n/a" where it was not measured."""
    return "n/a" if math.isnan(value) else f"{value:.3f}".replace("-0.000", "0.000")


def floor2(value: float) -> str:
    """Two decimals, never rounded up to a certainty that is not there."""
    return f"{min(math.floor(100 * value + 1e-9), 99 if value < 1 else 100) / 100:.2f}"


def signed(value: float) -> str:
    """A difference with its sign, the minus being a real minus."""
    text = share(abs(value))
    if text in {"0.000", "n/a"}:
        return text
    return ("−" if value < 0 else "+") + text  # noqa: RUF001 - a real minus sign


def percent(change: float) -> str:
    """A relative change with its sign, a real minus where it is one."""
    sign = "−" if change < 0 else "+"  # noqa: RUF001 - a real minus sign
    return f"{sign}{abs(change):.0%}".replace("%", " %")


def epsilon(value: float) -> str:
    """Epsilon to three significant digits, or the sign for infinity."""
    if math.isinf(value):
        return "∞"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def tiers(claims: "Sequence[TierClaim | TierClaimRow]") -> str:
    """What each tier gets, in a few words: careful 1 (0.8 of users), generous 8 (0.2)."""
    return ", ".join(
        f"{claim.name} {claim.epsilon:.3g} ({claim.share:.3g}{'' if at else ' of users'})"
        for at, claim in enumerate(claims)
    )


def delta(value: float) -> str:
    """Delta as "0" or with a power of ten."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(value) + 1e-9)
    lead = value / 10**exponent
    return f"10^{exponent}" if abs(lead - 1) < 1e-6 else f"{lead:.2g} x 10^{exponent}"


def in_hundred(auc: float) -> str:
    """An AUC as "times in 100": how often a member scores above a non-member."""
    rounded = round(100 * auc)
    if rounded == 100 and auc < 1:
        return "more than 99 times in 100"
    return f"{rounded} times in 100"


def volume(n_bytes: float) -> str:
    """Bytes in decimal units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def seconds(value: float) -> str:
    """Seconds, or minutes and seconds from two minutes on."""
    if value >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def rounds(numbers: list[int]) -> str:
    """For example "round 40" or "rounds 10 to 40 (4)"."""
    if not numbers:
        return "no round"
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    return f"{len(numbers)} rounds, {min(numbers)} to {max(numbers)}"


def link(row: "LinkRow") -> str:
    """Who is found again from one round to another, beside chance, as a clause."""
    (first, second), named, auc = row.rounds, row.accuracy, row.auc
    return (
        f"had pseudonyms changed between rounds {first} and {second}, uploads alone would name {named.value:.0%} of "
        f"{count(row.n_users, 'person', 'people')} again [{named.lo:.0%}, {named.hi:.0%}], where chance names "
        f"{row.chance:.0%}; a person's own two uploads are told from those of two people with an AUC of "
        f"{share(auc.value)} [{share(auc.lo)}, {share(auc.hi)}] (by {row.attack}, chosen on "
        f"{count(row.selection_users, 'other person', 'other people')})"
    )


def rounds_short(numbers: list[int]) -> str:
    """For chart labels, for example "round 40" or "4 rounds"."""
    return rounds(numbers) if len(numbers) < 2 else f"{len(numbers)} rounds"
