"""Tables of `docs/guides/choosing_a_clip_norm.md`: what was measured of clip norms, and the defaults of methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table
from benchmarks.quality.clip_norms import AUTO, POPULARITY, plans
from privfed.methods import method, methods

DATA = {
    "ml-100k": "MovieLens-100K",
    "ml-1m": "MovieLens-1M",
    "tenrec-qba-small": "Tenrec QB-article",
    "douban-book-dtcdr": "Douban books",
    "lastfm-2k": "Lastfm-2k",
}
NONE = "none"

Row = Mapping[str, Any]


def measured() -> list[str]:
    """NDCG@20 on validation of a method on a data set, where all of the grid was measured, with default and `auto`."""
    rows: Sequence[Row] = results("clip_norms")
    pairs = dict.fromkeys((row["method"], row["data"]) for row in rows if row["method"] != POPULARITY)
    lines = [
        _line(name, data, rows) for name, data in sorted(pairs) if plans(name).keys() <= _own(name, data, rows).keys()
    ]
    head = ["method", "data", "popularity", "best of the grid", "at", "default", "its share", "auto", "its share"]
    return table(head, lines, "llrrrrrrr")


def _own(name: str, data: str, rows: Sequence[Row]) -> dict[str, float]:
    return {row["clip_norm"]: row["ndcg"] for row in rows if (row["method"], row["data"]) == (name, data)}


def _line(name: str, data: str, rows: Sequence[Row]) -> list[str]:
    own = _own(name, data, rows)
    popular = next(row["ndcg"] for row in rows if (row["method"], row["data"]) == (POPULARITY, data))
    best, at = max((value, norm) for norm, value in own.items() if norm != AUTO)
    default = str(next(one.norm for one in method(name).clip_norms if one.clipped == "upload"))
    cells = [method(name).display_name, DATA[data], f"{popular:.3f}", f"{best:.3f}", f"{float(at):g}"]
    for norm in (default, AUTO):
        cells += [f"{own[norm]:.3f}", f"{own[norm] / best:.0%}"] if norm in own else [NONE, NONE]
    return cells


def defaults() -> list[str]:
    """Default clip norms; where each comes from, a run prints."""
    lines = [
        [registered.display_name, f"{one.norm:g}", f"{one.of_median:g}"]
        for registered in methods().values()
        for one in registered.clip_norms
        if one.clipped == "upload"
    ]
    return table(["method", "clip norm (L2)", "over the median"], lines)
