"""What this machine can do on one thread: float32 products, memory, and the cipher behind our random words.

    python -m benchmarks.speed.suite.rates

prints one line of JSON. A rate is work over CPU-seconds, the best of several tries, so that other work on the machine
hides as little of it as can be. Products are a square one and those that rounds are made of, and the limit takes the
fastest of them; memory is the triad a = b + s c over arrays larger than any cache (three words an element, as McCalpin
counts); the cipher is AES-128 over counter blocks in one call of a mebibyte.
"""

import json
import time
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from privfed.federation import Purpose, Streams

TRIES, LEAST_SECONDS = 5, 0.15
QUICK_TRIES = 2
SQUARE, SHORT = 2048, 512
TRIAD = 1 << 24
MEBIBYTE = 1 << 20
CLIENTS, ITEMS, DIM, HIDDEN, BATCH, TILE, LATENT, CHUNK, WORDS = 943, 1682, 32, 32, 256, 16, 64, 64, 936
"""MovieLens-100K and default settings; a client needs 936 words for its samples on average."""


def rate(work: float, step: Callable[[], object], tries: int = TRIES) -> float:
    """Work per CPU-second: the best of `tries`, each over steps that take `LEAST_SECONDS` together."""
    step()
    best = 0.0
    for _ in range(tries):
        steps, started = 0, time.process_time()
        while (spent := time.process_time() - started) < LEAST_SECONDS:
            step()
            steps += 1
        best = max(best, steps * work / spent)
    return best


def square_product(tries: int = TRIES) -> float:
    """Operations per second of a large square product, a multiplication and an addition counted as two."""
    square, out = torch.rand(SQUARE, SQUARE), torch.empty(SQUARE, SQUARE)
    return rate(2 * SQUARE**3, lambda: torch.mm(square, square, out=out), tries)


def products() -> dict[str, float]:
    """Operations per second of a large product and of those that rounds are made of."""
    tables = np.random.default_rng(0).random((CLIENTS, ITEMS * DIM), dtype=np.float32)
    q, weights = torch.rand(TILE, BATCH, DIM), torch.rand(TILE, DIM, HIDDEN)
    hidden = torch.rand(TILE, BATCH, HIDDEN)
    latent, decoder, logits = torch.rand(CHUNK, LATENT), torch.rand(LATENT, ITEMS), torch.empty(CHUNK, ITEMS)
    gradients = torch.empty(LATENT, ITEMS)
    return {
        f"square, {SQUARE}": square_product(),
        f"symmetric, {CLIENTS} tables of {ITEMS} x {DIM}": rate(
            CLIENTS * (CLIENTS + 1) * ITEMS * DIM, lambda: tables @ tables.T
        ),
        f"perceptron, {TILE} x ({BATCH} x {DIM}) ({DIM} x {HIDDEN})": rate(
            2 * TILE * BATCH * DIM * HIDDEN, lambda: torch.bmm(q, weights, out=hidden)
        ),
        f"decoder, ({CHUNK} x {LATENT}) ({LATENT} x {ITEMS})": rate(
            2 * CHUNK * LATENT * ITEMS, lambda: torch.mm(latent, decoder, out=logits)
        ),
        f"sum of outer products, ({LATENT} x {CHUNK}) ({CHUNK} x {ITEMS})": rate(
            2 * CHUNK * LATENT * ITEMS, lambda: torch.mm(latent.T, logits, out=gradients)
        ),
    }


def short_products() -> float:
    """Operations per second of a square product in bfloat16."""
    square, out = torch.rand(SHORT, SHORT).bfloat16(), torch.empty(SHORT, SHORT).bfloat16()
    return rate(2 * SHORT**3, lambda: torch.mm(square, square, out=out))


def memory(tries: int = TRIES) -> float:
    """Bytes per second of the triad."""
    a, b, c = torch.empty(TRIAD), torch.rand(TRIAD), torch.rand(TRIAD)
    return rate(3 * a.nbytes, lambda: torch.add(b, c, alpha=0.5, out=a), tries)


def long_cipher(tries: int = TRIES) -> float:
    """Bytes per second of AES-128 in one long call."""
    stream = Cipher(AES(bytes(16)), ECB()).encryptor()
    plain, out = bytes(MEBIBYTE), bytearray(MEBIBYTE + 15)
    return rate(MEBIBYTE, lambda: stream.update_into(plain, out), tries)


def ciphers() -> dict[str, float]:
    """Bytes per second of AES-128: one long call, and the words of every client of a round as `Streams` makes them."""
    streams, users = Streams.from_seed(0), range(CLIENTS)
    return {
        "one call of 1 MiB": long_cipher(),
        f"{CLIENTS} clients x {WORDS} words": rate(
            4 * CLIENTS * WORDS, lambda: streams.words(Purpose.SAMPLES, 0, 0, users, WORDS)
        ),
    }


def limits() -> dict[str, float]:
    """The three rates that a limit is made of, measured briefly: beside a round, at the speed that the machine has."""
    return {"gemm": square_product(QUICK_TRIES), "triad": memory(QUICK_TRIES), "cipher": long_cipher(QUICK_TRIES)}


def main() -> None:
    """Measure everything on one thread."""
    torch.set_num_threads(1)
    rates = {"products": products(), "bfloat16": short_products(), "memory": {"triad": memory()}, "ciphers": ciphers()}
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
