"""Tables of the documentation, each from the files of results that it shows: `benchmarks.tables` writes them."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table
from tests.engines.nodes.hostile.lies import LIES, Lie

NAMES = {
    "local-laplace": "uploads, local Laplace, epsilon0 = 0.1",
    "local-gaussian": "uploads, local Gaussian, z = 30",
    "central": "sum of one user or nobody, central Gaussian, z = 100",
    "central-known": "the same with ten others whose sum is known",
}
GRAM = "private-gram"


def spread(values: list[float], digits: int) -> str:
    """Smallest and largest, or the one value."""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def bounds(rows: list[Mapping[str, Any]]) -> str:
    """What both adversaries proved, best of them for every seed."""
    return spread([max(one["lower_bound"] for one in row["adversaries"].values()) for row in rows], 2)


def signed_sums() -> list[str]:
    """What signed terms cost in either graph."""
    rows = [
        [
            f"{row['clients']:,}",
            row["kind"],
            f"{row['neighbours']}, {row['threshold']}",
            f"{1e3 * row['client_cpu_s']:.0f}",
            f"{row['server_cpu_s']:.1f}",
            *(f"{row[name] / 1e3:,.0f}" for name in ("up_bytes", "down_bytes")),
        ]
        for row in sorted(results("signed_sums").values(), key=lambda row: (row["clients"], row["kind"]))
    ]
    head = ["clients", "terms, graph", "neighbours, threshold", "CPU-ms per client", "CPU-s of the server"]
    return table([*head, "kB up per client", "kB down"], rows, "rllrrrr")


def two_servers() -> list[str]:
    """What a sum between two servers costs, without a proof of the norm and with one, and the wrong sums of many."""
    measured, counted = results("two_server_sums"), results("two_server_rounds")
    rows = [
        [
            f"{row['length']:,}",
            f"norm up to {row['norm']:,} steps" if row["norm"] else "none",
            f"{row['up_bytes'] / 1e3:,.1f}",
            f"{row['times_the_vector']:.2f}",
            f"{row['client_cpu_ms']:.1f}",
            " and ".join(f"{seconds:.1f}" for seconds in row["server_cpu_ms_per_client"]),
            f"{row['between_servers_bytes']:,}",
        ]
        for row in sorted(
            measured.values(),
            key=lambda row: (row["norm"], row["length"]),
        )
    ]
    rounds = "; ".join(
        f"{counted[name]['wrong_sums']} wrong sums in {counted[name]['rounds']:,} rounds {how}"
        for name, how in (("shares", "of shares"), ("protocol", "of all messages"))
    )
    first = counted["shares"]
    losses = f"any {first['silent']:.0%} silent and {first['lost_parts']} parts lost"
    head = ["elements", "proof", "kB up per client", "times 32 bits", "CPU-ms per client", "CPU-ms of servers 0 and 1"]
    return [
        *table([*head, "bytes between servers"], rows, "rlrrrrr"),
        f"{first['devices']:,} devices, {losses}: {rounds}.",
    ]


def two_server_nodes() -> list[str]:
    """What private-gram takes over nodes, under masks and between two servers."""
    head = ["nodes", "sums", "exchanges", "kB up per node", "kB down per node", "CPU-s per node", "kB of the helper"]
    rows = [
        [
            str(row["nodes"]),
            row["sums"],
            str(row["exchanges"]),
            *(f"{row[key] / 1e3:.1f}" for key in ("up_bytes", "down_bytes")),
            f"{row['cpu_seconds']:.2f}",
            f"{row['helper_bytes'] / 1e3:.1f}" if row["helper_bytes"] else "",
            "yes" if row["same_model"] else "no",
        ]
        for row in results("two_server_nodes").values()
    ]
    return table([*head, "the simulation's model to the bit"], rows, "rlrrrrrl")


def two_server_lies() -> list[str]:
    """Who can do what between two servers, and the test that shows what comes of it."""
    found = dict[str, list[Lie]]()
    for lie in LIES:
        if "between_two_servers" in lie.test:
            found.setdefault(lie.test.partition("[")[0], []).append(lie)
    rows = []
    for test, lies in found.items():
        told = [lie.lie.split() for lie in lies]
        alike = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*told, strict=False)))
        shown = "; ".join([lies[0].lie, *(" ".join(words[alike:]) for words in told[1:])])
        liar = lies[0].liar.removesuffix(", two servers")
        rows.append([liar, shown, lies[0].outcome, f"`tests/engines/nodes/hostile/{test}`"])
    return table(["who", "does", "comes of it", "shown by"], rows, "llll")


def float_noise() -> list[str]:
    """What released bits gave away."""
    old, new = (results(f"float_noise_{library}")["experiments"] for library in ("before", "after"))
    rows = []
    for key, name in NAMES.items():
        denied = [
            f"{sum(any(one['denied'] for one in row['adversaries'].values()) for row in rows)} of {len(rows)}"
            for rows in (old[key], new[key])
        ]
        claimed = f"{old[key][0]['claimed']:.3g}"
        rows.append([name, claimed, bounds(old[key]), bounds(new[key]), *denied])
    shares = {
        who: [
            spread([100 * row["adversaries"]["knows the sampler"][f"flagged_of_{who}"] for row in rows], 0)
            for rows in (old[GRAM], new[GRAM])
        ]
        for who in ("one", "nobody")
    }
    return [
        *table(["released", "claimed", "at least, before", "at least, now", "denied, before", "denied, now"], rows),
        f"Epsilon of one person with 95 % confidence, smallest and largest over {len(old[GRAM])} seeds before and "
        f"{len(new[GRAM])} now, of the better of two adversaries: one knows the sampler, the other only compares bits. "
        f"private-gram on MovieLens-100K at z = 4.6: of the items that exactly one person has, the adversary said "
        f"that somebody has them of {shares['one'][0]} % before and {shares['one'][1]} % now; of the items that nobody "
        f"has, of {shares['nobody'][0]} % before, which made it a proof, and {shares['nobody'][1]} % now.",
    ]


def grid_cost() -> list[str]:
    """CPU-seconds before and after."""
    return table(
        ["case", "before", "now", "ratio"],
        [
            [row["case"], *(f"{s:.3f}" for s in (row["before_cpu_s"], row["after_cpu_s"])), f"{ratio(row):.2f}"]
            for row in results("rounds_noise")
        ],
    )


def ratio(row: Mapping[str, Any]) -> float:
    """CPU-seconds now over those before."""
    return float(row["after_cpu_s"] / row["before_cpu_s"])


def planted_faults() -> list[str]:
    """Fault by fault, which check caught it."""
    rows = results("planted_faults")["faults"]
    return [
        *table(
            ["fault", "planted in", "caught by"],
            [[row["fault"], row["planted in"], ", ".join(row["caught by"]) or "nothing"] for row in rows],
            "lll",
        ),
        f"{sum(row['caught'] for row in rows)} of {len(rows)} end the audit with a contradiction that says what is "
        "wrong. Whether the test suite without any audit would fail was not measured.",
    ]


def accounting_oracles() -> list[str]:
    """The product's epsilons, and the bounds of oracles that share no code with it."""
    head = ["releases", "delta", "accountant", "epsilon", "oracle, at least", "at most", "oracle"]
    rows = [
        [
            " and ".join(described(release) for release in row["releases"]),
            f"{row['delta']:.2g}",
            row["accountant"],
            *(f"{row[name]:.5f}" for name in ("epsilon", "oracle_low", "oracle_high")),
            row["oracle"],
        ]
        for row in results("accounting_oracles")["settings"]
    ]
    return table(head, rows, "lrlrrrl")


def described(release: Mapping[str, Any]) -> str:
    """A release in words."""
    if release["kind"] == "laplace":
        return f"{release['times']} x Laplace {release['epsilon0']:g}"
    sampled = f", rate {release['rate']:g}" if "rate" in release else ""
    return f"{release['times']} x Gaussian {release['z']:g}{sampled}"


def wire_compression() -> list[str]:
    """Bytes, seconds, quality, error and what an attack reads, for every way to shorten uploads."""
    head = ["variant", "plan", "bytes up", "CPU-s a round", "NDCG@10", "sums err by, in clips", "epsilon"]
    rows = []
    for name, row in results("wire_compression")["variants"].items():
        value, low, high = row["ndcg@10"]
        rows.append(
            [
                name,
                f"`{row['plan']}`",
                f"{row['up_bytes_per_client_round']:,.0f}",
                f"{row['cpu_seconds_per_round']:.2f}",
                f"{value:.4f} [{low:.4f}, {high:.4f}]",
                error_of_a_sum(row),
                row["epsilon"] if row["epsilon"] == "inf" else f"{row['epsilon']:.4g}",
                ", ".join(f"{auc:.3f}" for auc, *_ in row["eigenvector"].values()),
            ]
        )
    return table([*head, "AUC: all, moved rows"], rows, "l" * 8)


def error_of_a_sum(row: Mapping[str, Any]) -> str:
    """What the plan says of the error of a sum, in clip norms."""
    error, clip = row["error_of_a_sum"], re.search(r"clip_norm=([\d.]+)", row["plan"])
    if error is None or clip is None:
        return ""
    shown = f"{error['largest'] / float(clip[1]):.2g} at most"
    return shown if error["deviation"] is None else f"{shown}, deviation {error['deviation'] / float(clip[1]):.2g}"


def gpfedrec_graphs() -> list[str]:
    """A round of GPFedRec with every kind of graph, and its counted limit."""
    rows = [
        [
            row["result"]["case"],
            *(f"{row['result'][name]:.2f}" for name in ("cpu_s_per_round", "limit_s")),
            f"{row['result']['times_the_limit']:.1f}",
            f"{row['result']['peak_rss_mb']:,} MB",
        ]
        for key, row in results("gpfedrec_scale").items()
        if key.startswith("cost / ml-100k / ") and key.endswith(" / 5 / 1")
    ]
    return table(["graph", "CPU-s a round", "its counted limit", "times the limit", "peak memory"], rows)


def scale_out() -> list[str]:
    """One simulation in one process and in two."""
    head = ["case", "privacy", "wall, s, one / two", "ratio", "CPU-s, one / two", "MB, one / each of two"]
    rows, kept = [], results("scale_out")
    for name in dict.fromkeys(row["case"] for row in kept):
        one, two = (next(r for r in kept if (r["case"], r["processes"]) == (name, count)) for count in (1, 2))
        rows.append(
            [
                name,
                one["privacy"],
                f"{one['wall_s']:.3g} / {two['wall_s']:.3g}",
                f"{one['wall_s'] / two['wall_s']:.2f}",
                f"{one['cpu_s']:.3g} / {two['cpu_s']:.3g}",
                *(f"{listed(one[key])} / {listed(two[key])}" for key in ("mb_each", "private_mb_each")),
                "to the bit" if one["model"] == two["model"] else "to rounding",
            ]
        )
    return table([*head, "MB of private tensors", "same model"], rows, "llrrrrrl")


def listed(values: Sequence[float]) -> str:
    """Numbers with commas between them."""
    return ", ".join(f"{value:g}" for value in values)


def flower_parity() -> list[str]:
    """Whether a run over Flower equals the simulation."""
    head = ["method", "plan", "public numbers", "tensors equal to the bit", "ledgers equal", "exchanges", "kB per node"]
    rows = [
        [
            method,
            f"`{row['plan']}`",
            f"{row['numbers']:,}",
            *("yes" if row[name] else "no" for name in ("tensors_equal", "ledgers_equal")),
            str(row["exchanges"]),
            f"{row['bytes_per_node'] / 1e3:,.0f}",
        ]
        for method, row in results("flower_parity").items()
    ]
    return table(head, rows, "llrllrr")


def devices() -> list[str]:
    """What a device that is one user pays for a round."""
    rows = [
        [
            method + (", once" if row["rounds"] == 1 else ""),
            f"`{row['plan']}`",
            f"{row['exchanges']:g}",
            *(f"{row[name] / 1e6:.3f}" for name in ("up_bytes", "down_bytes")),
            f"{1e3 * row['cpu_seconds']:.0f}",
            str(row["mb_over_idle"]),
        ]
        for method, row in results("nodes")["devices"].items()
    ]
    return table(["method", "plan", "exchanges", "MB up", "MB down", "CPU-ms", "MB of memory"], rows, "llrrrrr")


def signed_rounds() -> list[str]:
    """What a round over nodes takes, with and without signatures on messages."""
    rows = [
        [
            *name.split(", "),
            f"{row['exchanges']:g}",
            *(f"{row[key] / 1e3:,.0f}" for key in ("up_bytes", "down_bytes")),
            f"{1e3 * row['cpu_s']:,.0f}",
        ]
        for name, row in results("nodes")["costs"].items()
    ]
    return table(["nodes", "messages", "exchanges", "kB up", "kB down", "CPU-ms, all parties"], rows, "llrrrr")


def lying_rounds() -> list[str]:
    """Rounds among nodes that lie and nodes that are killed."""
    row = results("nodes")["liars"]
    shown = {
        "rounds": row["rounds"],
        "kills": sum(row["faults"].values()),
        "replies that were not used": row["incidents"],
        "sums opened": row["opened"],
        "rounds aborted": row["aborted_rounds"],
        "wrong sums": row["wrong_sums"],
        "entries missing in a ledger": row["missing_entries"],
        "liars excluded, of 3": row["excluded"],
        "honest nodes excluded": row["honest_excluded"],
    }
    return table(["what", "number"], [[name, f"{number:,}"] for name, number in shown.items()], "lr")


def empirical_epsilon(name: str) -> list[str]:
    """What estimators make of mechanisms whose epsilon is known."""
    kept = results("empirical_epsilon")[name]
    numbers = re.compile(r"[\d.,%]*")
    columns = zip(*kept["rows"], strict=True)
    align = "".join("r" if all(numbers.fullmatch(cell) for cell in column) else "l" for column in columns)
    return table(kept["head"], kept["rows"], align)
