"""Engines run a federation; methods never know which one."""

from privfed.engines.aggregation import MemoryLimitError
from privfed.engines.checkpoint import Checkpoint, CheckpointError
from privfed.engines.cohorts import members
from privfed.engines.costs import Costs
from privfed.engines.simulation import Simulation, TooFewClientsError
from privfed.engines.transcript import (
    CLIP_NORM,
    HELD_BY,
    HOLDERS,
    HOLDS,
    PROXIMAL,
    QUERY,
    SENDERS,
    Observation,
    Transcript,
    load_observations,
    received,
)

__all__ = [
    "CLIP_NORM",
    "HELD_BY",
    "HOLDERS",
    "HOLDS",
    "PROXIMAL",
    "QUERY",
    "SENDERS",
    "Checkpoint",
    "CheckpointError",
    "Costs",
    "MemoryLimitError",
    "Observation",
    "Simulation",
    "TooFewClientsError",
    "Transcript",
    "load_observations",
    "members",
    "received",
]
