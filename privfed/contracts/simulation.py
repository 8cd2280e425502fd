"""Choices of a run that rooms above and below name alike: what is released, tapped, and simulated how closely."""

from typing import Literal

ReleaseKind = Literal["individual", "total"]
"""Whether a server receives every upload under a pseudonym, or only sums."""

Fidelity = Literal["analytic", "exact", "protocol", "two-servers"]
"""How closely the wire is simulated; see `privfed.engines.simulation`."""

Tap = Literal["raw", "wire", "sum", "model", "message"]
TAPS: tuple[Tap, ...] = ("raw", "wire", "sum", "model", "message")
"""Where a run is copied for attacks."""
