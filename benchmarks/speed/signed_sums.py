"""What signed terms cost: CPU-seconds and bytes of one masked sum, on the complete and on the sparse graph.

    python -m benchmarks.speed.signed_sums [--only "signed, sparse*"]

Run from the repository root. Parameters are those that `choose_parameters` gives for 5 % corrupt clients and 10 % that
drop out; one client in twenty then drops out before it sends its input. All parties are in this process and take
turns, so seconds are of the processor: per client the mean over all its steps, per server all that it does. Nothing is
asserted but that the sum is that of the survivors.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from secure_agg.masking import (
    ClientRequirements,
    Identity,
    MaskingClient,
    MaskingParameters,
    MaskingServer,
    ServerAdversary,
    Stage,
    Terms,
    choose_parameters,
)
from secure_agg.primitives.prg import RingElements, random_uints

LENGTH = 10_000
CORRUPT, DROPOUT = 0.05, 0.1
RUN = bytes(range(16))
CASES = (
    *(("signed, complete", clients) for clients in (100, 300)),
    *(("signed, sparse", clients) for clients in (300, 1000, 3000)),
    *(("unsigned, sparse", clients) for clients in (100, 300, 1000, 3000)),
)


def parameters(kind: str, clients: int) -> MaskingParameters:
    """Neighbours and threshold of a case."""
    signed, complete = kind.startswith("signed"), kind.endswith("complete")
    return choose_parameters(
        clients, corrupt=CORRUPT, dropout=DROPOUT,
        server=ServerAdversary.ACTIVE if signed else ServerAdversary.CURIOUS,
        complete_graph_max_clients=clients if complete else 0,
    )  # fmt: skip


def measured(chosen: MaskingParameters) -> dict[str, Any]:
    """One round of all parties."""
    terms = Terms.from_parameters(chosen, bits=32, length=LENGTH, run=RUN)
    ids = range(chosen.clients)
    requirements = ClientRequirements(
        min_clients=chosen.clients // 2, min_threshold=chosen.threshold,
        require_signatures=terms.signed, max_corrupt=chosen.corrupt if terms.signed else 0,
    )  # fmt: skip
    identities = {one: Identity.generate() for one in ids} if terms.signed else {}
    directory = {one: identity.public for one, identity in identities.items()}
    server = MaskingServer(terms, directory=directory)
    clients = {
        one: MaskingClient(one, requirements, run=RUN, identity=identities.get(one), directory=directory) for one in ids
    }
    expected, seconds, up, down = terms.ring.zeros(LENGTH), {"clients": 0.0, "server": 0.0}, 0, 0
    requests = server.invite(ids)
    while server.awaits is not None:
        stage, replies = server.awaits, {}
        start = time.process_time()
        for one, request in requests.items():
            down += len(request)
            if stage is Stage.MASKED_INPUT and one % 20 == 19:
                continue
            vector = random_uints(LENGTH, np.uint32) if stage is Stage.MASKED_INPUT else None
            replies[one] = answer(clients[one], stage, request, vector)
            if vector is not None:
                np.add(expected, vector, out=expected)
        seconds["clients"] += time.process_time() - start
        start = time.process_time()
        for one, reply in replies.items():
            up += len(reply)
            server.receive(one, reply)
        requests = server.advance()
        seconds["server"] += time.process_time() - start
    if not np.array_equal(server.total, expected):
        raise RuntimeError("the total is not the sum of the survivors' vectors")
    return {
        "clients": chosen.clients, "neighbours": chosen.neighbours or chosen.clients - 1, "threshold": chosen.threshold,
        "corrupt": chosen.corrupt, "length": LENGTH, "client_cpu_s": round(seconds["clients"] / chosen.clients, 4),
        "server_cpu_s": round(seconds["server"], 2), "up_bytes": round(up / chosen.clients),
        "down_bytes": round(down / chosen.clients),
    }  # fmt: skip


def answer(client: MaskingClient, stage: Stage, request: bytes, vector: RingElements | None) -> bytes:
    """A client's reply at a stage."""
    if vector is not None:
        return client.mask(request, vector)
    steps = {
        Stage.ADVERTISEMENT: client.advertise, Stage.SHARES: client.share, Stage.CHECK: client.check,
        Stage.CONFIRMATION: client.confirm, Stage.REVEAL: client.unmask,
    }  # fmt: skip
    return steps[stage](request)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line names and is not measured yet."""
    options = harness.parse(harness.parser(__file__, __doc__, only=None), arguments)
    record = harness.Record("signed_sums", options, {})
    for kind, clients in CASES:
        name = f"{kind}, {clients}"
        if harness.chosen(name, options.only) and name not in record.results:
            record.put({"kind": kind, **measured(parameters(kind, clients))}, name)


if __name__ == "__main__":
    main()
