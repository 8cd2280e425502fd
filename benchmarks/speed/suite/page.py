"""Tables and charts of the suite: from `suite.json` into a page, between two markers, and SVG files next to it.

    python -m benchmarks.tables benchmarks/results/suite.json docs/results/performance.md

All that stands between the markers is replaced; everything else on the page stays. `suite.py` calls this at its end.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.markdown import table
from benchmarks.peers import environments
from benchmarks.speed.suite import cases
from benchmarks.speed.suite.charts import Growth, Round, growth_chart, peers_chart, rounds_chart
from benchmarks.speed.suite.work import FORMULAS, least_seconds

MIB = 2**20
CHARTS = ROOT / "docs" / "results" / "performance"
Row = Mapping[str, Any]
WHO = {"ials": "privfed, iALS", "eals": "privfed, eALS", "implicit": "implicit", "lenskit": "LensKit"}


def seconds(value: float | None) -> str:
    """Seconds to two figures that count."""
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def size(count: float) -> str:
    """Bytes in words."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:.0f} B"


def spread(values: Sequence[float]) -> str:
    """Mean, least and most."""
    mean = f"{statistics.fmean(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.4f} to {max(values):.4f})"


class Page:
    """What is written between the markers."""

    def __init__(self, file: Mapping[str, Any], charts: Path | None) -> None:
        self.machine, self.kept, self.charts = file["sessions"][-1]["machine"], file["results"], charts
        rates = self.kept.get("rates", {}).get("one thread", {})
        self.rates: Row | None = rates if "products" in rates else None

    def lines(self) -> Iterator[str]:
        """Every section that there are results for."""
        yield from self._about()
        yield from self._goals()
        yield from self._rates()
        yield from self._ratios()
        yield from self._rounds()
        yield from self._peers()
        yield from self._growth()
        yield from self._million()

    def _about(self) -> Iterator[str]:
        machine, rows = self.machine, [row for part in self.kept.values() for row in part.values()]
        loads = sorted(row["load"][0] for row in rows) or [0.0]
        days = sorted({row["at"][:10] for row in rows})
        yield "## The suite"
        yield ""
        yield (
            "`python -m benchmarks.speed.suite`, one thread, every case in a process of its own: "
            f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, Python "
            f"{machine.get('python')}; {' to '.join(dict.fromkeys((days[0], days[-1])))}. Load average while it ran: "
            f"{loads[0]:g} to {loads[-1]:g}, {loads[len(loads) // 2]:g} in the middle: read CPU-seconds. A round "
            "is everybody's round, server and all clients, without evaluation."
        )
        yield ""
        commits = Counter(self._commit(row) for row in rows)
        if len(commits) > 1:
            last = self._commit(max(rows, key=lambda row: row["at"]))
            old = [f"{count} at {commit}" for commit, count in commits.items() if commit != last]
            yield (
                f"Of {len(rows)} rows {commits[last]} were measured at commit {last}, {', '.join(old)} (a day where no "
                "commit was kept)."
            )
            yield ""

    @staticmethod
    def _commit(row: Row) -> str:
        """What measured a row, or the day where no commit was kept."""
        commit: str = row.get("commit", "")
        return commit[:9] + ("+" if " " in commit else "") if commit else row["at"][:10]

    def _goals(self) -> Iterator[str]:
        """Each goal, and the row that it is about."""
        rows = []
        for label, part, key, what, most in cases.GOALS:
            row = self.kept.get(part, {}).get(key)
            if row is None or "failed" in row:
                continue
            limit = self._limit(row) if what == "limit" else None
            if what == "limit" and limit is None:
                continue
            value = row["cpu_s"] / limit if limit else row[what]
            unit = "CPU-s" if what == "cpu_s" else f"x {cases.RATIOS[label][1] if what == 'ratio' else 'its limit'}"
            measured = seconds(value) if what == "cpu_s" else f"{value:.1f}"
            why = "" if value <= most else cases.WHY.get(label, "")
            reached = "yes" if value <= most else "no"
            rows.append([label, f"{most:g} {unit}", measured, reached, why, self._commit(row)])
        if rows:
            yield "### Goals"
            yield ""
            yield from table(["a round of", "at most", "measured", "reached", "why not", "commit"], rows, "lrrlll")

    def _ratios(self) -> Iterator[str]:
        found = {label: row for label, row in self.kept.get("ratios", {}).items() if label in cases.RATIOS}
        if not found:
            return
        yield "### Beside the same round without it"
        yield ""
        yield "In turns in one process; the ratio is that of typical rounds."
        yield ""
        rows = []
        for label, row in found.items():
            beside = cases.RATIOS[label][1]
            if "failed" in row:
                rows.append([label, f"not measured: {row['failed']}", *[""] * 4])
                continue
            numbers = [seconds(row["cpu_s"]), seconds(row["beside_cpu_s"]), f"{row['ratio']:.2f}", str(row["rounds"])]
            rows.append([f"{label}, beside {beside}", *numbers, self._commit(row)])
        yield from table(["round", "CPU-s", "beside, CPU-s", "ratio", "turns", "commit"], rows, "lrrrrl")
        steps = [
            [label, step, f"{spent['calls']:,.0f}", seconds(spent["cpu_s"])]
            for label, row in found.items()
            for step, spent in row.get("steps", {}).items()
        ]
        if steps:
            yield "Where that time goes, in one more round:"
            yield ""
            yield from table(["round", "step", "calls", "CPU-s"], steps, "llrr")

    def _rates(self) -> Iterator[str]:
        if self.rates is None:
            return
        yield "### What the machine can do"
        yield ""
        rows = [[name, f"{rate / 1e9:.1f} GFLOP/s"] for name, rate in self.rates["products"].items()]
        if "bfloat16" in self.rates:
            rows += [["square, 512, bfloat16", f"{self.rates['bfloat16'] / 1e9:.1f} GFLOP/s"]]
        rows += [["triad, 3 x 64 MiB", f"{self.rates['memory']['triad'] / 1e9:.1f} GB/s"]]
        rows += [[f"AES-128, {name}", f"{rate / 1e9:.2f} GB/s"] for name, rate in self.rates["ciphers"].items()]
        yield from table(["one thread, float32 where nothing is said", "rate"], rows)
        yield (
            "A round's limit is the least time that its counted work can take: the sum over its phases of the largest "
            "of operations, bytes and cipher bytes, each over its rate, of a square product, the triad and one long "
            "call of AES, as measured in the same process beside the round. Counted are:"
        )
        yield ""
        yield from (f"- {name}: {formula}." for name, formula in FORMULAS.items())
        yield ""
        yield (
            "n users, m items, p training pairs, d width, k negatives per positive, S = p (1 + k) samples, T distinct "
            "(user, item) pairs among them. Random words are counted besides. Exponentials, sorting, index arithmetic, "
            "eigenvalues, noise and Python are not, so nothing can reach a limit; how far a method is from it says how "
            "much is left to win at most."
        )
        yield ""

    def _limit(self, row: Row) -> float | None:
        """The limit of a row whose work was counted, at the rates that were measured beside it."""
        return least_seconds(row["work"], row["rates"]) if row.get("work") and row.get("rates") else None

    def _rounds(self) -> Iterator[str]:
        for data, name in cases.NAMES.items():
            found = {k: r for k, r in self.kept.get("rounds", {}).items() if k.startswith(data + "/")}
            if not found:
                continue
            some: Row = next((row for row in found.values() if "users" in row), {})
            yield f"### {name}"
            yield ""
            if some:
                yield f"{some['users']:,} clients, {some['items']:,} items, {some['pairs']:,} training pairs."
                yield ""
            order = {key: place for place, key in enumerate(cases.rounds([data]))}
            ordered = sorted(found, key=lambda key: order.get(key, len(order)))
            yield from self._of_data(data, {key: found[key] for key in ordered})

    def _of_data(self, data: str, found: Mapping[str, Row]) -> Iterator[str]:
        rows, marks = [], list[Round]()
        for row in found.values():
            label, limit = row["label"], self._limit(row)
            if "failed" in row:
                rows.append([label, f"not measured: {row['failed']}", *[""] * 6, self._commit(row)])
                continue
            marks.append(Round(label, row["cpu_s"], limit))
            rows.append(
                [
                    label + (" (whole run)" if row["once"] else ""),
                    seconds(row["cpu_s"]),
                    seconds(row["wall_s"]),
                    f"{row['peak_bytes'] / MIB:,.0f} MiB",
                    f"{(row['peak_bytes'] - row['imported_bytes']) / MIB:,.0f} MiB",
                    size(row["up_bytes"]),
                    size(row["down_bytes"]),
                    "" if limit is None else f"{seconds(limit)} ({row['cpu_s'] / limit:.1f} x)",
                    self._commit(row),
                ]
            )
        head = ["method", "CPU-s", "wall, s", "peak", "over imports", "up", "down", "limit, CPU-s", "commit"]
        yield from table(head, rows, "lrrrrrrrl")
        missing = [name for name in cases.methods() if f"{data}/{name}" not in found]
        if missing:
            yield f"Not measured here: {', '.join(missing)}."
            yield ""
        if marks:
            yield from self._picture(
                f"rounds-{data}", partial(rounds_chart, marks, cases.NAMES[data]), "CPU-seconds of a round"
            )

    def _peers(self) -> Iterator[str]:
        found = {name: row for name, row in self.kept.get("peers", {}).items() if "failed" not in row}
        everybody: dict[str, list[Row]] = {}
        for name, row in found.items():
            what, _, who = name.partition(", ")
            if what == "fedncf":
                everybody.setdefault(who.partition(",")[0], []).append(row)
        if "privfed" not in everybody:
            return
        yield "### Peers"
        yield ""
        ours = everybody["privfed"][0]
        rows, bars = [], []
        spending = {who: statistics.fmean(row["cpu_s"] for row in runs) for who, runs in everybody.items()}
        for who, spent in sorted(spending.items(), key=lambda pair: pair[1]):
            runs = everybody[who]
            bars.append((who, 1e3 * spent / ours["clients"]))
            rows.append(
                [
                    who,
                    seconds(spent),
                    f"{bars[-1][1]:.2f} ms",
                    f"{spent / spending['privfed']:.1f} x",
                    seconds(statistics.fmean(row["wall_s"] for row in runs)),
                    str(len(runs)),
                    *(spread([row[metric] for row in runs]) for metric in ("hr", "ndcg")),
                ]
            )
        yield (
            f"FedNCF on MovieLens-100K, {ours['clients']} clients, {ours['trained']} rounds of one local epoch, the "
            "same sizes, rates, batches and protocol (leave-one-out by time, full ranking of the test item after "
            "local training, no protection); CPU-seconds are of all processes, without the first round and the "
            "evaluated last one, and the mean over seeds. From one seed pfl and Flower have the same start and the "
            "same samples, and ours others, so ours can equal theirs only within what seeds do: mean, least and most "
            "stand together. The peers run a client as one writes it in PyTorch "
            "(`benchmarks/peers/fedncf/plain.py`)."
        )
        yield ""
        if "popularity_hr" in ours:
            rows.append(["popularity", *[""] * 5, f"{ours['popularity_hr']:.4f}", f"{ours['popularity_ndcg']:.4f}"])
        head = ["", "CPU-s a round", "a client-round", "ratio", "wall, s", "seeds", "HR@10", "NDCG@10"]
        yield from table(head, rows)
        yield from self._picture("peers", partial(peers_chart, bars), "CPU time of one client-round")
        yield from self._other_peers(found)
        yield from self._als()
        failed = {n: r["failed"] for n, r in self.kept["peers"].items() if "failed" in r}
        yield from (f"{name}: not measured ({why})." for name, why in failed.items())
        if failed:
            yield ""

    def _als(self) -> Iterator[str]:
        """Alternating least squares, ours and others'."""
        kept = self.kept["peers"]
        if not any(name.startswith("als, ") for name in kept):
            return
        rows = []
        for data in environments.ALS_DATA:
            found = {who: kept[key] for who in WHO if (key := f"als, {data}, {who}") in kept}
            done = [row for row in found.values() if "failed" not in row]
            for who, name in WHO.items():
                row = found.get(who, {"failed": "not installed where this was measured"})
                if "failed" in row:
                    rows.append([cases.NAMES[data], name, f"not measured: {row['failed']}", *[""] * 4])
                    continue
                ratio = row["cpu_s"] / found["ials"]["cpu_s"] if "cpu_s" in found.get("ials", {}) else math.nan
                quality = [f"{row[metric]:.4f}" for metric in ("hr", "ndcg")]
                times = [seconds(row["cpu_s"]), f"{ratio:.2f} x"]
                rows.append([cases.NAMES[data], name, *times, *quality, self._commit(row)])
            popular = next((row for row in done if "popularity_hr" in row), None)
            if popular is not None:
                values = [f"{popular[f'popularity_{metric}']:.4f}" for metric in ("hr", "ndcg")]
                rows.append([cases.NAMES[data], "popularity", "", "", *values, self._commit(popular)])
        yield (
            "Alternating least squares on implicit feedback, 64 columns, 16 passes, one thread, settings chosen for "
            "each on MovieLens-100K's validation items (`benchmarks/peers/als.py`): CPU-seconds of a pass, and quality "
            "after the last, ranked among all items."
        )
        yield ""
        yield from table(["data", "who", "CPU-s a pass", "ratio", "HR@10", "NDCG@10", "commit"], rows, "llrrrrl")

    def _other_peers(self, found: Mapping[str, Row]) -> Iterator[str]:
        clipping = found.get("clipping, privfed and Opacus")
        if clipping:
            said = [
                f"{who} {1e3 * clipping[f'{who}, cpu_s']:.1f} ms ({clipping[f'{who}, times']:.1f} x)"
                for who in ("privfed", "opacus", "torch.func")
            ]
            yield f"Clipping the gradients of 256 clients of a one-layer autoencoder: {', '.join(said)}."
            yield ""
        masking = found.get("masking, privfed and Flower")
        if masking:
            said = []
            for cut, name in (("floats", "floats"), ("words", "ring elements")):
                ours, theirs = (1e3 * masking[f"{cut}, {who}, cpu_s"] for who in ("ours", "flwr"))
                said.append(f"from {name} {ours:.1f} and {theirs:.0f} ms ({masking[f'{cut}, times']:.1f} x)")
            yield (
                f"Masking {masking['values']:,} values for {masking['neighbours']} neighbours, ours and Flower's "
                f"SecAgg+: {', '.join(said)}."
            )
            yield ""

    def _growth(self) -> Iterator[str]:
        found = [row for row in self.kept.get("growth", {}).values() if "failed" not in row]
        if not found:
            return
        yield "### Growth"
        yield ""
        yield (
            f"CPU-seconds of a round on made-up lists of {cases.EACH} items per user; {cases.AT_CLIENTS:,} clients, "
            f"{cases.AT_ITEMS:,} items and default settings where they do not grow (private-gram: a head of 256 "
            "items). The slope is that of a line through the logarithms, by least squares: 1 is linear growth, less "
            "is a part that does not grow, or a figure as small as a tick of the CPU clock (4 ms on many machines). A "
            "dash is a size that was not measured; the user graph needs every "
            "client's whole table, and clients x clients x items x dimension operations."
        )
        yield ""
        for axis in ("clients", "items", "dimension"):
            points = [Growth(r["label"], r["size"], r["cpu_s"]) for r in found if r["axis"] == axis]
            if not points:
                continue
            sizes, labels = sorted({p.size for p in points}), list(dict.fromkeys(p.label for p in points))
            by = {(p.label, p.size): p.cpu_s for p in points}
            rows = []
            for label in labels:
                line = [(s, by[label, s]) for s in sizes if (label, s) in by]
                values = [seconds(by[label, s]) if (label, s) in by else "-" for s in sizes]
                rows.append([label, *values, f"{slope(line):.2f}" if len(line) > 1 else ""])
            yield from table([axis, *(f"{s:,}" for s in sizes), "slope"], rows)
            yield from self._picture(
                f"growth-{axis}", partial(growth_chart, points, axis), f"CPU-seconds of a round by {axis}"
            )
        for name, row in self.kept["growth"].items():
            if "failed" in row:
                yield f"{name}: {row['failed']}."
                yield ""

    def _million(self) -> Iterator[str]:
        for row in self.kept.get("million", {}).values():
            yield "### A million clients"
            yield ""
            if "failed" in row:
                yield f"One round of FedVAE with a million clients and 10,000 items: not done, {row['failed']}."
            else:
                yield (
                    f"One round of FedVAE with {row['users']:,} clients, {row['items']:,} items and {row['pairs']:,} "
                    f"training pairs: {seconds(row['cpu_s'])} CPU-s, {seconds(row['wall_s'])} s of wall, "
                    f"{row['clients'] / row['cpu_s']:,.0f} clients per CPU-second, peak memory "
                    f"{row['peak_bytes'] / 2**30:.1f} GiB."
                )
                limit = self._limit(row)
                if limit is not None:
                    yield f"Its counted limit is {seconds(limit)} CPU-s ({row['cpu_s'] / limit:.1f} x)."
            yield ""

    def _picture(self, name: str, svg: Callable[[], str], words: str) -> Iterator[str]:
        if self.charts is not None:
            (self.charts / f"{name}.svg").write_text(svg(), encoding="utf-8")
        yield f"![{words}]({CHARTS.name}/{name}.svg)"
        yield ""


def slope(line: Sequence[tuple[float, float]]) -> float:
    """Exponent of growth: the slope of log seconds over log size, by least squares."""
    x, y = [math.log(s) for s, _ in line], [math.log(t) for _, t in line]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)
