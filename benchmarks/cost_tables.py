"""Tables of what single parts cost: shares of DFMR, masks, clipping, graphs, exchanges over Flower."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table


def dfmr_cost() -> list[str]:
    """A round of DFMR, plain and in shares; then with other code lengths."""
    rows = [
        [
            row["what"] + (f", d = {row['d']}" if "d" in row else ""),
            f"{row['cpu_s']:.3f}",
            *(f"{row[name] / 1e3:.1f}" for name in ("up_bytes", "down_bytes")),
        ]
        for row in results("dfmr_cost_jd-dfmr")
        if "n_items" not in row
    ]
    return table(["round", "CPU-s", "kB up", "kB down"], rows)


def masking() -> list[str]:
    """Every step of a masked sum, ours and Flower's SecAgg+."""
    kept, rows = results("secure_aggregation"), []
    for row in kept["masking"]:
        rows.append([f"mask {row['values']:,} values, {row['cut'].replace('words', 'ring elements')}", row])
    rows += [["share and encrypt", row] for row in kept["sharing"]]
    rows += [["rebuild a secret", row] for row in kept["recovery"]]
    body = [
        [
            step,
            str(row["neighbours"]),
            *(f"{row[f'{who}, best ms']:,.1f}" for who in ("ours", "flwr")),
            f"{row['flwr / ours']:,.1f}",
        ]
        for step, row in rows
    ]
    return table(["step of one client", "neighbours", "ours, ms", "Flower SecAgg+, ms", "ratio"], body)


def graph_edges() -> list[str]:
    """Edges of cheaper graphs that differ from the exact graph's."""
    rows = results("gpfedrec_scale")["edges / ml-100k / 20"]["result"]
    rounds = list(dict.fromkeys(row["round"] for row in rows))
    by = {(row["graph"], row["round"]): row["edges_differ"] for row in rows}
    graphs = dict.fromkeys(row["graph"] for row in rows)
    body = [[graph, *(f"{100 * by[graph, number]:.3f} %" for number in rounds)] for graph in graphs]
    return table(["graph", *(f"round {number}" for number in rounds)], body)


def exchanges() -> list[str]:
    """One exchange over Flower, beside Flower alone."""
    names = {
        "flower, pass 1": "Flower, `send_and_receive`",
        "floor, pass 1": "Flower, polled ten times a second",
        "relay, pass 1": "empty messages through ours",
        "secure sum": "secure sum of FedMF, with training",
    }
    rows = [
        [
            nodes.split()[0],
            name,
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
            *(f"{row[key] / 1e3:.1f}" for key in ("up_bytes", "down_bytes")),
        ]
        for nodes, variants in sorted(results("flower").items())
        for key, name in names.items()
        if (row := variants.get(key))
    ]
    return table(["nodes", "what", "s", "CPU-s, all processes", "kB up per node", "kB down"], rows, "llrrrr")


def losses() -> list[str]:
    """Rounds in which nodes are killed, over the loopback engine and over Flower."""
    runs = {"loopback, 10 nodes": results("nodes")["losses"], "Flower, 5 nodes": results("flower_faults")[FLOWER]}
    fields = {
        "rounds": "rounds",
        "rounds_hit": "rounds with kills or losses",
        "opened": "sums released",
        "aborted_rounds": "rounds aborted",
        "wrong_sums": "wrong sums",
        "missing_entries": "entries missing in a ledger",
    }
    body = [[words, *(f"{run[field]:,}" for run in runs.values())] for field, words in fields.items()]
    return table(["what", *runs], [*body, ["median seconds to serve again", *map(_recovery, runs.values())]])


FLOWER = "losses, patience 0 s"


def _recovery(run: Mapping[str, Any]) -> str:
    times = run.get("recovery_seconds") or run["seconds_to_serve_again"]
    return f"{times['median']:g}"


def start() -> list[str]:
    """What commands cost before they answer, and two that train to the end of their first round."""
    rows = [
        [
            f"`privfed {words}`",
            f"{row['cpu_s']:.2f}",
            f"{row['modules']:,}" if "modules" in row else "",
            (", ".join(row["heavy"]) or "none") if "modules" in row else f"first round after {row['wall_s']:.1f} s",
        ]
        for words, row in results("start").items()
    ]
    return table(["command", "CPU-s", "modules", "of torch, pandas, numba, altair, scipy's solvers"], rows, "lrrl")
