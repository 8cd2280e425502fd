"""`compiled`: array loops as machine code (numba), for integer work that no vectorised call expresses.

A compiled function takes numpy arrays and plain numbers, touches nothing else, and is tested against a naive one.
"""

import inspect
from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """`function` as machine code, kept on disk for the next process; runs on one thread and without the interpreter."""
    # Signature checks wrap functions where they run, in tests; what is compiled is the function itself.
    return cast(Function, njit(cache=True, nogil=True)(inspect.unwrap(function)))
