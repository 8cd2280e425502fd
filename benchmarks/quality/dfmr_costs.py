"""What DFMR and its comparison methods cost by bits of a code and by size of the catalogue: time, space, bytes sent.

    python -m benchmarks.quality.dfmr_costs space --data jd-dfmr
    python -m benchmarks.quality.dfmr_costs communication --data jd-dfmr
    python -m benchmarks.quality.dfmr_costs time --data jd-dfmr

`space` counts the bytes of tensors. Sizes depend on catalogue and bits alone, so one person is enough: a server keeps
its `state()`; a device keeps its private state and the message from which it recommends; "at work" is every array that
server or device holds after a round of training. `communication` counts what a device sends and receives in a round:
everybody's mean for codes, and that of 200 people drawn for vectors. `time` is CPU-seconds of whole
rounds, the least of five after the first: a server's are those outside of queries, a device's its share of those
within, sums included. Results go to `benchmarks/results/dfmr_<part>_<data>.json`. One process, one thread.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from benchmarks import harness
from benchmarks.quality.dfmr import DATA, EXAMINATIONS, ROUNDS_TIMED, on_catalogue
from benchmarks.running import ForwardingFederation, simulation_of
from privfed.contracts import Schema
from privfed.data import Split, load, split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Cohort, Federation, Individual, Message, Server, Total
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

WIDTH = {"MF": "dim", "eALS": "dim", "VALS": "dim", "MF_FedAVG": "dim", "FedGNN": "dim", "DCF": "d", "DFMR": "d"}
METHODS: dict[str, dict[str, Any]] = {
    "MF": {"name": "logmf:published"},
    "eALS": {"name": "eals:published"},
    "VALS": {"name": "vals:published"},
    "MF_FedAVG": {"name": "fedmf:published"},
    "FedGNN": {"name": "fedpergnn:published"},
    "DCF": {"name": "dcf:published"},
    "DFMR": {"name": "dfmr:published"},
}
VIEWING = {"VALS", "DFMR"}
CODES = {"start": "own", "start_sweeps": 0, "bits": 16}
"""Codes that are drawn, and weights on a grid coarse enough for the widest: sizes depend on neither."""
CATALOGUE = {"ml-100k-behaviours": 3_633}
"""Items of the paper's data set where another stands in its place."""
STORED = ("MF", "eALS", "VALS", "FedGNN", "DCF", "DFMR")
FEDERATED = ("MF_FedAVG", "FedGNN", "DCF", "DFMR")
TIMED = ("eALS", "VALS", "DCF", "DFMR")
BITS = (8, 16, 32, 64, 128, 256)
BITS_TIMED = (2, 4, 8, 16, 32)
SHARES = (0.25, 0.5, 1.0, 2.0)
"""Sizes of a catalogue, as shares of the real one."""
SAMPLE = 200
"""People whose uploads of whole vectors are counted."""
FAKE_ITEMS = "shared-sum:padding.kind=fake_items,padding.rho=1"
"""Shares between two aggregators, and as many fake items as a person has."""
SENT = {"MF_FedAVG": "", "FedGNN": "", "DFMR (w/ cache)": "", "DFMR (w/ cache), fake items": FAKE_ITEMS}
"""Row -> plan."""
BINARY = ("DCF", "DFMR")


def experiment_of(data: str, parts: Split, row: str, bits: int, plan: str = "") -> Experiment:
    """A row's method with vectors or codes of this width, in the open where no plan is named."""
    method = METHODS[row] | {WIDTH[row]: bits} | (CODES if row in BINARY else {})
    if row in VIEWING and data in EXAMINATIONS:
        method |= {"examinations": EXAMINATIONS[data]}
    release = "total" if row in FEDERATED else "individual"
    privacy = PrivacyPlan.parse(plan) if plan else PrivacyPlan.named("none", release=release)
    config = ExperimentConfig(
        data=data, split=parts.spec, method=method, privacy=privacy, rounds=ROUNDS_TIMED,
        taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts)


def missing(record: harness.Record, options: argparse.Namespace, row: str, **key: float) -> bool:
    """Whether a row is asked for and was not measured yet."""
    return harness.chosen(row, options.only) and not record.has(row=row, **key)


def people(parts: Split, users: Int64[np.ndarray, " people"]) -> Split:
    """The same catalogue with these people alone."""
    train, valid, test = (part.subset(users) for part in (parts.train, parts.valid, parts.test))
    auxiliary = {name: rows.subset(users) for name, rows in parts.auxiliary.items()}
    return replace(parts, train=train, valid=valid, test=test, auxiliary=auxiliary, ratings=None, attributes=None)


def middle(parts: Split, number: int) -> Split:
    """So many people of median activity."""
    order = np.argsort(parts.train.counts, kind="stable")
    first = (len(order) - number) // 2
    return people(parts, order[first : first + number])


# Space ----------------------------------------------------------------------------------------------------------------


def held_bytes(*parties: object) -> int:
    """Bytes of all arrays and tensors that can be reached from parties, each buffer once."""
    buffers: dict[int, int] = {}
    seen, waiting = set[int](), list[object](parties)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            buffers[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
            buffers.setdefault(one.__array_interface__["data"][0], one.nbytes)
        else:
            waiting += parts_of(one)
    return sum(buffers.values())


def parts_of(one: object) -> list[object]:
    """What an object of ours, or a collection, refers to."""
    if isinstance(one, Mapping):
        return list(one.values())
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    if not type(one).__module__.startswith("privfed."):
        return []
    slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
    return [*getattr(one, "__dict__", {}).values(), *(getattr(one, name, None) for name in slots)]


def kept_bytes(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of named tensors."""
    return {name: int(tensor.nbytes) for name, tensor in tensors.items()}


def at_rest(experiment: Experiment) -> dict[str, dict[str, int]]:
    """What a server and its only device keep between rounds, tensor by tensor."""
    message = experiment.server.public()
    # A device keeps its own rows of what is addressed to single ones.
    received = dict(message.shared) | {name: rows[0] for name, rows in message.personal.items()}
    own = {f"own {name}": rows[:][0] for name, rows in experiment.clients.state().items()}
    return {"server": kept_bytes(experiment.server.state()), "client": kept_bytes(received | own)}


def codes_by_formula(n_items: int, d: int, *, balanced: bool) -> dict[str, int]:
    """Bytes that a server and a device of DFMR keep: a bit for every sign, and the balance in 64-bit numbers."""
    codes, balance = n_items * -(-d // 8), 8 * (d * d + d)
    # Beside them a server keeps whether it has begun (a byte) and a count (8); a device its own code, a byte a sign.
    return {"server": codes + balance + 9, "client": codes + (balance if balanced else 0) + d}


def stored(data: str, parts: Split, row: str, bits: int) -> dict[str, Any]:
    """Bytes at rest, and for codes what the formula says and what is held at work after a round."""
    experiment = experiment_of(data, parts, row, bits)
    found: dict[str, Any] = {"row": row, "bits": bits, "n_items": parts.train.n_items, "kept": at_rest(experiment)}
    if row in BINARY:
        simulation_of(experiment, Simulation).run(experiment.server, 0)
        balanced = "balance" in experiment.server.public().shared
        found["kept"] = at_rest(experiment)
        found["formula"] = codes_by_formula(parts.train.n_items, bits, balanced=balanced)
        found["at work"] = {"server": held_bytes(experiment.server), "client": held_bytes(experiment.clients)}
    return found


def space(parts: Split, options: argparse.Namespace, file: str) -> None:
    """By bits, and codes of 32 bits by size of the catalogue."""
    n_items = CATALOGUE.get(options.data, parts.train.n_items)
    record, one = harness.Record(file, options, []), on_catalogue(middle(parts, 1), n_items)
    for row in STORED:
        for bits in BITS:
            if missing(record, options, row, bits=bits):
                record.add(stored(options.data, one, row, bits))
    for share in SHARES:
        if missing(record, options, "DFMR", share=share):
            resized = on_catalogue(one, round(share * n_items))
            record.add(stored(options.data, resized, "DFMR", 32) | {"share": share})


# Communication --------------------------------------------------------------------------------------------------------


def communication(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Bytes of a device in one round."""
    record = harness.Record(file, options, [])
    drawn = np.random.default_rng(0).permutation(parts.train.n_users)[:SAMPLE]
    some = people(parts, np.sort(drawn))
    for row, plan in SENT.items():
        for bits in BITS:
            if not missing(record, options, row, bits=bits):
                continue
            method = row.partition(" ")[0]
            experiment = experiment_of(options.data, parts if method in BINARY else some, method, bits, plan)
            simulation = simulation_of(experiment, Simulation)
            simulation.run(experiment.server, 0)
            sent = {"up": simulation.costs.up_bytes, "down": simulation.costs.down_bytes}
            each = {name: round(number / experiment.n_users, 1) for name, number in sent.items()}
            record.add({"row": row, "bits": bits, "people": experiment.n_users} | each)


# Time -----------------------------------------------------------------------------------------------------------------


class ClockedFederation(ForwardingFederation):
    """A federation that adds up the CPU-seconds of its queries."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.seconds = 0.0

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """A sum, timed."""
        with self._clock():
            return super().aggregate(step, cohort, message, schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Single uploads, timed."""
        with self._clock():
            return super().collect(step, cohort, message, schema)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds += time.process_time() - started


def timed(simulation: Simulation, server: Server, t: int, people: int) -> dict[str, float]:
    """CPU-seconds of a server and of one device in a round."""
    federation, started = ClockedFederation(simulation), time.process_time()
    server.round(federation, t)
    whole = time.process_time() - started
    return {"server": whole - federation.seconds, "client": federation.seconds / people}


def times(parts: Split, options: argparse.Namespace, file: str) -> None:
    """The least of the rounds after the first, server and device apart."""
    record = harness.Record(file, options, [])
    for row in TIMED:
        for bits in BITS_TIMED:
            if not missing(record, options, row, bits=bits):
                continue
            experiment = experiment_of(options.data, parts, row, bits)
            simulation = simulation_of(experiment, Simulation)
            rounds = [timed(simulation, experiment.server, t, experiment.n_users) for t in range(ROUNDS_TIMED)][1:]
            least = {name: float(f"{min(one[name] for one in rounds):.3g}") for name in rounds[0]}
            record.add({"row": row, "bits": bits, "people": experiment.n_users} | least)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part and print its rows."""
    parts: dict[str, Callable[[Split, argparse.Namespace, str], None]] = {
        "space": space,
        "communication": communication,
        "time": times,
    }
    parser = harness.parser(__file__, __doc__, parts=parts, data={"default": "jd-dfmr", "choices": DATA}, only=[])
    options = harness.parse(parser, arguments)
    interactions = split(load(options.data), DATA[options.data][0])
    parts[options.part](interactions, options, f"dfmr_{options.part}_{options.data}")


if __name__ == "__main__":
    main()
