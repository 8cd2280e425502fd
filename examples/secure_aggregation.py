"""Secure aggregation by import: clients' vectors in, their sum out, and nothing else in between.

    python examples/secure_aggregation.py

Three parts, each with every party in this process: a masked sum over 60 clients of whom some fall silent on the way,
the same sum with noise for differential privacy, and additive shares between three aggregators. Only numpy and
cryptography are used.
"""

import argparse
import secrets

import numpy as np

from secure_agg import ClientRequirements, FixedPoint, Ring, Stage, Terms, additive, aggregate, choose_parameters
from secure_agg.noise import DistributedMechanism

CLIP = 1.0
DIMENSION = 1000


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--dropout", type=float, default=0.1, help="share of clients that fall silent")
    options = parser.parse_args()
    vectors = np.random.default_rng(0).normal(size=(options.clients, DIMENSION))
    vectors *= CLIP / np.linalg.norm(vectors, axis=1, keepdims=True)
    silent = list(range(int(options.dropout * options.clients)))
    masked_sum(vectors, silent, options.dropout)
    private_sum(vectors, silent, options.dropout)
    shared_sum(vectors)


def masked_sum(vectors: np.ndarray, silent: list[int], dropout: float) -> None:
    """Fixed point, pairwise masks, and dropouts just before the upload."""
    clients = len(vectors)
    parameters = choose_parameters(clients, corrupt=0.1, dropout=dropout)
    code = FixedPoint.for_sum(Ring(32), bound=CLIP, clients=clients)
    terms = Terms.from_parameters(parameters, bits=32, length=DIMENSION, run=secrets.token_bytes(16))
    elements = {client: code.encode(vector) for client, vector in enumerate(vectors)}
    requirements = ClientRequirements(
        min_clients=clients - len(silent), min_threshold=parameters.threshold, require_signatures=False
    )
    outcome = aggregate(elements, terms, requirements=requirements, dropouts={Stage.MASKED_INPUT: silent})
    error = np.abs(code.decode(outcome.total) - vectors[list(outcome.survivors)].sum(0)).max()
    print(parameters.summary)
    print(f"masked sum of {len(outcome.survivors)} of {clients} clients: largest error {error:.1e}")
    print("bytes by stage:", {str(stage): count for stage, count in outcome.traffic.items()}, "\n")


def private_sum(vectors: np.ndarray, silent: list[int], dropout: float) -> None:
    """Every client adds a share of Skellam noise, sized for the smallest number of honest clients that may survive."""
    clients = len(vectors)
    parameters = choose_parameters(clients, corrupt=0.1, dropout=dropout)
    survivors = clients - len(silent)
    mechanism = DistributedMechanism.from_noise_multiplier(
        1.0, min_honest=survivors - parameters.corrupt, dimension=DIMENSION, clip=CLIP, grid=CLIP / 2**10
    )
    ring = Ring(32)
    steps = mechanism.encode(vectors)
    terms = Terms.from_parameters(parameters, bits=32, length=mechanism.coordinates, run=secrets.token_bytes(16))
    outcome = aggregate(
        {client: ring.from_integers(row) for client, row in enumerate(steps)},
        terms,
        requirements=ClientRequirements(
            min_clients=survivors, min_threshold=parameters.threshold, require_signatures=False
        ),
        dropouts={Stage.MASKED_INPUT: silent},
    )
    noisy = mechanism.decode(ring.centred(outcome.total))
    noise = noisy - vectors[list(outcome.survivors)].sum(0)
    epsilon = mechanism.event().epsilon(delta=1e-5)
    print(f"with noise for {survivors - parameters.corrupt} honest survivors: noise of {noise.std():.2f} a coordinate,")
    print(f"epsilon {epsilon:.2f} at delta 1e-5 for one round, one client's vector present or zero\n")


def shared_sum(vectors: np.ndarray) -> None:
    """Three aggregators, each with a share that says nothing by itself."""
    code = FixedPoint.for_sum(Ring(32), bound=CLIP, clients=len(vectors))
    sent = [additive.split(code.encode(vector), parties=3) for vector in vectors]
    sums = [additive.add(client[party] for client in sent) for party in range(3)]
    total = code.decode(additive.reconstruct(sums))
    wire = [len(share.encode()) for share in sent[0]]
    print(f"additive shares: largest error {np.abs(total - vectors.sum(0)).max():.1e}, bytes to each aggregator {wire}")


if __name__ == "__main__":
    main()
