"""Methods: each a server and clients that meet only at the wire.

A method is a folder, or one file where it is short: settings, clients, server, model, and a `METHOD` registered under
the entry-point group `privfed.methods`. `privfed.methods.shared` holds what several methods share, and
`privfed.methods.references` methods without privacy that others are compared with.
"""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.methods.attack_surface import AttackSurface, ItemBlocks, NamedBlocks, NoItemRows
    from privfed.methods.client_data import BehaviourError, ClientData
    from privfed.methods.method import (
        Disclosure,
        Method,
        MethodConfig,
        NegativeSampling,
        PlannedQuery,
        PublicInfo,
        ServerReads,
        Training,
    )
    from privfed.methods.own import UnknownMethodError
    from privfed.methods.preset import PUBLISHED, Preset
    from privfed.methods.registry import method, methods, preset, refreshed
    from privfed.methods.torch_method import TorchConfig, TorchMethodError, torch_method

__all__ = [
    "PUBLISHED",
    "AttackSurface",
    "BehaviourError",
    "ClientData",
    "Disclosure",
    "ItemBlocks",
    "Method",
    "MethodConfig",
    "NamedBlocks",
    "NegativeSampling",
    "NoItemRows",
    "PlannedQuery",
    "Preset",
    "PublicInfo",
    "ServerReads",
    "TorchConfig",
    "TorchMethodError",
    "Training",
    "UnknownMethodError",
    "method",
    "methods",
    "preset",
    "refreshed",
    "torch_method",
]

load_lazily(__name__)
