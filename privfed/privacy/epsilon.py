"""`Epsilon`: a privacy loss that JSON can hold, infinity included."""

import math
from typing import Annotated

from pydantic import Field, PlainSerializer


def _inf_as_word(value: float) -> float | str:
    return "inf" if math.isinf(value) else value


Epsilon = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    PlainSerializer(_inf_as_word, return_type=float | str, when_used="json"),
]
"""A non-negative float; infinity is the string "inf" in JSON, and is read back as infinity."""

MIN_DELTA = 1e-10
"""Below it the floating-point convolutions of the accountants can no longer be trusted."""
