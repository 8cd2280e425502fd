"""`compiled`: array loops as machine code (numba), for work that no vectorised call expresses.

A compiled function takes numpy arrays and plain numbers, touches nothing else, and is tested against a naive one.
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast, overload

from numba import njit

from privfed.compute.kept_code import KeptCode

Function = TypeVar("Function", bound=Callable[..., object])


@overload
def compiled(function: Function) -> Function: ...


@overload
def compiled(*, reassociate: bool = False, borrow: bool = False) -> Callable[[Function], Function]: ...


def compiled(
    function: Function | None = None, *, reassociate: bool = False, borrow: bool = False
) -> Function | Callable[[Function], Function]:
    """`function` as machine code; runs on one thread and without the interpreter.

    With `reassociate` sums of floating point may be taken in any order, so that vector units can take them; the order
    depends on nothing but the machine. With `borrow` references to arrays are not counted as these pass between
    functions, which can take longer than a short function; then it and what it calls can make views, but no array.

    It is compiled when it is first called and kept on disk for the next process (`KeptCode`): next to its source, or
    else in the user's cache or in `NUMBA_CACHE_DIR`. Where none of them can be written, every process compiles anew.
    """
    if function is None:
        return partial(compiled, reassociate=reassociate, borrow=borrow)
    # Signature checks wrap functions where they run, in tests; what is compiled is the function itself.
    plain = inspect.unwrap(function)
    fast = {"reassoc", "nsz", "contract"} if reassociate else False
    options: dict[str, Any] = {"nogil": True, "fastmath": fast} | ({"_nrt": False} if borrow else {})
    machine_code = njit(**options)(plain)
    # RuntimeError: there is no place for a cache.
    with suppress(RuntimeError):
        machine_code._cache = KeptCode(plain)  # type: ignore[no-untyped-call]
    return cast(Function, machine_code)
