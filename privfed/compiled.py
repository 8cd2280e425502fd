"""`compiled`: array loops as machine code (numba), for work that no vectorised call expresses.

A compiled function takes numpy arrays and plain numbers, touches nothing else, and is tested against a naive one.
"""

import inspect
from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """`function` as machine code; runs on one thread and without the interpreter.

    It is compiled when it is first called and kept on disk for the next process: beside its source, or else in the
    user's cache or in `NUMBA_CACHE_DIR`. Where none of them can be written, every process compiles anew.
    """
    # Signature checks wrap functions where they run, in tests; what is compiled is the function itself.
    plain = inspect.unwrap(function)
    try:
        return cast(Function, njit(cache=True, nogil=True)(plain))
    except RuntimeError:
        return cast(Function, njit(nogil=True)(plain))
