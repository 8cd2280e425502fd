"""Tables as LaTeX, in the style of the booktabs package, which is all that a paper has to load."""

from collections.abc import Sequence

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "ε": r"$\varepsilon$",
    "−": r"$-$",  # noqa: RUF001 - a real minus sign
    "–": "--",  # noqa: RUF001 - a range
    "\N{NO-BREAK SPACE}": "~",
    "\n": " ",
}


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def booktabs(heads: Sequence[str], lines: Sequence[Sequence[str]], *, texts: int, caption: str, label: str) -> str:
    """A floating table; the first `texts` columns are flush left, the others flush right.

    Args:
        heads: One per column.
        lines: Cells as people read them; everything is escaped here.
        texts: Number of leading columns of words.
        caption: A sentence.
        label: After "tab:".

    Returns:
        The source, ending in a newline.
    """
    columns = "l" * texts + "r" * (len(heads) - texts)
    rows = [" & ".join(map(escape, line)) + r" \\" for line in (heads, *lines)]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{escape(caption)}}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            f"    {rows[0]}",
            r"    \midrule",
            *(f"    {row}" for row in rows[1:]),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )
