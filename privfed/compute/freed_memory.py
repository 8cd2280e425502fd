"""`keep_freed_memory`: let a process keep the memory that a round frees, for the round after it."""

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`."""
KEPT = 256 << 20
"""Bytes that stay with the process at most, at the top of its heap."""
FROM_HEAP = 32 << 20
"""Smaller pieces come from the heap, up to glibc's own bound; larger ones return to the system at once."""


@cache
def keep_freed_memory() -> None:
    """Keep up to `KEPT` freed bytes in the process, from now on, where its C library is glibc.

    Chunks of clients take and free the same buffers, and glibc gives these back to the system every time: the kernel
    then clears every page again, which takes as long as a good part of a short round. A process that was started with
    allocator settings in its environment keeps those.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if library is not None and hasattr(library, "gnu_get_libc_version"):
        library.mallopt(MMAP_THRESHOLD, FROM_HEAP)
        library.mallopt(TRIM_THRESHOLD, KEPT)
