"""A process keeps what it frees: counted in page faults, in processes of their own."""

import os
import platform
import subprocess
import sys

import pytest

REUSED = """
import resource
import numpy as np
import torch
from privfed.compute.devices import HOST, computing_on

def chunk():
    return [np.ones(1 << 20), torch.ones(1 << 20), np.ones(1 << 18)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with computing_on(HOST):
    for _ in range(10):
        chunk()
    before = faults()
    for _ in range(20):
        chunk()
    print(faults() - before)
"""
PAGES = 20 * (8 + 4 + 2) * 256
"""4 KiB pages of twenty chunks."""


def faults(**variables: str) -> int:
    """Page faults of twenty chunks, in a process with only these allocator settings in its environment."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_"))}
    ran = subprocess.run([sys.executable, "-c", REUSED], env=plain | variables, capture_output=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep what is freed")
def test_memory_that_a_round_frees_is_there_for_the_next() -> None:
    """Buffers of a few megabytes come back without a page fault."""
    assert faults() < PAGES / 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep what is freed")
def test_allocator_settings_of_the_environment_stay() -> None:
    """A process started with a trim threshold of nothing returns all memory, as it was told to."""
    assert faults(MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="65536") > PAGES / 2
