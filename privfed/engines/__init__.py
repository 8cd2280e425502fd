"""Engines run a federation; methods never know which one."""

from typing import TYPE_CHECKING

from privfed.lazily import lazily

if TYPE_CHECKING:
    from privfed.engines.checkpoint import Checkpoint, CheckpointError
    from privfed.engines.simulation import Costs, MemoryLimitError, Simulation, TooFewClientsError, Wire, members
    from privfed.engines.transcript import (
        ASK,
        CLIP_NORM,
        HELD_BY,
        HOLDERS,
        HOLDS,
        PULL,
        SENDERS,
        TAPS,
        Observation,
        Tap,
        Transcript,
        load_observations,
        received,
    )

__all__ = [
    "ASK",
    "CLIP_NORM",
    "HELD_BY",
    "HOLDERS",
    "HOLDS",
    "PULL",
    "SENDERS",
    "TAPS",
    "Checkpoint",
    "CheckpointError",
    "Costs",
    "MemoryLimitError",
    "Observation",
    "Simulation",
    "Tap",
    "TooFewClientsError",
    "Transcript",
    "Wire",
    "load_observations",
    "members",
    "received",
]

_SIMULATION = ("Costs", "MemoryLimitError", "Simulation", "TooFewClientsError", "Wire", "members")
_CHECKPOINT = ("Checkpoint", "CheckpointError")
_homes = dict.fromkeys(_SIMULATION, "simulation") | dict.fromkeys(_CHECKPOINT, "checkpoint")
__getattr__ = lazily(__name__, {name: _homes.get(name, "transcript") for name in __all__})
