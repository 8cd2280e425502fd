"""`importing`: what a command loads is loaded without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Load modules within.

    They make a million objects and hardly any garbage, and looking through those again and again takes seconds, at the
    end of the process too. What is there afterwards is not looked at any more.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
