"""Sums between two servers: wrong sums in many rounds of many devices, and what a device and a server pay.

    python -m benchmarks.speed.two_server_sums [--only protocol]

Run from the repository root; a count that was stopped goes on. `shares`: every device of a round splits its vector, any
30 % are silent, of a hundred of the others one part is lost, and the two sums of shares are compared with the true sum
over the uploads that are whole; parts are neither sealed nor signed. `protocol`: the same with everything that a
deployment does. `cost`: one upload and its share of the servers' work, without a proof of the norm and with one.
Seconds are of the processor; all parties are in this process.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from secure_agg.encoding import Ring
from secure_agg.two_server import Identity, KeyPair, SumClient, SumServer, SumTerms, roster_digest

DEVICES, SILENT, LOST = 1000, 0.3, 100
BITS, LENGTH = 32, 32
ROUNDS, PIECE = 10_000, 50
"""Rounds of either kind, and after how many of them the count is kept."""
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
NORM = 1 << 12
"""Bound on the norm in steps, where it is proven."""
COHORT = 10
MIN_CLIENTS = 10


class Parties:
    """The devices of a run and its two servers."""

    def __init__(self, devices: int, length: int) -> None:
        self.keys = KeyPair.generate(), KeyPair.generate()
        self.identities = [Identity.generate() for _ in range(devices)]
        self.directory = {client: identity.public for client, identity in enumerate(self.identities)}
        self.run, self.length, self.roster = secrets.token_bytes(16), length, roster_digest(self.directory)
        self.clients = [
            SumClient(
                client, identity, run=self.run, servers=self.public, roster=self.roster, min_clients=MIN_CLIENTS
            )
            for client, identity in enumerate(self.identities)
        ]  # fmt: skip

    @property
    def public(self) -> tuple[bytes, bytes]:
        """The servers' public keys."""
        return self.keys[0].public, self.keys[1].public

    def terms(self, number: int, norm: int = 0) -> SumTerms:
        """Those of one round, with a bound on the norm or without."""
        plain = SumTerms(self.run, number, 0, self.length, BITS, MIN_CLIENTS, self.public, self.roster)
        return replace(plain, bits=64, max_squared_norm=norm**2) if norm else plain

    def servers(self, terms: SumTerms) -> list[SumServer]:
        """Both, for one sum."""
        return [SumServer(terms, place, self.keys[place], self.directory, min_clients=MIN_CLIENTS) for place in (0, 1)]


def fates(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Who is silent in a round, and which parts of the others are lost, `[devices]` and `[devices, 2]`."""
    silent = np.zeros(DEVICES, bool)
    silent[draw.permutation(DEVICES)[: int(SILENT * DEVICES)]] = True
    arrives = np.repeat(~silent[:, None], 2, 1)
    losers = draw.permutation(np.flatnonzero(~silent))[:LOST]
    arrives[losers, draw.integers(0, 2, LOST)] = False
    return silent, arrives


def shares(draw: np.random.Generator, number: int, _: Parties) -> bool:
    """One round at the level of shares; whether its sum is right."""
    terms = SumTerms(bytes(16), number, 0, LENGTH, BITS, MIN_CLIENTS, PUBLIC, bytes(32))
    vectors = draw.integers(0, 2**BITS, (DEVICES, LENGTH), dtype=np.uint32)
    silent, arrives = fates(draw)
    seeds = draw.bytes(32 * DEVICES)
    sent = {
        client: terms.shares.split(b"", vectors[client], seeds[32 * client :][:32])
        for client in np.flatnonzero(~silent).tolist()
    }
    held = [{client: parts[place] for client, parts in sent.items() if arrives[client, place]} for place in (0, 1)]
    both = sorted(held[0].keys() & held[1].keys())
    sums = (terms.shares.sum(place, [held[place][client] for client in both], None) for place in (0, 1))
    total = terms.shares.combine(*sums)
    return np.array_equal(total, vectors[arrives.all(1)].sum(0, dtype=np.uint32))


def protocol(draw: np.random.Generator, number: int, parties: Parties) -> bool:
    """One round with every message; whether both servers open the right sum of the right clients."""
    terms = parties.terms(number)
    vectors = draw.integers(0, 2**BITS, (DEVICES, LENGTH), dtype=np.uint32)
    silent, arrives = fates(draw)
    servers = parties.servers(terms)
    for client in draw.permutation(np.flatnonzero(~silent)).tolist():
        for place, part in enumerate(parties.clients[client].upload(terms, vectors[client])):
            if arrives[client, place]:
                servers[place].receive(part)
    proposals = [server.propose() for server in servers]
    releases = [server.release(proposals[1 - place]) for place, server in enumerate(servers)]
    opened = [server.result(releases[1 - place]) for place, server in enumerate(servers)]
    whole = np.flatnonzero(arrives.all(1))
    true = vectors[whole].sum(0, dtype=np.uint32)
    return all(one.clients == tuple(whole.tolist()) and np.array_equal(one.total, true) for one in opened)


def cost(length: int, norm: int) -> dict[str, Any]:
    """Bytes and seconds of one device, and of a server for each device."""
    parties = Parties(COHORT, length)
    terms = parties.terms(0, norm)
    vector = terms.ring.zeros(length)
    vector[0] = norm
    start = time.process_time()
    uploads = [client.upload(terms, vector) for client in parties.clients]
    per_client, seconds, servers = (time.process_time() - start) / COHORT, [], parties.servers(terms)
    proposals, opened = list[bytes](), list[bytes]()
    for place, server in enumerate(servers):
        start = time.process_time()
        for parts in uploads:
            server.receive(parts[place])
        proposals.append(server.propose())
        seconds.append(time.process_time() - start)
    for place, server in enumerate(servers):
        start = time.process_time()
        opened.append(server.release(proposals[1 - place]))
        seconds[place] += time.process_time() - start
    if servers[0].result(opened[1]).clients != tuple(range(COHORT)):
        raise RuntimeError("an honest upload was refused")
    up, plain = sum(map(len, uploads[0])), Ring(BITS).packed_bytes(length)
    return {
        "length": length, "bits": BITS, "norm": norm, "clients": COHORT, "up_bytes": up, "vector_bytes": plain,
        "times_the_vector": round(up / plain, 3), "between_servers_bytes": len(proposals[0]) // COHORT,
        "client_cpu_ms": round(1000 * per_client, 3),
        "server_cpu_ms_per_client": [round(1000 * one / COHORT, 3) for one in seconds],
    }  # fmt: skip


def count_wrong_sums(
    record: harness.Record, name: str, one_round: Callable[[np.random.Generator, int, Parties], bool], seed: int
) -> None:
    """Go on counting where a session before this one stopped, with new keys."""
    setting = {
        "devices": DEVICES, "silent": SILENT, "lost_parts": LOST, "length": LENGTH, "bits": BITS, "seed": seed
    }  # fmt: skip
    row = record.results.get(name, {})
    if {key: row.get(key) for key in setting} != setting:
        row = {"rounds": 0, **setting, "wrong_sums": 0, "cpu_s": 0.0}
    if row["rounds"] >= ROUNDS:
        return
    parties = Parties(DEVICES, LENGTH)
    while row["rounds"] < ROUNDS:
        start, numbers = time.process_time(), range(row["rounds"], min(row["rounds"] + PIECE, ROUNDS))
        wrong = sum(not one_round(np.random.default_rng([seed, number]), number, parties) for number in numbers)
        row = row | {
            "rounds": numbers.stop, "wrong_sums": row["wrong_sums"] + wrong,
            "cpu_s": round(row["cpu_s"] + time.process_time() - start, 1),
        }  # fmt: skip
        record.put(row, name)


PUBLIC = KeyPair.generate().public, KeyPair.generate().public


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line names and is not measured yet."""
    options = harness.parse(harness.parser(__file__, __doc__, only=None, seed=0), arguments)
    # In a file of their own: sessions on other machines may add to a count, and to no timing.
    counts, record = harness.Record("two_server_rounds", options, {}), harness.Record("two_server_sums", options, {})
    for name, one_round in (("shares", shares), ("protocol", protocol)):
        if harness.chosen(name, options.only):
            count_wrong_sums(counts, name, one_round, options.seed)
    for length in LENGTHS:
        for kind, norm in (("cost", 0), ("cost with proof", NORM)):
            if harness.chosen(kind, options.only) and f"{kind}, {length}" not in record.results:
                record.put(cost(length, norm), f"{kind}, {length}")


if __name__ == "__main__":
    main()
