"""Tables of `docs/guides/choosing_a_clip_norm.md`: what was measured of clip norms, and the defaults of methods."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table
from benchmarks.quality.clip_norms import AUTO, POPULARITY, best, default_clip
from privfed.methods import method, methods

DATA = {
    "ml-100k": "MovieLens-100K",
    "ml-1m": "MovieLens-1M",
    "tenrec-qba-small": "Tenrec QB-article",
    "douban-book-dtcdr": "Douban books",
    "lastfm-2k": "Lastfm-2k",
}

Row = Mapping[str, Any]


def measured() -> list[str]:
    """NDCG@20 on validation, means over seeds: what was best of a grid with another seed, the default and `auto`."""
    rows: Sequence[Row] = results("clip_norms")
    pairs = sorted({(row["method"], row["data"]) for row in rows if row["clip_norm"] == AUTO and row["seed"]})
    head = ["method", "data", "popularity", "best of the grid", "at", "default", "its share", "auto", "its share"]
    return table(head, [_line(name, data, rows) for name, data in pairs], "llrrrrrrr")


def _line(name: str, data: str, rows: Sequence[Row]) -> list[str]:
    popular = next(row["ndcg"] for row in rows if (row["method"], row["data"]) == (POPULARITY, data))
    at = best(rows, data, name)

    def again(clip_norm: str) -> float:
        wanted = (data, name, clip_norm)
        own = [row for row in rows if row["seed"] and (row["data"], row["method"], row["clip_norm"]) == wanted]
        return statistics.fmean(row["ndcg"] for row in own)

    cells = [method(name).display_name, DATA[data], f"{popular:.3f}", f"{again(at):.3f}", f"{float(at):g}"]
    for norm in (str(default_clip(name)), AUTO):
        cells += [f"{again(norm):.3f}", f"{again(norm) / again(at):.0%}"]
    return cells


def defaults() -> list[str]:
    """Default clip norms; where each comes from, a run prints."""
    lines = [
        [registered.display_name, f"{one.norm:g}", f"{one.of_median:g}"]
        for registered in methods().values()
        for one in registered.clip_norms
        if one.clipped == "upload"
    ]
    return table(["method", "clip norm (L2)", "auto, over the median"], lines)
