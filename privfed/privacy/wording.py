"""Numbers and sentences that several mechanisms say alike."""

SAME_SHAPE = "Size and shape of an upload, and whether a user takes part, do not depend on that user's data."

GRID = (
    "What leaves is a whole number of steps of a power-of-two grid: values are rounded to it, and noise is a whole "
    "number of steps with exactly the law of the ideal noise, rounded."
)

WIDENED = (
    f"{GRID} The noise is wider than its multiplier says by what rounding and float64 sums may add to the sensitivity."
)

UPLOADS_ADD_UP = "Uploads add up: epsilon of a run is not that of a round."


def number(value: float) -> str:
    """The shortest text that reads back as exactly this number, without a needless `.0`."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where there is more than one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
