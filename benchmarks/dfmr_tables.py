"""What DFMR costs beside what its slides say: space, bytes sent, CPU-seconds, by bits of a code and by catalogue."""

from collections.abc import Iterator, Mapping

from benchmarks.figures import Row, named
from benchmarks.harness import RESULTS, results
from benchmarks.markdown import table
from benchmarks.paper_tables import paper

DATA = {
    "jd-dfmr": "JD",
    "tmall-dfmr": "Tmall",
    "ub-dfmr": "UB",
    "ml-100k-behaviours": "ML10M",
}
MB = 2**20
"""The slides' megabyte: their sizes are those of 64-bit numbers and of bits in it."""
CACHE, NO_CACHE = "DFMR (w/ cache)", "DFMR (w/o cache)"
CODES = ("codes", "own codes")


def sources(part: str) -> tuple[str, ...]:
    """Files of the data sets that were measured."""
    files = (f"dfmr_{part}_{data}" for data in DATA)
    return tuple(name for name in files if (RESULTS / f"{name}.json").exists())


def measured(part: str) -> Iterator[tuple[str, list[Row]]]:
    """Every data set, as the slides name it, and its rows."""
    for name in sources(part):
        yield DATA[name.removeprefix(f"dfmr_{part}_")], results(name)


def printed(result: str, data: str, row: str, bits: int) -> str:
    """The slides' number in brackets, where they have one."""
    known = next(one for one in paper("dfmr")["results"] if one["id"] == result)
    value = known["numbers"].get(data, {}).get(row, {}).get(f"d = {bits}")
    return "" if value is None else f" ({value:g})"


def megabytes(number: float) -> str:
    """Bytes in the slides' megabytes."""
    return f"{number / MB:.3g}"


def kept(row: Row, party: str, *, cache: bool = True) -> int:
    """Bytes of all tensors of a party, or of its codes alone."""
    return sum(size for name, size in row["kept"][party].items() if cache or name in CODES)


def space() -> list[str]:
    """Megabytes of server and device."""
    body, bits = [], in_bits("space")
    for data, rows in measured("space"):
        by_bits = [row for row in rows if "share" not in row]
        for party in ("server", "client"):
            for name, sizes in of_party(by_bits, party).items():
                row, result = f"{party}: {name}", f"space-{data.lower()}"
                body.append(
                    [data, row, *(f"{megabytes(sizes[d])}{printed(result, data, row, d)}" for d in bits if d in sizes)]
                )
    return [
        "`python -m benchmarks.quality.dfmr_costs space --data jd-dfmr`: megabytes (2^20 bytes) of tensors "
        "that server and device keep, those of optimisers included; in brackets what the slides say. Ours are "
        "32-bit numbers, theirs have 64 bits. Without the cache there are codes alone: two tables at the "
        "server in the slides, one here. *At work* is all that is held after a round, a byte for every sign. "
        "ML10M: its 3,633 items, one person of MovieLens-100K.",
        "",
        *table(["data", "row", *(f"d = {d}" for d in bits)], body, "ll" + "r" * len(bits)),
    ]


def of_party(rows: list[Row], party: str) -> dict[str, dict[int, float]]:
    """Row of the slides -> bits -> bytes."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        codes = row["row"] == "DFMR"
        found.setdefault(CACHE if codes else row["row"], {})[row["bits"]] = kept(row, party)
        if codes:
            found.setdefault(NO_CACHE, {})[row["bits"]] = kept(row, party, cache=False)
            found.setdefault("DFMR, at work", {})[row["bits"]] = row["at work"][party]
    return found


def in_bits(part: str) -> list[int]:
    """Widths that were measured."""
    return sorted({row["bits"] for _, rows in measured(part) for row in rows})


def items() -> list[str]:
    """Megabytes of codes of 32 bits by size of the catalogue."""
    body = []
    for data, rows in measured("space"):
        for row in (row for row in rows if "share" in row):
            sizes = [kept(row, party, cache=cache) for party in ("server", "client") for cache in (True, False)]
            at_work = [row["at work"][party] for party in ("server", "client")]
            body.append([data, f"{row['n_items']:,}", *map(megabytes, (*sizes, *at_work))])
    head = [f"{party}, {what} cache" for party in ("server", "client") for what in ("with", "without")]
    return [
        "The same of DFMR with d = 32 by size of the catalogue.",
        "",
        *table(["data", "items", *head, "server at work", "client at work"], body),
    ]


def communication() -> list[str]:
    """Megabytes that a device sends and receives in a round."""
    body, bits = [], in_bits("communication")
    for data, rows in measured("communication"):
        for name in dict.fromkeys(row["row"] for row in rows):
            found = {row["bits"]: f"{megabytes(row['up'])} + {megabytes(row['down'])}" for row in named(rows, row=name)}
            cells = [found[d] + printed("communication", data, name, d) if d in found else "" for d in bits]
            body.append([data, name, *cells])
    return [
        "`dfmr_costs communication`: megabytes of a device in a round, sent + received; in brackets what the "
        "slides say. With fake items: shares between two aggregators, and as many fake items as a person has.",
        "",
        *table(["data", "row", *(f"d = {d}" for d in bits)], body, "ll" + "r" * len(bits)),
    ]


def cell(seconds: Mapping[int, float], d: int, printed: str) -> str:
    """Seconds and the slides', or nothing where it was not measured."""
    return f"{seconds[d]:.2g}{printed}" if d in seconds else ""


def times() -> list[str]:
    """CPU-seconds of server and device."""
    body, bits = [], in_bits("time")
    for data, rows in measured("time"):
        for party in ("server", "client"):
            for name in dict.fromkeys(row["row"] for row in rows):
                found = {row["bits"]: row[party] for row in named(rows, row=name)}
                row = f"{party}: {CACHE if name == 'DFMR' else name}"
                if any(found.values()):
                    result = f"time-{data.lower()}"
                    body.append([data, row, *(cell(found, d, printed(result, data, row, d)) for d in bits)])
    return [
        "`dfmr_costs time`: CPU-seconds of one round, least of five; in brackets the slides' seconds on their "
        "machine. A device takes its share of queries, sums included; central methods ask devices for "
        "nothing.",
        "",
        *table(["data", "row", *(f"d = {d}" for d in bits)], body, "ll" + "r" * len(bits)),
    ]
