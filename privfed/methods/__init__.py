"""Methods: each a public server half and a private client half that meet only at the wire.

A method is one file: settings, server half, client half, and a `METHOD` registered under the entry-point group
`privfed.methods`.
"""

from privfed.methods.client_data import BehaviourError, ClientData
from privfed.methods.method import (
    Method,
    MethodConfig,
    PlannedQuery,
    PublicInfo,
    UnknownMethodError,
    method,
    methods,
)
from privfed.methods.torch_method import TorchConfig, TorchMethodError, torch_method

__all__ = [
    "BehaviourError",
    "ClientData",
    "Method",
    "MethodConfig",
    "PlannedQuery",
    "PublicInfo",
    "TorchConfig",
    "TorchMethodError",
    "UnknownMethodError",
    "method",
    "methods",
    "torch_method",
]
